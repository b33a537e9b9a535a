package units

import "dchain/units/vk"

// Norms, rotary positions, element-wise operations and routing: their dispatches.

// rowThreads is the size of a workgroup that holds n items of a row, per of them in an invocation where there is room; items
// is what an invocation has to take.
func (r *recording) rowThreads(n, per int) (threads, items int) {
	threads = 32
	for threads*per < n && threads < min(1024, r.dev.info.MaxInvocations) {
		threads *= 2
	}
	return threads, ceilDiv(n, threads)
}

// norm is OpNorm: norm.comp.
func (r *recording) norm(i int) int {
	op := &r.prog.Ops[i]
	k := r.prog.Bufs[op.A].Width / op.Groups
	threads, per := r.rowThreads(k, 4)
	s := shader{name: "norm", constants: []uint32{uint32(threads), uint32(per), boolConstant(op.Norm == LayerNorm), boolConstant(op.Bias != nil)}}
	r.dispatch(s, pushConstants(k, i, op.Eps, 1/float32(k)), op.Groups, r.rows, 1,
		read(r.buffer(op.A)), write(r.buffer(op.Dst)), read(r.vector(op.Weight)), read(r.vector(op.Bias)),
		read(r.tables()), shared(r.status()))
	return 1
}

// rope is OpRope: rope.comp.
func (r *recording) rope(i int) int {
	const threads = 64
	op := &r.prog.Ops[i]
	pairs := op.RotaryDim / 2
	r.dispatch(shader{name: "rope", constants: []uint32{threads, boolConstant(op.Interleaved)}}, pushConstants(op.Heads, op.HeadDim, pairs),
		ceilDiv(op.Heads*pairs, threads), r.rows, 1,
		write(r.buffer(op.Dst)), read(r.vector(op.Cos)), read(r.vector(op.Sin)), read(r.rowsBuf()))
	return 1
}

// Kinds of elementwise.comp after the activations.
const (
	elementAdd     = 4
	elementScale   = 5
	elementSoftcap = 6
)

func (r *recording) act(i int) int {
	op := &r.prog.Ops[i]
	return r.elementwise(i, uint32(op.Act), op.B >= 0, 0)
}

func (r *recording) add(i int) int { return r.elementwise(i, elementAdd, true, 0) }

func (r *recording) scale(i int) int {
	return r.elementwise(i, elementScale, false, r.prog.Ops[i].Scale)
}

func (r *recording) softcap(i int) int {
	return r.elementwise(i, elementSoftcap, false, r.prog.Ops[i].Cap)
}

// elementwise dispatches elementwise.comp; binary says that the operation reads B.
func (r *recording) elementwise(i int, kind uint32, binary bool, factor float32) int {
	op := &r.prog.Ops[i]
	b := r.tables()
	if binary {
		b = r.buffer(op.B)
	}
	r.elements(i, kind, binary, factor, r.rows, r.prog.Bufs[op.Dst].Width, r.buffer(op.A), b, r.buffer(op.Dst))
	return 1
}

// elements applies an element-wise operation to [rows][width] values.
func (r *recording) elements(i int, kind uint32, binary bool, factor float32, rows, width int, a, b, dst vk.Binding) {
	const threads, each = 256, 4
	groups := min(ceilDiv(rows*width, threads*each), r.dev.info.MaxGroups[0])
	r.dispatch(shader{name: "elementwise", constants: []uint32{threads, kind, boolConstant(binary)}},
		pushConstants(rows*width, width, i, factor, 1/factor), groups, 1, 1,
		read(a), read(b), write(dst), read(r.tables()), shared(r.status()))
}

// route is OpRoute: route.comp.
func (r *recording) route(i int) int {
	op := &r.prog.Ops[i]
	n := r.prog.Bufs[op.A].Width
	threads, per := r.rowThreads(n, 1)
	r.dispatch(shader{name: "route", constants: []uint32{uint32(threads), uint32(per), uint32(op.TopK), boolConstant(op.Normalise)}},
		pushConstants(n, i), r.rows, 1, 1,
		read(r.buffer(op.A)), write(r.buffer(op.Dst)), read(r.tables()), shared(r.status()))
	return 1
}
