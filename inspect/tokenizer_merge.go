package inspect

import "math/bits"

// smallWord is the number of symbols up to which looking at every pair is faster than a heap.
const smallWord = 24

// noMerge is the value of a pair without a merge; it is above all others.
const noMerge = ^uint64(0)

// mergeScratch is the memory for merging one word.
type mergeScratch struct {
	text       []byte
	symbols    []int32
	value      []uint64 // of the pair that starts at a position: rank and merged symbol
	prev, next []int32
	heap       []uint64 // rank and position
}

// mergeSmall scans all pairs for each merge.
func (m *bpe) mergeSmall(out []int32, s *mergeScratch) []int32 {
	sym := s.symbols
	var value [smallWord]uint64
	for i := range len(sym) - 1 {
		value[i] = m.pairs.get(sym[i], sym[i+1])
	}
	for len(sym) > 1 {
		best, at := noMerge, 0
		for i, v := range value[:len(sym)-1] {
			if v < best {
				best, at = v, i
			}
		}
		if best == noMerge {
			break
		}
		sym[at] = int32(uint32(best))
		copy(sym[at+1:], sym[at+2:])
		copy(value[at:len(sym)-1], value[at+1:len(sym)-1])
		sym = sym[:len(sym)-1]
		if at > 0 {
			value[at-1] = m.pairs.get(sym[at-1], sym[at])
		}
		if at+1 < len(sym) {
			value[at] = m.pairs.get(sym[at], sym[at+1])
		}
	}
	return append(out, sym...)
}

// mergeLarge keeps the pairs in a heap and the symbols in a linked list, so that time is n log n.
func (m *bpe) mergeLarge(out []int32, s *mergeScratch) []int32 {
	sym := s.symbols
	n := len(sym)
	s.grow(n)
	for i := range n {
		s.prev[i], s.next[i] = int32(i-1), int32(i+1)
		s.value[i] = noMerge
		if i+1 < n {
			s.value[i] = m.pairs.get(sym[i], sym[i+1])
		}
		s.push(i)
	}
	for len(s.heap) > 0 {
		top := s.pop()
		at := int32(uint32(top))
		if s.value[at]>>32 != top>>32 {
			continue // the pair has changed since
		}
		sym[at] = int32(uint32(s.value[at]))
		gone := s.next[at]
		after := s.next[gone]
		s.next[at], s.value[at], s.value[gone] = after, noMerge, noMerge
		if int(after) < n {
			s.prev[after] = at
			s.value[at] = m.pairs.get(sym[at], sym[after])
			s.push(int(at))
		}
		if before := s.prev[at]; before >= 0 {
			s.value[before] = m.pairs.get(sym[before], sym[at])
			s.push(int(before))
		}
	}
	for i := 0; i < n; i = int(s.next[i]) {
		out = append(out, sym[i])
	}
	return out
}

func (s *mergeScratch) grow(n int) {
	s.heap = s.heap[:0]
	if cap(s.value) < n {
		s.value, s.prev, s.next = make([]uint64, n), make([]int32, n), make([]int32, n)
	}
	s.value, s.prev, s.next = s.value[:n], s.prev[:n], s.next[:n]
}

// push adds the pair at a position to the heap, if it has a merge.
func (s *mergeScratch) push(at int) {
	if s.value[at] == noMerge {
		return
	}
	key := s.value[at]&^0xFFFFFFFF | uint64(at)
	s.heap = append(s.heap, key)
	i := len(s.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if s.heap[up] <= key {
			break
		}
		s.heap[i] = s.heap[up]
		i = up
	}
	s.heap[i] = key
}

func (s *mergeScratch) pop() uint64 {
	top := s.heap[0]
	last := len(s.heap) - 1
	key := s.heap[last]
	s.heap = s.heap[:last]
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, last); c++ {
			if s.heap[c] < s.heap[least] {
				least = c
			}
		}
		if s.heap[least] >= key {
			break
		}
		s.heap[i] = s.heap[least]
		i = least
	}
	if last > 0 {
		s.heap[i] = key
	}
	return top
}

// pairTable maps a pair of symbols to the rank of its merge and the symbol it gives, by open addressing.
type pairTable struct {
	slots []pairSlot
	used  int
	shift int
}

type pairSlot struct {
	key   uint64 // the two symbols, plus one so that zero is an empty slot
	value uint64 // rank<<32 | merged symbol
}

func (t *pairTable) reserve(n int) {
	size := bits.Len(uint(2*n + 15))
	t.slots, t.shift, t.used = make([]pairSlot, 1<<size), 64-size, 0
}

func (t *pairTable) slot(key uint64) *pairSlot {
	for i := key * 0x9E3779B97F4A7C15 >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if s := &t.slots[i]; s.key == key || s.key == 0 {
			return s
		}
	}
}

func (t *pairTable) set(a, b int32, rank uint32, merged int32) {
	if 2*t.used >= len(t.slots) {
		old := t.slots
		t.reserve(len(old))
		for _, s := range old {
			if s.key != 0 {
				*t.slot(s.key) = s
				t.used++
			}
		}
	}
	s := t.slot(uint64(a)<<32 | uint64(b) + 1)
	if s.key == 0 {
		t.used++
	}
	s.key, s.value = uint64(a)<<32|uint64(b)+1, uint64(rank)<<32|uint64(merged)
}

// get returns the pair's value, or noMerge.
func (t *pairTable) get(a, b int32) uint64 {
	if len(t.slots) == 0 {
		return noMerge
	}
	if s := t.slot(uint64(a)<<32 | uint64(b) + 1); s.key != 0 {
		return s.value
	}
	return noMerge
}
