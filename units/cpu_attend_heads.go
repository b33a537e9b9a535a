package units

// headUnits are the unit sums of up to 16 queries with both limbs of a panel, [queries][16] each: of high limbs, of the mixed
// ones together, of low limbs.
type headUnits [3][blockTile / 2 * panelRows]int32

// headScores are the arguments of the kernel that computes the scores of blocks that lie one after the other.
type headScores struct {
	dst   []float32               // [blocks][n][64]
	tile  []int8                  // block tile of n queries, high and low limb rows in turn
	init  [blockTile / 2][3]int32 // what is to be added to their unit sums
	keys  []uint8                 // from the first block on
	exps  []int16                 // their exponents
	exp2  []float32               // of the queries
	scale float32

	n, panels, steps int // panels of all blocks, steps of 64 channels
	step, gap        int // bytes of a step of the tile, and between the keys of two blocks

	units [2]headUnits // to work with
}

// otherExps are the exponents between those of the keys of two blocks.
const otherExps = blockPositions

// headSums are the weighted sums of n queries. Those of blocks whose exponents are near X are collected and shifted into the
// totals together: blocks of two limbs and n = collectFrom or more, up to 12. So many blocks are collected at most that 32 bits
// hold the sums: those of a block stay below 2^22.
type headSums struct {
	near    []headUnits          // per panel
	offsets [blockTile / 2]int64 // what the offset of the values adds to them
	blocks  int                  // collected

	total       []int64 // [n][channels]
	n, channels int

	units [2]headUnits // to work with
}

const (
	collectFrom   = 8
	collectBlocks = 31
)

// headValues are the weights of n queries in a block.
type headValues struct {
	limbs       []int8  // [n][2][64]
	values      []uint8 // of the block
	nears, fars int
	near        [blockTile / 2]nearSum
	far         [blockTile / 2]farSum
}

// nearSum is a query whose sums are collected, farSum one whose sums are shifted into the totals.
type (
	nearSum struct {
		at    int32 // bytes from the first query of headUnits
		shift int32
	}
	farSum struct {
		at, total           int64 // bytes from the first query of headUnits and of the totals
		left, right, offset int64 // shifts of what the offset has been added to
	}
)

// scoreBlocks and valueBlocks are how many blocks a call of the kernels takes.
const (
	scoreBlocks = 4
	valueBlocks = 4
)

// addInit takes the offset of the keys off the products of a limb row of this sum.
func (h *headScores) addInit(query, limb int, sum int32) {
	h.init[query][1] -= 128 * sum
	h.init[query][2*limb] = -128 * sum
}

// headScores fills s_j of blocks [b, end) of s.queries.
func (st *state) headScores(op *Op, slot, kvh, b, end int, dst []float32, s *scratch) {
	h, n := &s.heads, len(s.queries)
	h.dst, h.tile, h.exp2, h.scale = dst, int8s(s.tile.words), s.exp2, op.Scale
	h.keys, h.exps = st.cache.keys(op.CacheLayer, slot, kvh, b, end)
	h.n, h.panels, h.steps = n, (end-b)*blockPositions/panelRows, s.tile.groups/blockGroups
	h.step, h.gap = 2*n*blockGroups*groupK, st.cache.blockBytes()/2
	st.kern.headScores(h)
}

// headValues adds the weighted values of blocks [first, last) to the totals of s.queries.
func (st *state) headValues(op *Op, slot, kvh, first, last int, s *scratch) {
	n, h, count := len(s.queries), &s.near, 0
	h.reset(n, st.cache.hd, s.total)
	for i := range last - first {
		parts := s.parts[i*n : (i+1)*n]
		limbs := mostLimbs(parts)
		if limbs == 0 {
			continue
		}
		block := st.cache.block(op.CacheLayer, slot, kvh, first+i)
		if b := &s.blocks[count]; h.add(b, parts, s.tops) {
			b.limbs, b.values = limbsOf(s.blockScores(i)), block.v
			count++
		}
		if count == valueBlocks || count > 0 && h.blocks == collectBlocks {
			st.kern.headValues(h, s.blocks[:count])
			count = 0
		}
		if h.blocks == collectBlocks {
			h.settle(st.kern)
		}
		if limbs == 3 {
			s.wide = append(s.wide[:0], parts...)
			for q := range s.wide {
				if s.wide[q].limbs != 3 {
					s.wide[q].limbs = 0
				}
			}
			st.attendValues(block, i, s.wide, s)
		}
	}
	if count > 0 {
		st.kern.headValues(h, s.blocks[:count])
	}
	h.settle(st.kern)
}

// reset clears the sums of n queries.
func (h *headSums) reset(n, channels int, total []int64) {
	h.n, h.channels, h.total = n, channels, total
	h.near = grow(h.near, channels/panelRows)
	h.clear()
}

func (h *headSums) clear() {
	clear(h.near)
	h.offsets, h.blocks = [blockTile / 2]int64{}, 0
}

// settle adds what is collected to the totals.
func (h *headSums) settle(kern *kernels) {
	if h.blocks > 0 {
		kern.settle(h)
		h.clear()
	}
}

// add plans how the sums of a block are added, those of queries with three limbs excepted; false if there are none.
func (h *headSums) add(b *headValues, parts []blockWeights, tops []int32) bool {
	b.nears, b.fars = 0, 0
	for i := range parts {
		part := &parts[i]
		n := part.shift(tops[i])
		switch {
		case n < leastShift || part.limbs == 3:
		case n >= collectFrom:
			b.near[b.nears] = nearSum{int32(i * panelRows * 4), int32(n - collectFrom)}
			b.nears++
			h.offsets[i] += valueOffset * int64(part.sum) << (n - collectFrom)
		default:
			f := farSum{at: int64(i * panelRows * 4), total: int64(i * h.channels * 8), offset: -valueOffset * int64(part.sum)}
			if n >= 0 {
				f.left = int64(n)
			} else {
				f.right = int64(-n)
				f.offset += 1 << (-n - 1)
			}
			b.far[b.fars] = f
			b.fars++
		}
	}
	if b.nears > 0 {
		h.blocks++
	}
	return b.nears+b.fars > 0
}
