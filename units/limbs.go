package units

import "unsafe"

// limbBuffer holds the quantised rows of a batch, laid out for the panel kernels: consecutive rows share a tile.
type limbBuffer struct {
	kern   *kernels
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

// tile is the limb rows of batch rows [first, end), from word data on in the layout of a tile or a block tile. Its initial
// sums are [size] from init; those of a block tile are [size][16], each 16 times.
type tile struct {
	first, end int
	size       int
	block      bool
	data, init int
}

// leastBlock is the fewest limb rows worth a block tile.
const leastBlock = 10

// words is the number of words of the tile's data.
func (b *limbBuffer) words(t tile) int {
	if t.block {
		return padded(b.groups, blockGroups) * t.size
	}
	return b.groups * t.size
}

// word is the place of group g of limb row s of the tile.
func (t tile) word(g, s int) int {
	if t.block {
		return t.data + (g/blockGroups*t.size+s)*blockGroups + g%blockGroups
	}
	return t.data + g*t.size + s
}

// inits is how many times the initial sum of a limb row is there.
func (t tile) inits() int {
	if t.block {
		return panelRows
	}
	return 1
}

func newLimbBuffer(kern *kernels, width int) *limbBuffer {
	return &limbBuffer{kern: kern, width: width, groups: padded(width, padK) / groupK}
}

// sized is a buffer of this width with room for n rows: b, if it has the width.
func (b *limbBuffer) sized(kern *kernels, width, n int) *limbBuffer {
	if b == nil || b.width != width {
		b = newLimbBuffer(kern, width)
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
func (b *limbBuffer) quantise(r int, x []float32) bool {
	var dst [3][]int8
	for i := range dst {
		dst[i] = int8s(b.limbRow(r, i))[:b.width]
	}
	q, ok := quantiseRow(b.kern, &dst, x, true)
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
	words, slots, first, limit := 0, 0, 0, maxTile
	if b.kern.block != nil {
		limit = blockTile
	}
	for _, last := range groups {
		for first < last {
			used, end := 0, first
			for end < last && used+b.rows[end].limbs <= limit {
				b.slot[end] = used
				used += b.rows[end].limbs
				end++
			}
			t := tile{first: first, end: end, data: words, init: slots}
			switch t.block = b.kern.block != nil && used >= leastBlock; {
			case t.block && end < last:
				t.size = blockTile // those before the last one of a group are alike
			case t.block:
				t.size = padded(used, 2)
			default:
				t.size = tileSize(used)
			}
			b.tiles = append(b.tiles, t)
			words += b.words(t)
			slots += t.size * t.inits()
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
	var store [blockTile][]uint32
	rows, inits := store[:t.size], t.inits()
	init := b.init[t.init : t.init+t.size*inits]
	clear(init)
	s := 0
	for r := t.first; r < t.end; r++ {
		for limb := range b.rows[r].limbs {
			rows[s] = b.limbRow(r, limb)
			for i := range inits {
				init[s*inits+i] = -128 * b.rows[r].sums[limb]
			}
			s++
		}
	}
	data := b.data[t.data : t.data+b.words(t)]
	if t.block {
		fillBlock(data, rows)
		return
	}
	for s, row := range rows {
		dst := data[s:]
		for g, v := range row {
			dst[g*t.size] = v
		}
		for g := len(row); g < b.groups; g++ {
			dst[g*t.size] = 0
		}
	}
}

// fillBlock writes rows, nil for zeros, into a block tile: all of a step together, since the parts of one row lie so far
// apart that they would fight for the same places in the cache.
func fillBlock(data []uint32, rows [][]uint32) {
	for at := 0; len(data) > 0; at += blockGroups {
		for _, row := range rows {
			dst := (*[blockGroups]uint32)(data)
			switch {
			case len(row) >= at+blockGroups:
				*dst = [blockGroups]uint32(row[at:])
			case len(row) > at:
				clear(dst[copy(dst[:], row[at:]):])
			default:
				clear(dst[:])
			}
			data = data[blockGroups:]
		}
	}
}

// tileData is the data of consecutive tiles.
func (b *limbBuffer) tileData(tiles []tile) []int8 {
	last := tiles[len(tiles)-1]
	return int8s(b.data[tiles[0].data : last.data+b.words(last)])
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
		dst[g] = b.data[t.word(g, b.slot[r]+i)]
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
