package units

// The heads of queries, keys and values on a Vulkan device, and attention in one dispatch.

// shortSpan and shortRows bound the positions and rows that attend_short.comp takes in one dispatch: more positions
// exceed its shared memory, and with more rows the heads of a group gain by reading keys and values together. Tests lower them.
var shortSpan, shortRows = 2048, 16

// headRows dispatches heads.comp for the keys and values of the OpStoreKV at index store and the queries of attention a;
// either may be missing. ropes are the rotations of queries and keys before, nil for none.
func (r *recording) headRows(cache *vulkanCache, store int, a *attention, ropes *[2]*Op) {
	none := r.tables()
	unused := write(r.scratchBuf("unused", 16)) // the shader declares it for writing
	qIn, kIn, vIn, queries, layer := read(none), read(none), read(none), unused, unused
	tables := [4]access{read(none), read(none), read(none), read(none)}
	heads, queryOp, stored, pairs, rope := 0, 0, 0, 0, uint32(0)
	if a != nil {
		heads, queryOp = a.op.Heads, a.index
		qIn, queries = read(r.buffer(a.op.A)), write(a.queries)
	}
	if store != noStore {
		op := &r.prog.Ops[store]
		stored = cache.spec.KVHeads
		kIn, vIn, layer = read(r.buffer(op.A)), read(r.buffer(op.B)), write(whole(cache.layers[op.CacheLayer]))
	}
	if ropes != nil {
		pairs, rope = ropes[0].RotaryDim/2, 1+boolConstant(ropes[0].Interleaved)
		for i, op := range ropes {
			tables[2*i], tables[2*i+1] = read(r.vector(op.Cos)), read(r.vector(op.Sin))
		}
	}
	threads, per := r.rowThreads(4*cache.headVectors(), 1)
	r.dispatch(shader{name: "heads", constants: []uint32{uint32(threads), uint32(cache.spec.HeadDim), 0, 0, uint32(per), rope}},
		pushConstants(heads, stored, cache.blocks(), pairs, store, queryOp), heads+2*stored, r.rows, 1,
		read(r.rowsBuf()), queries, layer, qIn, kIn, vIn, tables[0], tables[1], tables[2], shared(r.status()), tables[3])
}

const noStore = -1

// storeKV is OpStoreKV.
func (r *recording) storeKV(i int) int {
	r.headRows(r.prog.Cache.(*vulkanCache), i, nil, nil)
	return 1
}

// rope is OpRope: with its companion for the keys, the store and the attention that follow, heads.comp rotates while it
// quantises; alone, rope.comp.
func (r *recording) rope(i int) int {
	q, k := &r.prog.Ops[i], r.opAt(i+1, OpRope)
	store, attend := r.opAt(i+2, OpStoreKV), r.opAt(i+3, OpAttend)
	if k != nil && store != nil && attend != nil && q.Dst == attend.A && k.Dst == store.A && q.Dst != k.Dst && store.B != q.Dst && store.B != k.Dst &&
		q.HeadDim == attend.HeadDim && k.HeadDim == attend.HeadDim && q.RotaryDim == k.RotaryDim && q.Interleaved == k.Interleaved &&
		store.CacheLayer == attend.CacheLayer && r.dead(q.Dst, i+4) && r.dead(k.Dst, i+4) {
		a := r.newAttention(i + 3)
		r.headRows(a.cache, i+2, a, &[2]*Op{q, k})
		a.run(r)
		return 4
	}
	r.rotate(q)
	return 1
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
	a.pass(r, shader{name: r.units("attend_short"), constants: append(a.variants(), uint32(a.stride), uint32(threads))}, threads,
		first, end, a.op.Heads, end-first, 1, []int{bindQueries, bindCache}, []int{bindDst})
}

// shortThreads is the size of a workgroup of attend_short.comp: an invocation for each position, within bounds.
func (a *attention) shortThreads(r *recording) int {
	if a.stride >= 512 && r.dev.info.MaxInvocations >= 512 {
		return 512
	}
	return 256
}
