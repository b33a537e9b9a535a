package units

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// region is zeroed memory outside of the Go heap, given back when the last of its users releases it, or when nothing refers
// to the region any more: whoever holds a slice of it holds the region too. Weights and caches fill most of a machine, and
// on the heap the collector would let as much garbage pile up beside them before it runs.
type region struct {
	data    []uint8
	users   atomic.Int32
	cleanup runtime.Cleanup
}

// newRegion maps n bytes for one user. With large pages, touching one byte takes 2 MB.
func newRegion(n int, large bool) (*region, error) {
	data, err := mapMemory(n)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory: %w", n, err)
	}
	if large {
		largePages(data)
	}
	r := &region{data: data}
	r.users.Store(1)
	r.cleanup = runtime.AddCleanup(r, unmapMemory, data)
	return r, nil
}

// release ends the use by one user.
func (r *region) release() {
	if r.users.Add(-1) == 0 {
		r.cleanup.Stop()
		unmapMemory(r.data)
		r.data = nil
	}
}

// weightMemory hands out the memory of weights. Reading them once per token goes through more pages than the processor
// remembers translations for, so they lie in large pages where the system has them. Small matrices share a region,
// since a large page cannot hold the end of one and the beginning of another.
type weightMemory struct {
	mu     sync.Mutex
	shared *region // one of its users is this
	free   []uint8 // of shared
}

const (
	sharedBytes = 64 << 20 // what is never touched takes no memory
	memoryAlign = 64       // a cache line
)

// bytes returns n zero bytes, at a multiple of memoryAlign, and their region, which the caller is to release.
func (m *weightMemory) bytes(n int) ([]uint8, *region, error) {
	if n > sharedBytes/4 {
		r, err := newRegion(n, true)
		if err != nil {
			return nil, nil, err
		}
		return r.data, r, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	size := padded(n, memoryAlign)
	if size > len(m.free) {
		r, err := newRegion(sharedBytes, true)
		if err != nil {
			return nil, nil, err
		}
		if m.shared != nil {
			m.shared.release()
		}
		m.shared, m.free = r, r.data
	}
	b := m.free[:n:n]
	m.free = m.free[size:]
	m.shared.users.Add(1)
	return b, m.shared, nil
}
