package units

import "slices"

// The heads of queries, keys and values on a Vulkan device, and attention in one dispatch.

// shortSpan and shortRows bound the positions and rows that attend_short.comp takes in one dispatch, attend_row.comp where it is
// one row: more positions exceed their shared memory, and with more rows the heads of a group gain by reading keys and values
// together. Tests lower them.
var shortSpan, shortRows = 2048, 16

// heads are the bindings of heads.glsl, for the keys and values of the OpStoreKV at index store and the queries of attention a;
// either may be missing. ropes are the rotations of queries and keys before, nil for none.
func (r *recording) heads(store int, a *attention, ropes *[2]*Op) (uses [7]access, rope, pairs uint32) {
	for i := range uses {
		uses[i] = read(r.tables())
	}
	if a != nil {
		uses[0] = read(r.buffer(a.op.A))
	}
	if store != noStore {
		op := &r.prog.Ops[store]
		uses[1], uses[2] = read(r.buffer(op.A)), read(r.buffer(op.B))
	}
	if ropes != nil {
		rope, pairs = 1+boolConstant(ropes[0].Interleaved), uint32(ropes[0].RotaryDim/2)
		for i, op := range ropes {
			uses[3+2*i], uses[4+2*i] = read(r.vector(op.Cos)), read(r.vector(op.Sin))
		}
	}
	return uses, rope, pairs
}

// wordPositions is how many rows a workgroup of heads.comp takes where there are many: positions whose values share words.
const wordPositions = 4

// wordRows is how many rows are many. Tests lower it.
var wordRows = 128

// headRows dispatches heads.comp, for heads from sums unless these are nil.
func (r *recording) headRows(cache *vulkanCache, store int, a *attention, ropes *[2]*Op, sums *outputSums) {
	unused := write(r.scratchBuf("unused", 16)) // the shader declares it for writing
	queries, layer := unused, unused
	heads, queryOp, stored := 0, 0, 0
	if a != nil {
		heads, queryOp, queries = a.op.Heads, a.index, write(a.queries)
	}
	if store != noStore {
		stored, layer = cache.spec.KVHeads, write(whole(cache.layers[r.prog.Ops[store].CacheLayer]))
	}
	uses, rope, pairs := r.heads(store, a, ropes)
	lanes, per := r.rowThreads(4*cache.headVectors(), 1)
	tile := 1
	if r.rows >= wordRows && wordPositions*lanes <= r.dev.info.MaxInvocations {
		tile = wordPositions
	}
	s := shader{"heads", r.dev.info.Subgroup, []uint32{uint32(tile * lanes), uint32(cache.spec.HeadDim), 0, 0, uint32(per), rope, pairs, uint32(tile), uint32(lanes)}}
	push := pushConstants(heads, stored, cache.blocks(), store, queryOp, r.rows)
	if sums != nil {
		s.name = "heads_finish"
		l := sums[0].op.Linear.(*vulkanLinear)
		s.constants = append(s.constants, uint32(l.mode.Limbs()), boolConstant(sums[0].op.Bias != nil))
		push = append(push, pushConstants(sums[0].parts, l.rowBytes/16, sums[0].part.padded, sums[1].part.padded)...)
	}
	bound := append([]access{read(r.rowsBuf()), queries, layer, shared(r.status())}, uses[:]...)
	if sums != nil {
		for i, s := range sums {
			bound[4+i] = write(r.buffer(s.op.Dst))
			bound = append(bound, read(s.partial))
		}
		for _, s := range sums {
			bound = append(bound, read(whole(s.op.Linear.(*vulkanLinear).scaleBuf)))
		}
		for _, s := range sums {
			bound = append(bound, read(r.vector(s.op.Bias)))
		}
		bound = append(bound, read(r.buffer(sums[0].op.A)))
	}
	r.dispatch(s, push, heads+2*stored, ceilDiv(r.rows, tile), 1, bound...)
}

const noStore = -1

// storeKV is OpStoreKV, with the attention that follows it.
func (r *recording) storeKV(i int) int {
	op, attend := &r.prog.Ops[i], r.opAt(i+1, OpAttend)
	if attend != nil && attend.attends(op) && r.rows == 1 {
		r.newAttention(i+1).withHeads(r, i, nil, nil)
		return 2
	}
	r.headRows(r.prog.Cache.(*vulkanCache), i, nil, nil, nil)
	return 1
}

// attends says that attention can be one dispatch with the store before it: it reads what that stores, and does not write where the
// keys and values come from, which some workgroups would do before others have read them.
func (op *Op) attends(store *Op) bool {
	return op.CacheLayer == store.CacheLayer && op.Dst != store.A && op.Dst != store.B
}

// rope is OpRope: with its companion for the keys, the store and the attention that follow, it is merged with these; alone,
// rope.comp.
func (r *recording) rope(i int) int {
	if ropes := r.ropesOfHeads(i); ropes != nil {
		r.newAttention(i+3).withHeads(r, i+2, ropes, nil)
		return 4
	}
	r.rotate(&r.prog.Ops[i])
	return 1
}

// ropesOfHeads are the rotations of queries and keys at index i that the store and the attention after them take; nil for none.
func (r *recording) ropesOfHeads(i int) *[2]*Op {
	q, k := r.opAt(i, OpRope), r.opAt(i+1, OpRope)
	store, attend := r.opAt(i+2, OpStoreKV), r.opAt(i+3, OpAttend)
	if q != nil && k != nil && store != nil && attend != nil && q.Dst == attend.A && k.Dst == store.A && q.Dst != k.Dst && store.B != q.Dst && store.B != k.Dst &&
		q.HeadDim == attend.HeadDim && k.HeadDim == attend.HeadDim && q.RotaryDim == k.RotaryDim && q.Interleaved == k.Interleaved &&
		attend.attends(store) && r.dead(q.Dst, i+4) && r.dead(k.Dst, i+4) {
		return &[2]*Op{q, k}
	}
	return nil
}

// outputSums are the sums of the matrices of queries, keys and values.
type outputSums [3]*linearSums

// headsOfOutputs records the rotations at index i, the store and the attention, if they are there and all of the outputs of three
// matrices, in any order.
func (r *recording) headsOfOutputs(i int, sums []linearSums) int {
	ropes := r.ropesOfHeads(i)
	if ropes == nil {
		return 0
	}
	store, attend := &r.prog.Ops[i+2], &r.prog.Ops[i+3]
	var of outputSums
	for j := range sums {
		for part, b := range []Buf{attend.A, store.A, store.B} {
			if sums[j].op.Dst == b {
				of[part] = &sums[j]
			}
		}
		l, first := sums[j].op.Linear.(*vulkanLinear), sums[0].op.Linear.(*vulkanLinear)
		if sums[j].parts != sums[0].parts || l.mode != first.mode || (sums[j].op.Bias == nil) != (sums[0].op.Bias == nil) {
			return 0
		}
	}
	if of[0] == nil || of[1] == nil || of[2] == nil || attend.HeadDim%4 != 0 {
		return 0
	}
	r.newAttention(i+3).withHeads(r, i+2, ropes, &of)
	return 4
}

// withHeads records the store before it and the attention: one dispatch for a row whose context is short. The heads come from sums
// unless these are nil.
func (a *attention) withHeads(r *recording, store int, ropes *[2]*Op, sums *outputSums) {
	if a.isShort && r.rows == 1 {
		a.row(r, store, ropes)
		return
	}
	r.headRows(a.cache, store, a, ropes, sums)
	a.run(r)
}

const (
	// rowGroups is how many workgroups an operation on one row is shared out among: as many as a large device has
	// multiprocessors. There is room for those of another dispatch beside them.
	rowGroups = 132
	// rowKeys is how many vectors of keys, of both limbs, an invocation of it has on their way.
	rowKeys = 4
)

// rowChannels is how many channels of a head a workgroup of attend_row.comp takes, a multiple of 16.
func (a *attention) rowChannels(r *recording) int {
	vectors := a.cache.headVectors()
	parts := min(vectors, max(1, rowGroups/a.op.Heads, ceilDiv(16*vectors, a.shortThreads(r))))
	return 16 * ceilDiv(vectors, parts)
}

// rowShared is what attend_row.comp needs of shared memory, in bytes.
func (a *attention) rowShared(r *recording) int {
	const others = 128 // reductions and what there is one of
	return 3*(32*a.cache.headVectors()+4*a.span+4*a.rowChannels(r)) + 4*a.shortThreads(r) + others
}

// row dispatches attend_row.comp.
func (a *attention) row(r *recording, store int, ropes *[2]*Op) {
	op := a.op
	threads, vectors, keys := a.shortThreads(r), a.cache.headVectors(), rowKeys
	channels := a.rowChannels(r)
	if r.dev.plain || r.dev.tier == VulkanLUT {
		keys = 2
	}
	if vectors%2 == 0 {
		keys /= 2 // they come by two
	}
	heads, rope, pairs := r.heads(store, a, ropes)
	uses := append([]access{read(r.rowsBuf()), early(write(whole(a.cache.layers[op.CacheLayer]))), write(r.buffer(op.Dst)), read(r.tables()),
		shared(r.status()), read(r.vector(op.Slopes))}, heads[:]...)
	if r.dev.products != nil {
		uses = append(uses, read(whole(r.dev.products)))
	}
	constants := slices.Concat([]uint32{uint32(threads), uint32(op.HeadDim), uint32(a.tileHeads), uint32(a.tileRows)}, a.variants(),
		[]uint32{uint32(a.span), uint32(threads), rope, pairs, uint32(channels), uint32(keys)})
	r.chained(shader{name: r.units("attend_row"), subgroup: r.dev.info.Subgroup, constants: constants}, append(a.push(0, 1), pushConstants(store)...),
		op.Heads, ceilDiv(16*vectors, channels), 1, uses...)
}

// dead says that no operation from index i on, nor the caller, reads what a buffer holds then.
func (r *recording) dead(b Buf, i int) bool {
	for ; i < len(r.prog.Ops); i++ {
		op := &r.prog.Ops[i]
		if op.A == b || op.B == b || op.Kind == OpRope && op.Dst == b {
			return false
		}
		if op.Dst == b {
			return true
		}
	}
	return b != r.prog.Out
}

func (a *attention) short(r *recording, first, end int) {
	threads := a.shortThreads(r)
	s := shader{name: r.units("attend_short"), subgroup: r.dev.info.Subgroup, constants: append(a.variants(), uint32(a.span), uint32(threads))}
	a.pass(r, s, threads, first, end, a.op.Heads, end-first, 1, []int{bindQueries, bindCache}, []int{bindDst})
}

// shortThreads is the size of a workgroup of attend_short.comp: an invocation for each position, within bounds.
func (a *attention) shortThreads(r *recording) int {
	if a.span >= 512 && r.dev.info.MaxInvocations >= 512 {
		return 512
	}
	return 256
}
