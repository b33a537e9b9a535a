package units

import "unsafe"

// limbBuffer holds the quantised rows of a batch, laid out for the panel kernels: consecutive rows share a tile.
type limbBuffer struct {
	width  int
	groups int // of 4 values, padding included
	rows   []quantised
	slot   []int // first limb row of each row within its tile
	plain  []uint32
	tiles  []tile
	ends   []int // per group of arrange: the end of its tiles
	data   []uint32
	init   []int32
}

// tile is the limb rows of batch rows [first, end), [groups][size][4] from word data and [size] from init.
type tile struct {
	first, end int
	size       int
	data, init int
}

func newLimbBuffer(width int) *limbBuffer {
	return &limbBuffer{width: width, groups: padded(width, padK) / groupK}
}

// sized is a buffer of this width with room for n rows: b, if it has the width.
func (b *limbBuffer) sized(width, n int) *limbBuffer {
	if b == nil || b.width != width {
		b = newLimbBuffer(width)
	}
	b.resize(n)
	return b
}

// resize makes room for n rows.
func (b *limbBuffer) resize(n int) {
	if n > cap(b.rows) {
		b.rows = make([]quantised, n)
		b.slot = make([]int, n)
		b.plain = make([]uint32, n*3*b.groups)
	}
	b.rows, b.slot = b.rows[:n], b.slot[:n]
}

// limbRow is limb i of row r before tiling, padded with zeros.
func (b *limbBuffer) limbRow(r, i int) []uint32 {
	at := (3*r + i) * b.groups
	return b.plain[at : at+b.groups : at+b.groups]
}

// quantise fills row r from x; false if a value is not finite.
func (b *limbBuffer) quantise(kern *kernels, r int, x []float32) bool {
	var dst [3][]int8
	for i := range dst {
		dst[i] = int8s(b.limbRow(r, i))[:b.width]
	}
	q, ok := quantiseRow(kern, &dst, x, true)
	b.rows[r] = q
	return ok
}

// copyRow makes row r of src, of the same width, row i, ready to be arranged.
func (b *limbBuffer) copyRow(i int, src *limbBuffer, r int) {
	b.rows[i] = src.rows[r]
	for limb := range src.rows[r].limbs {
		copy(b.limbRow(i, limb), src.limbRow(r, limb))
	}
}

// arrange assigns rows to tiles after all are quantised. groups are the ends of groups of rows that share no tile, the
// last being the number of rows; a group may be empty.
func (b *limbBuffer) arrange(groups []int) {
	b.tiles, b.ends = b.tiles[:0], b.ends[:0]
	words, slots, first := 0, 0, 0
	for _, limit := range groups {
		for first < limit {
			used, end := 0, first
			for end < limit && used+b.rows[end].limbs <= maxTile {
				b.slot[end] = used
				used += b.rows[end].limbs
				end++
			}
			t := tile{first: first, end: end, size: tileSize(used), data: words, init: slots}
			b.tiles = append(b.tiles, t)
			words += b.groups * t.size
			slots += t.size
			first = end
		}
		b.ends = append(b.ends, len(b.tiles))
	}
	if words > len(b.data) {
		b.data = make([]uint32, words)
		b.init = make([]int32, slots)
	}
	if slots > len(b.init) {
		b.init = make([]int32, slots)
	}
}

// groupTiles are the tiles of group i of arrange.
func (b *limbBuffer) groupTiles(i int) []tile {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.tiles[start:b.ends[i]]
}

// fill copies the limb rows of tile i into place.
func (b *limbBuffer) fill(i int) {
	t := b.tiles[i]
	data := b.data[t.data : t.data+b.groups*t.size]
	s := 0
	for r := t.first; r < t.end; r++ {
		for limb := range b.rows[r].limbs {
			interleave(data[s:], b.limbRow(r, limb), t.size)
			b.init[t.init+s] = -128 * b.rows[r].sums[limb]
			s++
		}
	}
	for ; s < t.size; s++ {
		for g := range b.groups {
			data[g*t.size+s] = 0
		}
		b.init[t.init+s] = 0
	}
}

// interleave spreads src over every stride-th word of dst.
func interleave(dst, src []uint32, stride int) {
	for i, v := range src {
		dst[i*stride] = v
	}
}

func (b *limbBuffer) tileData(t tile) []int8 {
	return int8s(b.data[t.data : t.data+b.groups*t.size])
}

// int8s views words as bytes: groups of 4 values move together, whatever the byte order.
func int8s(w []uint32) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(w))), 4*len(w))
}

// tileOf is the tile that holds row r.
func (b *limbBuffer) tileOf(r int) tile {
	for _, t := range b.tiles {
		if r < t.end {
			return t
		}
	}
	panic("units: row without a tile")
}

// gather copies limb i of row r out of its tile.
func (b *limbBuffer) gather(dst []uint32, r, i int) {
	t := b.tileOf(r)
	for g := range b.groups {
		dst[g] = b.data[t.data+g*t.size+b.slot[r]+i]
	}
}

// words32 views bytes, aligned to 4, as words.
func words32(b []uint8) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// floats32 views bytes, aligned to 4, as floats.
func floats32(b []uint8) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
