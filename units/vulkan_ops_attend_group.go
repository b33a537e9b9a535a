package units

import "math/bits"

// groupTile is how many heads, at most, attend_group.comp takes together: more of them take registers, and so workgroups that run
// at a time, which costs more than reading keys and values once gains. Tests change it.
var groupTile = 2

// groupSpan is the context up to which attend_group.comp has a shader with room for no more. A compiler gives out registers by how
// many workgroups the shared memory leaves room for: it takes half as many, and all workgroups of 64 rows run at a time.
const groupSpan = 256

// groupShape is how many heads of a key-value head attend_group.comp takes together, a power of two, the size of its workgroup
// and the positions that it has room for at most. It does not depend on the batch nor the context: see linearShape.
func (a *attention) groupShape(r *recording) (heads, threads, span int) {
	most := groupTile
	if r.dev.tier == VulkanLUT {
		most = tableTile
	}
	heads = min(most, 1<<bits.Len(uint(a.op.Heads/a.op.KVHeads-1)))
	threads = max(128, heads*r.dev.info.Subgroup)
	others := heads*(32*a.cache.headVectors()+28) + 20*threads // bytes that the shader declares besides scores
	span = (r.dev.info.MaxShared - others) / (4 * heads)
	return heads, threads, min(span/blockPositions*blockPositions, shortSpan)
}

// groups says whether attend_group.comp serves: rows enough for whole workgroups of their own, but no prompt, whose rows share
// keys and values, and a context that it has room for.
func (a *attention) groups(r *recording) bool {
	if r.rows >= tiledRows || groupTile == 0 {
		return false
	}
	_, threads, span := a.groupShape(r)
	return a.stride <= span && threads <= r.dev.info.MaxInvocations
}

// group dispatches attend_group.comp.
func (a *attention) group(r *recording, first, end int) {
	_, threads, span := a.groupShape(r)
	if a.stride <= groupSpan {
		span = min(span, groupSpan)
	}
	s := shader{name: r.units("attend_group"), subgroup: r.dev.info.Subgroup, constants: append(a.variants(), uint32(span), uint32(threads))}
	a.pass(r, s, threads, first, end, a.op.KVHeads*a.headTiles(), end-first, 1, []int{bindQueries, bindCache}, []int{bindDst})
}
