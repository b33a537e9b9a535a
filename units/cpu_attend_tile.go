package units

import "unsafe"

// headTile is a tile or block tile of limb rows of attention.
type headTile struct {
	size, groups int
	block        bool
	words        []uint32
	own          []uint32       // where words lie, unless they are taken
	init         [maxTile]int32 // as of tile
}

// noInit are the initial sums of block tiles of weights.
var noInit [blockTile * panelRows]int32

// reset makes a tile of zeros, a block tile on demand.
func (t *headTile) reset(rows, groups int, block bool) {
	t.groups, t.block = groups, block
	if t.size = rows; !block {
		t.size = tileSize(rows)
		clear(t.init[:t.size])
	}
	t.own = grow(t.own, groups*t.size)
	t.words = t.own
	clear(t.words)
}

// place writes a limb row, of this sum, into slot of the tile.
func (t *headTile) place(row []uint32, slot int, sum int32) {
	if t.block {
		for at := slot * blockGroups; len(row) > 0; at += t.size * blockGroups {
			row = row[copy(t.words[at:][:blockGroups], row):]
		}
		return
	}
	for g, v := range row {
		t.words[g*t.size+slot] = v
	}
	t.init[slot] = -128 * sum
}

// take makes a tile of the first two limbs [queries][2][64] of the weights of a block, or of their third limbs [queries][64]. A
// block tile of one step is the rows themselves, of which there is an even number, without initial sums, as weighTile wants it.
func (t *headTile) take(kern *kernels, limbs []int8, parts []blockWeights, third bool) {
	first, count := 0, 2
	if third {
		first, count = 2, 1
	}
	words, rows := wordsOf(limbs), len(parts)*count
	if kern.pairs != nil && rows >= leastBlock {
		t.block, t.groups, t.size, t.words = true, blockGroups, padded(rows, 2), words
		return
	}
	t.reset(rows, blockGroups, false)
	for slot := range rows {
		t.place(words[slot*blockGroups:][:blockGroups], slot, parts[slot/count].sums[first+slot%count])
	}
}

// multiply makes the unit sums of the tile with panels [p0, p1) of two limbs each, p1-p0 <= blockSums, the first of which
// lies at the start of w: u[p] are those of panel p0+p.
func (t *headTile) multiply(kern *kernels, u []unitSums, w []uint8, p0, p1 int) {
	size := t.groups * panelRows * groupK
	w = w[p0*2*size : p1*2*size]
	if t.block {
		kern.pairs(u[:p1-p0], noInit[:], w, int8s(t.words), t.size, t.groups)
		return
	}
	for i := range 2 * (p1 - p0) {
		kern.panel(u[i/2][i%2][:], t.init[:], w[i*size:(i+1)*size], int8s(t.words), t.size, t.groups)
	}
}

// headLimbs is three limb rows of n values.
func (s *scratch) headLimbs(n int) *[3][]int8 {
	words := padded(max(n, blockPositions), padK) / groupK
	if len(s.plain) < 3*words {
		s.plain = make([]uint32, 3*words)
	}
	var l [3][]int8
	for i := range l {
		l[i] = int8s(s.plain[i*words : (i+1)*words])[:n]
	}
	return &l
}

// limbWords is limb row i of headLimbs(n) as words, the last filled up with zeros.
func (s *scratch) limbWords(i, n int) []uint32 {
	words := padded(max(n, blockPositions), padK) / groupK
	row := s.plain[i*words : (i+1)*words]
	clear(int8s(row)[n:])
	return row[:padded(n, groupK)/groupK]
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// wordsOf views limbs, aligned to 4, as words.
func wordsOf(x []int8) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/4)
}

// limbsOf views the place of floats as limbs.
func limbsOf(x []float32) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
