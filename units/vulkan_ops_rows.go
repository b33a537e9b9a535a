package units

// Norms, rotary positions, element-wise operations and routing: their dispatches.

// rowThreads is the size of a workgroup that holds n items of a row, per of them in an invocation where there is room; items
// is what an invocation has to take.
func (r *recording) rowThreads(n, per int) (threads, items int) {
	threads = 32
	for threads*per < n && 2*threads <= min(1024, r.dev.info.MaxInvocations) {
		threads *= 2
	}
	return threads, ceilDiv(n, threads)
}

// norm is OpNorm, with the quantising that follows it, or all that linear_row.comp takes.
func (r *recording) norm(i int) int {
	if n := r.linearsOfRow(i); n > 0 {
		return n
	}
	return r.normAt(i, i, nil)
}

// add is OpAdd, with the norm that follows it and what norm merges.
func (r *recording) add(i int) int {
	if r.normOfSum(i) {
		return r.normAt(i, i+1, nil)
	}
	return r.elementwise(i, elementAdd, true, 0)
}

// normOfSum says that operation i is an addition and the next one the norm of its rows.
func (r *recording) normOfSum(i int) bool {
	add, norm := r.opAt(i, OpAdd), r.opAt(i+1, OpNorm)
	return add != nil && norm != nil && norm.A == add.Dst && norm.Groups == 1
}

// normOfOutput records the addition of the output of a matrix at index i and the norm after it, if they are there.
func (r *recording) normOfOutput(i int, sums *linearSums) int {
	if !r.normOfSum(i) {
		return 0
	}
	add, norm, out := &r.prog.Ops[i], &r.prog.Ops[i+1], sums.op.Dst
	if (add.A == out) == (add.B == out) || add.Dst == out || norm.Dst == out {
		return 0
	}
	return r.normAt(i, i+1, sums)
}

// opAt is operation i if there is one, of this kind; else nil.
func (r *recording) opAt(i int, kind OpKind) *Op {
	if i < len(r.prog.Ops) && r.prog.Ops[i].Kind == kind {
		return &r.prog.Ops[i]
	}
	return nil
}

// normAt dispatches norm.comp for the norm at index n, the addition at index i before it unless i = n, and a quantising of
// whole rows after it. The sums, if not nil, are those of the matrix before the addition.
func (r *recording) normAt(i, n int, sums *linearSums) int {
	op := &r.prog.Ops[n]
	k := r.prog.Bufs[op.A].Width / op.Groups
	words := padded(k, vulkanPadK) / 4
	out := write(r.buffer(op.Dst))
	in, addend, sum, limbs := r.buffer(op.A), r.tables(), out, out // what is not written is the output, see linear_row.comp's dispatch
	writeSum := false
	if i < n {
		add := &r.prog.Ops[i]
		in, addend = r.buffer(add.A), r.buffer(add.B)
		if sums != nil && add.A == sums.op.Dst {
			in, addend = addend, in
		}
		if writeSum = add.Dst != op.Dst; writeSum {
			sum = write(r.buffer(add.Dst))
		}
	}
	last := n
	if q := r.opAt(n+1, OpQuantize); q != nil && q.A == op.Dst && op.Groups == 1 {
		last++
		limbs = write(r.buffer(q.Dst))
	}
	threads, per := r.rowThreads(words, 1)
	if r.rows > manyRows {
		threads, per = r.rowThreads(words, 4)
	}
	s := shader{name: "norm", constants: []uint32{uint32(threads), uint32(per), boolConstant(op.Norm == LayerNorm), boolConstant(op.Bias != nil),
		boolConstant(i < n), boolConstant(writeSum), boolConstant(last > n), boolConstant(k%4 == 0),
		boolConstant(last == n || !r.dead(op.Dst, last+1)), 0, 1, 0}}
	partial, scales, bias, info, linear := r.tables(), r.tables(), r.tables(), r.tables(), out
	var parts, padded, vectors int
	if sums != nil {
		l := sums.op.Linear.(*vulkanLinear)
		parts, padded, vectors = sums.parts, l.parts[0].padded, l.rowBytes/16
		s.constants[9], s.constants[10], s.constants[11] = 1, uint32(l.mode.Limbs()), boolConstant(sums.op.Bias != nil)
		partial, scales, bias, info = sums.partial, whole(l.scaleBuf), r.vector(sums.op.Bias), r.buffer(sums.op.A)
		addend, linear = r.tables(), write(r.buffer(sums.op.Dst)) // which audits look at
	}
	r.dispatch(s, pushConstants(k, words, r.rows, last, n, op.Eps, 1/float32(k), parts, padded, vectors), op.Groups, r.rows, 1,
		read(in), out, read(r.vector(op.Weight)), read(r.vector(op.Bias)),
		read(r.tables()), shared(r.status()), read(addend), sum, limbs,
		read(partial), read(scales), read(bias), read(info), linear)
	return last + 1 - i
}

// manyRows is the number of rows from which they keep a device busy, so that a row needs fewer invocations.
const manyRows = 64

// rotate dispatches rope.comp.
func (r *recording) rotate(op *Op) {
	const threads = 64
	pairs := op.RotaryDim / 2
	r.dispatch(shader{name: "rope", constants: []uint32{threads, boolConstant(op.Interleaved)}}, pushConstants(op.Heads, op.HeadDim, pairs),
		ceilDiv(op.Heads*pairs, threads), r.rows, 1,
		write(r.buffer(op.Dst)), read(r.vector(op.Cos)), read(r.vector(op.Sin)), read(r.rowsBuf()))
}

// Kinds of elementwise.comp after the activations.
const (
	elementAdd     = 4
	elementScale   = 5
	elementSoftcap = 6
)

// act is OpAct, with a quantising that follows it.
func (r *recording) act(i int) int {
	op, q := &r.prog.Ops[i], r.opAt(i+1, OpQuantize)
	if q == nil || q.A != op.Dst {
		return r.elementwise(i, uint32(op.Act), op.B >= 0, 0)
	}
	if _, ofRow := r.rowChainAt(i + 1); ofRow {
		return r.elementwise(i, uint32(op.Act), op.B >= 0, 0)
	}
	act := activated{kind: op.Act}
	if op.B >= 0 {
		b := r.buffer(op.B)
		act.factors = &b
	}
	if !r.dead(op.Dst, i+2) {
		dst := r.buffer(op.Dst)
		act.out = &dst
	}
	r.quantiseRows(i+1, r.rows, r.prog.Bufs[op.Dst].Width, r.buffer(op.A), r.buffer(q.Dst), &act)
	return 2
}

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
	const threads, each = 256, 4
	width := r.prog.Bufs[op.Dst].Width
	groups := min(ceilDiv(r.rows*width, threads*each), r.dev.info.MaxGroups[0])
	r.dispatch(shader{name: "elementwise", constants: []uint32{threads, kind, boolConstant(binary)}},
		pushConstants(r.rows*width, width, i, factor, 1/factor), groups, 1, 1,
		read(r.buffer(op.A)), read(b), write(r.buffer(op.Dst)), read(r.tables()), shared(r.status()))
	return 1
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
