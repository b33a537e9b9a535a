package units

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	bandwidthBytes = 512 << 20 // more than the caches
	bandwidthChunk = 1 << 20
	bandwidthFor   = 200 * time.Millisecond
)

// MemoryBandwidth measures how fast the threads read memory together, in 10^9 bytes per second: the best of several
// passes over a buffer much larger than the caches.
func MemoryBandwidth(threads int) (float64, error) {
	kern := kernelSets()[0]
	region, err := newRegion(bandwidthBytes, true) // as weights lie
	if err != nil {
		return 0, fmt.Errorf("measuring the memory bandwidth: %w", err)
	}
	buffer := unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(region.data))), bandwidthBytes/8)
	p := newPool(max(1, threads))
	defer p.close()
	j := newJob()
	const words, chunks = bandwidthChunk / 8, bandwidthBytes / bandwidthChunk
	p.run(j, chunks, func(_, i int) { // give every page its own memory
		for k := i * words; k < (i+1)*words; k += 64 {
			buffer[k] = uint64(k)
		}
	})
	var sink atomic.Uint64
	best := 0.0
	for start := time.Now(); time.Since(start) < bandwidthFor || best == 0; {
		t := time.Now()
		p.run(j, chunks, func(_, i int) { sink.Add(kern.sum(buffer[i*words : (i+1)*words])) })
		best = max(best, bandwidthBytes/time.Since(t).Seconds()/1e9)
	}
	region.release()
	return best, nil
}
