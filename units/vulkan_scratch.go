package units

import (
	"fmt"
	"math/bits"

	"dchain/units/vk"
)

// scratchPool is the memory between the dispatches of an executable. Its recordings share it, since one runs at a time: each takes
// the first buffer of a size, the second, and so on.
type scratchPool map[scratchKey]*pooledScratch

type scratchKey struct {
	size   int64
	number int
}

type pooledScratch struct {
	buf        *vk.Buffer
	recordings int // that use it
}

// recordingScratch is what a recording has of the pool, by name.
type recordingScratch struct {
	pool   scratchPool
	named  map[string]*vk.Buffer
	taken  []scratchKey
	number map[int64]int // buffers taken of a size
}

func (p scratchPool) forRecording() *recordingScratch {
	return &recordingScratch{pool: p, named: map[string]*vk.Buffer{}, number: map[int64]int{}}
}

// take is memory of at least so many bytes, the same for equal names.
func (s *recordingScratch) take(d *vulkanDevice, name string, bytes int64) (*vk.Buffer, error) {
	if b := s.named[name]; b != nil {
		return b, nil
	}
	size := min(scratchSize(bytes), max(bytes, d.info.MaxAllocation))
	key := scratchKey{size, s.number[size]}
	p := s.pool[key]
	if p == nil {
		b, err := d.vk.NewBuffer(size, vk.Local)
		if err != nil {
			return nil, fmt.Errorf("scratch memory %q: %w", name, err)
		}
		p = &pooledScratch{buf: b}
		s.pool[key] = p
	}
	p.recordings++
	s.number[size]++
	s.taken = append(s.taken, key)
	s.named[name] = p.buf
	return p.buf, nil
}

// free gives back what no other recording uses.
func (s *recordingScratch) free() {
	for _, key := range s.taken {
		p := s.pool[key]
		if p.recordings--; p.recordings == 0 {
			p.buf.Free()
			delete(s.pool, key)
		}
	}
	s.taken, s.named = nil, nil
}

// scratchSize rounds up to three binary digits, so that batches of nearly one size share.
func scratchSize(bytes int64) int64 {
	unit := int64(1) << max(bits.Len64(uint64(bytes-1))-3, 2)
	return (bytes + unit - 1) / unit * unit
}
