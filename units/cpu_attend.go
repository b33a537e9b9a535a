package units

import (
	"errors"
	"unsafe"
)

// Attention (NUMERICS.md section 8) of one batch row for a few query heads that share a key-value head.

// attendHeads is the most query heads taken at once: three limbs each fill a tile.
const attendHeads = maxTile / 3

var errScore = errors.New("an attention score is not finite")

// scratch is what one worker needs beside the buffers; it grows on demand.
type scratch struct {
	u      [blockSums]unitSums
	plain  []uint32 // three limb rows
	tile   headTile
	scores []float32 // [heads][span]: scores, then weights
	tops   []uint32  // [heads][blocks]: bits of the largest weight of each block
	total  []int64   // [heads][headDim padded]
	heads  [attendHeads]headState
	best   []int // routeRow
}

// headTile is a tile or block tile of limb rows of attention.
type headTile struct {
	size, groups int
	block        bool
	words        []uint32
	init         [maxTile * panelRows]int32 // as of tile
}

// reset makes a tile of zeros for at least so many limb rows of groups groups.
func (t *headTile) reset(kern *kernels, rows, groups int) {
	t.groups, t.size = groups, tileSize(rows)
	inits := t.size
	if t.block = kern.pairs != nil && rows >= leastBlock && groups%blockGroups == 0; t.block {
		t.size = padded(rows, 2)
		inits = t.size * panelRows
	}
	t.words = grow(t.words, groups*t.size)
	clear(t.words)
	clear(t.init[:inits])
}

// place writes a limb row, of this sum, into slot of the tile.
func (t *headTile) place(row []uint32, slot int, sum int32) {
	if t.block {
		for at := slot * blockGroups; len(row) > 0; at += t.size * blockGroups {
			row = row[copy(t.words[at:][:blockGroups], row):]
		}
		init := (*[panelRows]int32)(t.init[slot*panelRows:])
		for i := range init {
			init[i] = -128 * sum
		}
		return
	}
	for g, v := range row {
		t.words[g*t.size+slot] = v
	}
	t.init[slot] = -128 * sum
}

// multiply makes the unit sums of the tile with panels [p0, p1) of two limbs each, p1-p0 <= blockSums, the first of which
// lies at the start of w: u[p] are those of panel p0+p.
func (t *headTile) multiply(kern *kernels, u []unitSums, w []uint8, p0, p1 int) {
	size := t.groups * panelRows * groupK
	w = w[p0*2*size : p1*2*size]
	if t.block {
		kern.pairs(u[:p1-p0], t.init[:], w, int8s(t.words), t.size, t.groups)
		return
	}
	for i := range 2 * (p1 - p0) {
		kern.panel(u[i/2][i%2][:], t.init[:], w[i*size:(i+1)*size], int8s(t.words), t.size, t.groups)
	}
}

// headState is one query head of attendGroup.
type headState struct {
	expQ  int
	recip float32 // 1/D
	expX  int     // X
	block quantised
	slot  int // first limb row in the tile of the current block; -1 if the head has no weight in it
	row   []float32
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

// span is the positions a query sees, [lo, hi), and the start of the first block.
type span struct{ lo, hi, base int }

func visible(pos, window int) span {
	lo := 0
	if window > 0 {
		lo = max(0, pos-window+1)
	}
	return span{lo, pos + 1, lo / blockPositions * blockPositions}
}

// size is the number of positions from the first block to the end of the last.
func (v span) size() int { return padded(v.hi-v.base, blockPositions) }

// attendGroup computes query heads [h0, h1) of row r, all of one key-value head.
func (st *state) attendGroup(op *Op, r, h0, h1 int, s *scratch) {
	v := visible(st.rows[r].Pos, op.Window)
	n := h1 - h0
	s.scores = grow(s.scores, n*v.size())
	s.tops = grow(s.tops, n*v.size()/blockPositions)
	for i := range n {
		s.heads[i].row = s.scores[i*v.size() : (i+1)*v.size()]
	}
	if !st.queryTile(op, r, h0, n, s) {
		st.fail(op, r, errNotFinite)
		return
	}
	kvh := h0 / (op.Heads / op.KVHeads)
	st.attendScores(op, r, kvh, n, v, s)
	for i := range n {
		if !st.adjust(op, h0+i, s.heads[i].row[v.lo-v.base:v.hi-v.base]) || !st.softmax(op, r, kvh, i, v, s) {
			st.fail(op, r, errScore)
			return
		}
	}
	st.attendValues(op, r, kvh, n, v, s)
	out := st.f32[op.Dst][r*op.Heads*op.HeadDim+h0*op.HeadDim:]
	for i := range n {
		h := &s.heads[i]
		p := pow2(h.expX - 12)
		total := s.total[i*st.cache.hd:]
		for d := range op.HeadDim {
			out[i*op.HeadDim+d] = flush(float32(float32(total[d])*p) * h.recip)
		}
	}
}

// queryTile quantises n query heads into a tile of two limb rows each.
func (st *state) queryTile(op *Op, r, h0, n int, s *scratch) bool {
	groups := st.cache.hd / groupK
	limbs := s.headLimbs(op.HeadDim)
	s.tile.reset(st.kern, 2*n, groups)
	for i := range n {
		x := st.f32[op.A][(r*op.Heads+h0+i)*op.HeadDim:][:op.HeadDim]
		q, ok := quantiseRow(st.kern, limbs, x, false)
		if !ok {
			return false
		}
		s.heads[i].expQ = q.exp
		for limb := range 2 {
			s.tile.place(s.limbWords(limb, op.HeadDim), 2*i+limb, q.sums[limb])
		}
	}
	return true
}

// attendScores fills s_j of every visible position, a block of positions at a time.
func (st *state) attendScores(op *Op, r, kvh, n int, v span, s *scratch) {
	for start := v.base; start < v.hi; start += blockPositions {
		b := st.cache.block(op.CacheLayer, st.rows[r].Slot, kvh, start/blockPositions)
		p0, p1 := max(0, v.lo-start)/panelRows, (min(v.hi-start, blockPositions)+panelRows-1)/panelRows
		s.tile.multiply(st.kern, s.u[:], b.k, p0, p1)
		for p := p0; p < p1; p++ {
			u, exps, at := &s.u[p-p0], b.expK[p*panelRows:][:panelRows], start-v.base+p*panelRows
			for i := range n {
				sums := 2 * i * panelRows
				st.kern.scores(s.heads[i].row[at:][:panelRows], u[0][sums:][:2*panelRows], u[1][sums:][:2*panelRows],
					pow2(s.heads[i].expQ), exps, op.Scale)
			}
		}
	}
}

// adjust applies the soft cap and ALiBi (section 8.1) to the scores of head h, whose last is that of the row's own
// position; false if a score to be capped is not finite.
func (st *state) adjust(op *Op, h int, scores []float32) bool {
	if op.Cap != 0 && !softcapRow(st.kern, scores, scores, op.Cap) {
		return false
	}
	if op.Slopes != nil {
		slope := vectorOf(op.Slopes)[h]
		for i, v := range scores {
			scores[i] = flush(v + float32(slope*float32(i-len(scores)+1)))
		}
	}
	return true
}

// softmax turns the scores of head i into weights w_j and finds D and X; false if a score is not finite.
func (st *state) softmax(op *Op, r, kvh, i int, v span, s *scratch) bool {
	h := &s.heads[i]
	seen := h.row[v.lo-v.base : v.hi-v.base]
	m := st.kern.highest(seen)
	if m-m != 0 {
		return false
	}
	sum, top := int64(0), zeroExponent
	tops := s.tops[i*v.size()/blockPositions:]
	for b := v.base; b < v.hi; b += blockPositions {
		exps := st.cache.block(op.CacheLayer, st.rows[r].Slot, kvh, b/blockPositions).expV
		lo, hi := max(b, v.lo), min(b+blockPositions, v.hi)
		part, largest := st.kern.weigh(h.row[lo-v.base:hi-v.base], m, exps[lo-b:hi-b])
		sum += part
		tops[(b-v.base)/blockPositions] = largest
		if largest != 0 {
			top = max(top, rowExponent(largest))
		}
	}
	h.recip = recip(float32(sum) * (1.0 / (1 << 36)))
	h.expX = top
	return true
}

// attendValues sums the weighted values of every block into total.
func (st *state) attendValues(op *Op, r, kvh, n int, v span, s *scratch) {
	c := st.cache
	s.total = grow(s.total, n*c.hd)
	clear(s.total)
	for b := v.base; b < v.hi; b += blockPositions {
		if !st.weightTile(n, b, v, s) {
			continue
		}
		block := c.block(op.CacheLayer, st.rows[r].Slot, kvh, b/blockPositions)
		panels := c.hd / panelRows
		for p0 := 0; p0 < panels; p0 += blockSums {
			p1 := min(p0+blockSums, panels)
			s.tile.multiply(st.kern, s.u[:], block.v, p0, p1)
			for i := range n {
				h := &s.heads[i]
				n := h.block.exp - h.expX + 12
				if h.slot < 0 || n < -62 { // further down all is 0
					continue
				}
				at := h.slot * panelRows
				for p := p0; p < p1; p++ {
					u := &s.u[p-p0]
					st.kern.accumulate(s.total[i*c.hd+p*panelRows:][:panelRows], u[0][at:], u[1][at:], h.block.limbs, n)
				}
			}
		}
	}
}

// weightTile quantises the weights of block b of each head into a tile; false if all are zero.
func (st *state) weightTile(n, b int, v span, s *scratch) bool {
	lo, hi := max(b, v.lo), min(b+blockPositions, v.hi)
	used := 0
	for i := range n {
		h := &s.heads[i]
		h.slot = -1
		if s.tops[i*v.size()/blockPositions+(b-v.base)/blockPositions] == 0 {
			continue
		}
		// The scores are not needed any more once quantised: their place keeps the limbs until the tile's size is known.
		limbs := s.headLimbs(hi - lo)
		h.block, _ = quantiseRow(st.kern, limbs, h.row[lo-v.base:hi-v.base], true)
		h.slot = used
		keepLimbs(h.row[b-v.base:][:blockPositions], limbs, lo-b, h.block.limbs)
		used += h.block.limbs
	}
	if used == 0 {
		return false
	}
	s.tile.reset(st.kern, used, blockPositions/groupK)
	for i := range n {
		h := &s.heads[i]
		if h.slot < 0 {
			continue
		}
		words := wordsOf(h.row[b-v.base:][:blockPositions])
		for limb := range h.block.limbs {
			s.tile.place(words[limb*blockPositions/groupK:][:blockPositions/groupK], h.slot+limb, h.block.sums[limb])
		}
	}
	return true
}

// keepLimbs stores limb rows of at most 64 values, which begin at offset, as 16 words each in the place of floats.
func keepLimbs(dst []float32, limbs *[3][]int8, offset, count int) {
	words := wordsOf(dst)
	for limb := range count {
		row := words[limb*blockPositions/groupK:][:blockPositions/groupK]
		clear(row)
		copy(int8s(row)[offset:], limbs[limb])
	}
}

// wordsOf views floats as words.
func wordsOf(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
