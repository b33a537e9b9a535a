package units

import "slices"

// Linear operations for a batch of one row: shaders/linear_row.comp takes the norm and the quantising before them, and the
// gated activation or the addition after them, into their dispatch.

// rowChain is the operations that one dispatch, or several side by side, of linear_row.comp compute.
type rowChain struct {
	norm, quantise int // indices; noOp for none
	input          Buf
	limbs          Buf
}

const noOp = -1

// rowChainAt is the norm and quantising at index i, or the quantising alone, if linear operations follow that can make their
// input themselves.
func (r *recording) rowChainAt(i int) (c rowChain, ok bool) {
	c = rowChain{norm: noOp, quantise: i}
	if l := r.opAt(i, OpLinear); l != nil {
		c.quantise, c.limbs, c.input = noOp, l.A, None
		width := padded(r.prog.Bufs[l.A].Width, vulkanPadK)
		return c, r.rows == 1 && 3*width+rowShared <= r.dev.info.MaxShared
	}
	if n := r.opAt(i, OpNorm); n != nil {
		if n.Groups != 1 || n.Dst == n.A {
			return c, false
		}
		c.norm, c.quantise = i, i+1
	}
	q := r.opAt(c.quantise, OpQuantize)
	if q == nil || r.rows > 1 {
		return c, false
	}
	c.input, c.limbs = q.A, q.Dst
	if c.norm != noOp {
		norm := &r.prog.Ops[c.norm]
		if q.A != norm.Dst {
			return c, false
		}
		c.input = norm.A
	}
	width := padded(r.prog.Bufs[c.input].Width, vulkanPadK)
	return c, 3*width+rowShared <= r.dev.info.MaxShared && c.takes(r, c.quantise+1)
}

// rowShared is what linear_row.comp needs of shared memory besides the limbs.
const rowShared = 64

// takes says that the operation at index i is a linear one of the chain's row, which it does not overwrite.
func (c *rowChain) takes(r *recording, i int) bool {
	op := r.opAt(i, OpLinear)
	return op != nil && op.A == c.limbs && c.keeps(r, op.Dst)
}

// keeps says that writing a buffer leaves what workgroups that begin later read.
func (c *rowChain) keeps(r *recording, b Buf) bool {
	return b != c.input && (c.norm == noOp || b != r.prog.Ops[c.norm].Dst)
}

// gated says that the operations at index i are two matrices of the chain's row and the gated activation of their products.
func (c *rowChain) gated(r *recording, i int) bool {
	act := r.opAt(i+2, OpAct)
	if !c.takes(r, i) || !c.takes(r, i+1) || act == nil || act.B < 0 || !c.keeps(r, act.Dst) {
		return false
	}
	a, b := &r.prog.Ops[i], &r.prog.Ops[i+1]
	if a.Dst == b.Dst || (act.A != a.Dst || act.B != b.Dst) && (act.A != b.Dst || act.B != a.Dst) || (a.Bias == nil) != (b.Bias == nil) {
		return false
	}
	for _, op := range []*Op{a, b} {
		if op.Dst != act.Dst && !r.dead(op.Dst, i+3) {
			return false
		}
	}
	la, lb := a.Linear.(*vulkanLinear), b.Linear.(*vulkanLinear)
	return la.n == lb.n && la.k == lb.k && la.mode == lb.mode
}

// adds says that the operation at index i adds the output of the linear operation before it to a residual row.
func (c *rowChain) adds(r *recording, i int) bool {
	add, out := r.opAt(i, OpAdd), r.prog.Ops[i-1].Dst
	return add != nil && add.Dst != out && (add.A == out && add.B == add.Dst || add.B == out && add.A == add.Dst) && c.keeps(r, add.Dst)
}

// beside is how many operations from index i on are linear ones of the chain's row that one dispatch takes side by side.
func (c *rowChain) beside(r *recording, i int) int {
	first := &r.prog.Ops[i]
	a := first.Linear.(*vulkanLinear)
	n := 1
	for ; n < maxMatrices && c.takes(r, i+n) && !c.gated(r, i+n) && !c.adds(r, i+n+1); n++ {
		op := &r.prog.Ops[i+n]
		l := op.Linear.(*vulkanLinear)
		overwrites := slices.ContainsFunc(r.prog.Ops[i:i+n], func(before Op) bool { return before.Dst == op.Dst })
		if overwrites || len(a.parts) > 1 || len(l.parts) > 1 || l.mode != a.mode || (op.Bias == nil) != (first.Bias == nil) {
			break
		}
	}
	return n
}

// maxMatrices is how many matrices linear_row.comp has room for.
const maxMatrices = 3

// linearsOfRow records the operations from index i on as far as linear_row.comp takes them; 0 is none.
func (r *recording) linearsOfRow(i int) int {
	c, ok := r.rowChainAt(i)
	if !ok {
		return 0
	}
	at, keep := c.quantise+1, c.quantise != noOp
	if !keep {
		at = i
	}
	for ; c.takes(r, at); keep = false {
		ops := r.prog.Ops[at:]
		switch {
		case c.gated(r, at):
			if ops[0].Dst == ops[2].B {
				c.dispatch(r, keep, &ops[2], nil, &ops[0], &ops[1])
			} else {
				c.dispatch(r, keep, &ops[2], nil, &ops[1], &ops[0])
			}
			at += 3
		case c.adds(r, at+1):
			c.dispatch(r, keep, nil, &ops[1], &ops[0])
			return at + 2 - i
		default:
			n := c.beside(r, at)
			matrices := make([]*Op, n)
			for j := range matrices {
				matrices[j] = &ops[j]
			}
			c.dispatch(r, keep, nil, nil, matrices...)
			at += n
		}
	}
	return at - i
}

const (
	// rowLoads is how many 16-byte loads of weights an invocation of linear_row.comp begins at a time: more take registers from
	// others.
	rowLoads = 4
	// rowRoom is the shared memory of its small workgroups, more than they need: where those of all dispatches take alike, a
	// multiprocessor has more than one dispatch at a time. A layer of 0.5B took 29 us instead of 33. Devices that give a workgroup
	// more than 48 KiB have little else.
	rowRoom = 43200
)

// dispatch records matrices side by side: one followed by add, or up and gate with act for a gated activation, or any with
// neither.
func (c *rowChain) dispatch(r *recording, keep bool, act, add *Op, matrices ...*Op) {
	d, op := r.dev, matrices[0]
	l := op.Linear.(*vulkanLinear)
	vectors, sets, limbs := l.rowBytes/16, 1, l.mode.Limbs()
	if act != nil {
		sets = 2
	}
	// The size does not depend on the number of outputs, so that a gate tries the very shaders of a matrix on a part of it.
	threads, groups, room := max(256, d.info.Subgroup), 2*rowGroups, 0
	if vectors > 128 {
		threads = min(1024, d.info.MaxInvocations)
	}
	if threads == 1024 {
		groups = rowGroups
	} else if rowRoom+rowShared <= d.info.MaxShared && d.info.MaxShared < 64<<10 {
		room = rowRoom
	}
	unroll := max(1, min(rowLoads/(sets*limbs), ceilDiv(vectors, d.info.Subgroup)))
	if d.plain {
		groups, unroll = 4, 1
	}
	none := read(r.tables())
	out := write(r.buffer(op.Dst))
	if act != nil {
		out = write(r.buffer(act.Dst))
	}
	// What the shader declares for writing and does not write is its output: a buffer that it shares with other dispatches
	// would look like one that they write at the same time.
	residual, normed, kept := out, out, out
	k := r.prog.Bufs[c.limbs].Width
	s := shader{"linear_row_" + d.units(), d.info.Subgroup, []uint32{uint32(threads), uint32(limbs), boolConstant(op.Bias != nil),
		uint32(unroll), uint32(ceilDiv(4*vectors, threads)), uint32(vectors),
		0, 0, 0, 0, 0, 0, boolConstant(keep), 0, 1, boolConstant(k%4 == 0), uint32(room / 16), uint32(d.info.Subgroup)}}
	input, weight, bias, normOp, eps := none, none, none, 0, float32(0)
	if c.input != None {
		input = read(r.buffer(c.input))
	}
	if c.norm != noOp {
		norm := &r.prog.Ops[c.norm]
		weight, bias, normOp, eps = read(r.vector(norm.Weight)), read(r.vector(norm.Bias)), c.norm, norm.Eps
		s.constants[6], s.constants[7], s.constants[8] = 1, boolConstant(norm.Norm == LayerNorm), boolConstant(norm.Bias != nil)
		if keep {
			normed = write(r.buffer(norm.Dst))
		}
	}
	switch {
	case keep:
		kept = write(r.buffer(c.limbs))
	case c.quantise == noOp:
		s.constants[13] = 1
		kept = read(r.buffer(c.limbs))
	}
	if act != nil {
		s.constants[9], s.constants[10] = 1, uint32(act.Act)
	} else {
		s.constants[14] = uint32(len(matrices))
	}
	if add != nil {
		s.constants[11] = 1
		residual = write(r.buffer(add.Dst))
	}
	for i := range l.parts {
		var uses []access
		var counts, padded [maxMatrices]int
		outputs := 0
		for m := range maxMatrices {
			if m >= len(matrices) {
				uses = append(uses, none, none, none, out)
				continue
			}
			op := matrices[m]
			l := op.Linear.(*vulkanLinear)
			to := out
			if act == nil {
				to = write(r.buffer(op.Dst))
			}
			uses = append(uses, read(whole(l.parts[i].buf)), read(whole(l.scaleBuf)), read(r.vector(op.Bias)), to)
			counts[m], padded[m] = l.parts[i].count, l.parts[i].padded
			outputs += l.parts[i].count
		}
		if act != nil {
			outputs = counts[0]
		}
		each := threads / d.info.Subgroup // outputs of a workgroup at a time
		rounds := ceilDiv(outputs, each*groups)
		uses = append(uses, input, weight, bias, residual, none, shared(r.status()), normed, kept)
		if d.products != nil {
			uses = append(uses, read(whole(d.products)))
		}
		r.chained(s, pushConstants(k, l.parts[i].first, counts[0], counts[1], counts[2], padded[0], padded[1], padded[2], c.quantise, normOp, eps, 1/float32(k)),
			ceilDiv(outputs, each*rounds), 1, 1, uses...)
	}
}
