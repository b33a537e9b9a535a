package units

import (
	"errors"
	"math"
)

// Attention (NUMERICS.md section 8) of one batch row for a few query heads that share a key-value head.

// attendHeads is the most query heads taken at once: three limbs each fill a tile.
const attendHeads = maxTile / 3

var errScore = errors.New("an attention score is not finite")

// scratch is what one worker needs beside the buffers; it grows on demand.
type scratch struct {
	u      [blockSums]unitSums
	plain  []uint32 // three limb rows
	tile   []uint32
	init   [maxTile]int32
	scores []float32 // [heads][span]: scores, then weights
	tops   []uint32  // [heads][blocks]: bits of the largest weight of each block
	total  []int64   // [heads][headDim padded]
	heads  [attendHeads]headState
	best   []int // routeRow
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
	limbs := s.headLimbs(op.HeadDim)
	groups := st.cache.hd / groupK
	size := tileSize(2 * n)
	s.tile = grow(s.tile, max(groups, blockPositions/groupK)*maxTile)
	clear(s.tile)
	clear(s.init[:])
	for i := range n {
		x := st.f32[op.A][(r*op.Heads+h0+i)*op.HeadDim:][:op.HeadDim]
		q, ok := quantiseRow(st.kern, limbs, x, false)
		if !ok {
			return false
		}
		s.heads[i].expQ = q.exp
		for limb := range 2 {
			s.place(limbs[limb], 2*i+limb, size, q.sums[limb])
		}
	}
	return true
}

// place writes one limb row into slot of the tile; what the row does not reach must be zero already.
func (s *scratch) place(row []int8, slot, size int, sum int32) {
	tile := int8s(s.tile)
	for k, v := range row {
		tile[(k/groupK*size+slot)*groupK+k%groupK] = v
	}
	s.init[slot] = -128 * sum
}

// attendScores fills s_j of every visible position, 16 positions at a time.
func (st *state) attendScores(op *Op, r, kvh, n int, v span, s *scratch) {
	c := st.cache
	size, groups := tileSize(2*n), c.hd/groupK
	for j := v.lo / panelRows * panelRows; j < v.hi; j += panelRows {
		b := c.block(op.CacheLayer, st.rows[r].Slot, kvh, j/blockPositions)
		p := j % blockPositions / panelRows
		for limb := range 2 {
			st.kern.panel(s.u[0][limb][:], s.init[:], c.kPanel(b, p, limb), int8s(s.tile), size, groups)
		}
		exps := b.expK[p*panelRows:][:panelRows]
		for i := range n {
			at := 2 * i * panelRows
			st.kern.scores(s.heads[i].row[j-v.base:][:panelRows], s.u[0][0][at:][:2*panelRows], s.u[0][1][at:][:2*panelRows],
				pow2(s.heads[i].expQ), exps, op.Scale)
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
		size := st.weightTile(n, b, v, s)
		if size == 0 {
			continue
		}
		block := c.block(op.CacheLayer, st.rows[r].Slot, kvh, b/blockPositions)
		for p := range c.hd / panelRows {
			for limb := range 2 {
				st.kern.panel(s.u[0][limb][:], s.init[:], c.vPanel(block, p, limb), int8s(s.tile), size, blockPositions/groupK)
			}
			for i := range n {
				h := &s.heads[i]
				if n := h.block.exp - h.expX + 12; h.slot >= 0 && n >= -62 { // further down all is 0
					at := h.slot * panelRows
					st.kern.accumulate(s.total[i*c.hd+p*panelRows:][:panelRows], s.u[0][0][at:], s.u[0][1][at:], h.block.limbs, n)
				}
			}
		}
	}
}

// weightTile quantises the weights of block b of each head into a tile and returns its size, 0 if all are zero.
func (st *state) weightTile(n, b int, v span, s *scratch) int {
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
		return 0
	}
	size := tileSize(used)
	clear(s.tile[:blockPositions/groupK*size])
	clear(s.init[:])
	for i := range n {
		h := &s.heads[i]
		if h.slot < 0 {
			continue
		}
		words := h.row[b-v.base:][:blockPositions]
		for limb := range h.block.limbs {
			for g := range blockPositions / groupK {
				s.tile[g*size+h.slot+limb] = math.Float32bits(words[limb*blockPositions/groupK+g])
			}
			s.init[h.slot+limb] = -128 * h.block.sums[limb]
		}
	}
	return size
}

// keepLimbs stores limb rows of at most 64 values, which begin at offset, as the bits of 16 words each.
func keepLimbs(dst []float32, limbs *[3][]int8, offset, count int) {
	var words [blockPositions / groupK]uint32
	for limb := range count {
		clear(words[:])
		copy(int8s(words[:])[offset:], limbs[limb])
		for g, w := range words {
			dst[limb*len(words)+g] = math.Float32frombits(w)
		}
	}
}
