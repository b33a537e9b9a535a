package units

import (
	"errors"
	"math"
)

// Attention (NUMERICS.md section 8) of some queries, each a query head of a batch row, that share a key-value head: so
// the keys and values are read once for all of them.

var errScore = errors.New("an attention score is not finite")

// query is one query head of one batch row.
type query struct {
	row, head int
	lo, hi    int // the positions it sees, [lo, hi)
}

// scratch is what one worker needs beside the buffers; it grows on demand.
type scratch struct {
	u, third [blockSums]unitSums
	plain    []uint32 // three limb rows
	best     []int    // routeRow

	queries []query
	tile    headTile // the queries, two limb rows each
	exp2    []float32
	scores  []float32 // per block, [queries][64]: scores, then limbs of weights
	low     []int8    // per block, [queries, padded to an even number][64]: third limbs of weights
	parts   []blockWeights
	highest []float32 // m
	lanes   []weightSums
	sums    []int64  // D * 2^36
	tops    []int32  // X
	total   []int64  // [queries][headDim padded]
	values  headTile // the weights of a block
	small   headTile // their third limbs
	heads   headScores
	near    headSums
	blocks  [valueBlocks]headValues
	wide    []blockWeights // of those of three limbs
}

// blockWeights are the weights of one query in one block (NUMERICS.md section 8), apart from the limbs.
type blockWeights struct {
	exp   int32 // of the last limb
	limbs int32 // 2 or 3; 0 if all weights are 0
	seen  int32 // how many positions of the block the query sees
	// The values carry an offset, which the sum of the integers q tells: either sum is it, or sums are those of the limbs, which
	// the products begin with.
	sum  int32
	sums [3]int32
}

// weightSums are two parts, in 16 lanes each, of the sum of RNE(p * 2^36): in units of 2^18 and of 1. A block adds at most
// 4 * 2^18 to a lane, so that 32 bits hold those of foldBlocks blocks.
type weightSums [2][panelRows]int32

const foldBlocks = 1024

// visible is the positions a query sees, [lo, hi).
func visible(pos, window int) (lo, hi int) {
	if window > 0 {
		lo = max(0, pos-window+1)
	}
	return lo, pos + 1
}

// attendQueries is the most queries, of so many channels padded to whole panels, taken at once: two limb rows each fill a tile.
func (k *kernels) attendQueries(hd int) int {
	if k.pairs != nil && hd%(blockGroups*groupK) == 0 {
		return blockTile / 2
	}
	return maxTile / 2
}

// attendRow computes query heads of row r, all of them.
func (st *state) attendRow(op *Op, r int, s *scratch) {
	perKV := op.Heads / op.KVHeads
	for h := 0; h < op.Heads; {
		end := min(h+st.kern.attendQueries(st.cache.hd), (h/perKV+1)*perKV)
		s.queries = s.queries[:0]
		for ; h < end; h++ {
			s.queries = append(s.queries, st.query(op, r, h))
		}
		st.attend(op, s)
	}
}

func (st *state) query(op *Op, r, head int) query {
	lo, hi := visible(st.rows[r].Pos, op.Window)
	return query{row: r, head: head, lo: lo, hi: hi}
}

// blockSpan is the blocks [first, last) that queries see, and those [from, to) that all of them see to the last position.
func blockSpan(queries []query) (first, last, from, to int) {
	first, to = math.MaxInt, math.MaxInt
	for i := range queries {
		q := &queries[i]
		first, last = min(first, q.lo/blockPositions), max(last, (q.hi+blockPositions-1)/blockPositions)
		from, to = max(from, (q.lo+blockPositions-1)/blockPositions), min(to, q.hi/blockPositions)
	}
	return
}

// inBlock is the part of a block that starts at a position, [lo, hi) counted from there, that the query sees; it may be empty.
func (q *query) inBlock(start int) (lo, hi int) {
	lo = min(max(q.lo-start, 0), blockPositions)
	return lo, max(lo, min(q.hi-start, blockPositions))
}

// attend computes s.queries, of rows of one slot.
func (st *state) attend(op *Op, s *scratch) {
	first, last, from, to := blockSpan(s.queries)
	n, blocks := len(s.queries), last-first
	s.scores = grow(s.scores, blocks*n*blockPositions)
	s.low = grow(s.low, blocks*padded(n, 2)*blockPositions)
	s.parts = grow(s.parts, blocks*n)
	s.highest, s.sums, s.tops, s.lanes = grow(s.highest, n), grow(s.sums, n), grow(s.tops, n), grow(s.lanes, n)
	for i := range n {
		s.highest[i], s.sums[i], s.tops[i], s.lanes[i] = float32(math.Inf(-1)), 0, zeroExponent, weightSums{}
	}
	if r, ok := st.queryTile(op, s); !ok {
		st.fail(op, r, errNotFinite)
		return
	}
	slot, kvh := st.rows[s.queries[0].row].Slot, s.queries[0].head/(op.Heads/op.KVHeads)
	for b := first; b < last; {
		end := b + 1
		if s.tile.block {
			end = min(b+scoreBlocks, last)
			st.headScores(op, slot, kvh, b, end, s.scores[(b-first)*n*blockPositions:], s)
		} else {
			st.blockScores(op, st.cache.block(op.CacheLayer, slot, kvh, b), b, s.blockScores(b-first), s)
		}
		for ; b < end; b++ {
			x := s.blockScores(b - first)
			if whole := b >= from && b < to; !whole || op.Cap != 0 || op.Slopes != nil {
				if r, ok := st.adjustBlock(op, x, b*blockPositions, s); !ok {
					st.fail(op, r, errScore)
					return
				}
			}
			st.kern.highest(s.highest, x)
		}
	}
	for i, m := range s.highest {
		if m-m != 0 {
			st.fail(op, s.queries[i].row, errScore)
			return
		}
	}
	for b := first; b < last; b++ {
		st.weighBlock(st.cache.block(op.CacheLayer, slot, kvh, b), b, first, s)
		if (b-first)%foldBlocks == foldBlocks-1 {
			s.fold()
		}
	}
	s.fold()
	s.total = grow(s.total, n*st.cache.hd)
	clear(s.total)
	if st.kern.headValues != nil && 2*n >= leastBlock {
		st.headValues(op, slot, kvh, first, last, s)
	} else {
		for b := first; b < last; b++ {
			st.attendValues(st.cache.block(op.CacheLayer, slot, kvh, b), b-first, s.parts[(b-first)*n:][:n], s)
		}
	}
	for i := range s.queries {
		q := &s.queries[i]
		out := st.f32[op.Dst][(q.row*op.Heads+q.head)*op.HeadDim:][:op.HeadDim]
		p, recip := pow2(int(s.tops[i])-12), recip(float32(s.sums[i])*(1.0/(1<<36)))
		for d, v := range s.total[i*st.cache.hd:][:op.HeadDim] {
			out[d] = flush(float32(float32(v)*p) * recip)
		}
	}
}

// queryTile quantises the queries into a tile of two limb rows each; false and the row if a value is not finite.
func (st *state) queryTile(op *Op, s *scratch) (row int, ok bool) {
	n := len(s.queries)
	limbs := s.headLimbs(op.HeadDim)
	groups := st.cache.hd / groupK
	s.tile.reset(2*n, groups, st.kern.headScores != nil && 2*n >= leastBlock && groups%blockGroups == 0)
	s.heads.init = [blockTile / 2][3]int32{}
	s.exp2 = grow(s.exp2, n)
	for i := range s.queries {
		at := &s.queries[i]
		x := st.f32[op.A][(at.row*op.Heads+at.head)*op.HeadDim:][:op.HeadDim]
		q, ok := quantiseRow(st.kern, limbs, x, false)
		if !ok {
			return at.row, false
		}
		s.exp2[i] = pow2(q.exp)
		for limb := range 2 {
			s.tile.place(s.limbWords(limb, op.HeadDim), 2*i+limb, q.sums[limb])
			s.heads.addInit(i, limb, q.sums[limb])
		}
	}
	return 0, true
}

// blockScores are the scores of block b, then its weights.
func (s *scratch) blockScores(i int) []float32 {
	size := len(s.queries) * blockPositions
	return s.scores[i*size : (i+1)*size]
}

// blockScores fills s_j of block b of all queries, where one of them sees something.
func (st *state) blockScores(op *Op, block kvBlock, b int, x []float32, s *scratch) {
	p0, p1 := s.seenPanels(b * blockPositions)
	s.tile.multiply(st.kern, s.u[:], block.k, p0, p1)
	st.kern.scores(x[p0*panelRows:], s.u[:p1-p0], s.exp2, block.expK[p0*panelRows:], op.Scale)
}

// adjustBlock adjusts the scores of a block that starts at a position and hides what a query does not see; false and the row if
// a score to be capped is not finite.
func (st *state) adjustBlock(op *Op, x []float32, start int, s *scratch) (row int, ok bool) {
	for i := range s.queries {
		q, scores := &s.queries[i], x[i*blockPositions:][:blockPositions]
		lo, hi := q.inBlock(start)
		if !st.adjust(op, q, scores[lo:hi], start+lo) {
			return q.row, false
		}
		hide(scores[:lo])
		hide(scores[hi:])
	}
	return 0, true
}

// seenPanels are the panels [p0, p1) of a block of which a query sees some position.
func (s *scratch) seenPanels(start int) (p0, p1 int) {
	p0 = blockPositions / panelRows
	for i := range s.queries {
		if lo, hi := s.queries[i].inBlock(start); lo < hi {
			p0, p1 = min(p0, lo/panelRows), max(p1, (hi+panelRows-1)/panelRows)
		}
	}
	return
}

// hide gives scores of positions that are not seen the weight 0.
func hide(scores []float32) {
	for i := range scores {
		scores[i] = float32(math.Inf(-1))
	}
}

// adjust applies the soft cap and ALiBi (section 8.1) to scores of a query, the first that of position pos; false if a score
// to be capped is not finite.
func (st *state) adjust(op *Op, q *query, scores []float32, pos int) bool {
	if op.Cap != 0 && !softcapRow(st.kern, scores, scores, op.Cap) {
		return false
	}
	if op.Slopes != nil {
		slope := vectorOf(op.Slopes)[q.head]
		for i, v := range scores {
			scores[i] = flush(v + float32(slope*float32(pos+i-(q.hi-1))))
		}
	}
	return true
}

// weighBlock turns the scores of block b into the limbs of weights w_j, adds to D and raises X.
func (st *state) weighBlock(block kvBlock, b, first int, s *scratch) {
	n := len(s.queries)
	x, parts := s.blockScores(b-first), s.parts[(b-first)*n:][:n]
	low := s.low[(b-first)*padded(n, 2)*blockPositions:][:n*blockPositions]
	for i := range s.queries {
		lo, hi := s.queries[i].inBlock(b * blockPositions)
		parts[i].seen = int32(hi - lo)
	}
	if st.kern.weighTile != nil {
		st.kern.weighTile(x, low, parts, s.highest, block.expV, s.lanes)
	} else {
		for i := range s.queries {
			lo, hi := s.queries[i].inBlock(b * blockPositions)
			s.sums[i] += s.weighRow(st.kern, i, x, low, &parts[i], lo, hi, block.expV)
		}
	}
	for i := range parts {
		if p := &parts[i]; p.limbs != 0 {
			s.tops[i] = max(s.tops[i], p.exp+8*(p.limbs-2))
		}
	}
}

// weighRow is weighTile for query i, of which the positions [lo, hi) are seen; it returns what D * 2^36 grows by.
func (s *scratch) weighRow(kern *kernels, i int, x []float32, low []int8, part *blockWeights, lo, hi int, exps []int16) int64 {
	w := x[i*blockPositions:][lo:hi]
	sum, top := int64(0), uint32(0)
	limbs := s.headLimbs(blockPositions)
	for l := range limbs {
		clear(limbs[l])
	}
	*part = blockWeights{seen: part.seen}
	if lo < hi {
		sum, top = kern.weigh(w, s.highest[i], exps[lo:hi])
	}
	if top != 0 {
		seen := [3][]int8{limbs[0][lo:hi], limbs[1][lo:hi], limbs[2][lo:hi]}
		q, _ := quantiseRow(kern, &seen, w, true)
		part.exp, part.limbs, part.sums = int32(q.exp), int32(q.limbs), q.sums
	}
	rows := limbsOf(x)[2*i*blockPositions:]
	copy(rows, limbs[0])
	copy(rows[blockPositions:], limbs[1])
	copy(low[i*blockPositions:], limbs[2])
	return sum
}

// fold adds the lanes to the sums.
func (s *scratch) fold() {
	for i := range s.lanes {
		for l, v := range s.lanes[i][0] {
			s.sums[i] += int64(v)<<18 + int64(s.lanes[i][1][l])
		}
		s.lanes[i] = weightSums{}
	}
}

// attendValues adds the weighted values of block i, counted from the first, to the totals.
func (st *state) attendValues(block kvBlock, i int, parts []blockWeights, s *scratch) {
	limbs := mostLimbs(parts)
	if limbs == 0 {
		return
	}
	s.values.take(st.kern, limbsOf(s.blockScores(i)), parts, false)
	if limbs == 3 {
		s.small.take(st.kern, s.low[i*padded(len(parts), 2)*blockPositions:], parts, true)
	}
	panels := st.cache.hd / panelRows
	for p0 := 0; p0 < panels; p0 += blockSums {
		p1 := min(p0+blockSums, panels)
		s.values.multiply(st.kern, s.u[:], block.v, p0, p1)
		third := s.third[:0]
		if limbs == 3 {
			third = s.third[:p1-p0]
			s.small.multiply(st.kern, third, block.v, p0, p1)
		}
		st.kern.accumulate(s.total[p0*panelRows:], st.cache.hd, s.u[:p1-p0], third, parts, s.tops)
	}
}

func mostLimbs(parts []blockWeights) (limbs int32) {
	for i := range parts {
		limbs = max(limbs, parts[i].limbs)
	}
	return
}
