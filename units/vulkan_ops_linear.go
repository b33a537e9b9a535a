package units

import (
	"slices"

	"dchain/units/vk"
)

// Quantising and linear operations on a Vulkan device. A Limbs buffer is laid out as shaders/limbs.glsl says.

// limbsRowBytes is what a row takes in a Limbs buffer of this width: three planes, exponent and flag.
func limbsRowBytes(width int) int64 { return 3*int64(padded(width, vulkanPadK)) + 8 }

// rowGroup picks a workgroup for one row of n items, and how many items each invocation takes.
func (d *vulkanDevice) rowGroup(n int) (size, per int) {
	most := min(1024, d.info.MaxInvocations)
	size = min(most, padded(n, max(64, d.info.Subgroup)))
	return size, ceilDiv(n, size)
}

// manyThreads is the largest workgroup for a row with an activation of many that keep a device busy: others load while it computes.
const manyThreads = 512

// quantise records OpQuantize, or all that linear_row.comp takes.
func (r *recording) quantise(i int) int {
	if n := r.linearsOfRow(i); n > 0 {
		return n
	}
	op := &r.prog.Ops[i]
	r.quantiseRows(i, r.rows, r.prog.Bufs[op.A].Width, r.buffer(op.A), r.buffer(op.Dst), nil)
	return 1
}

// activated is an activation before the quantising of its output.
type activated struct {
	kind    ActKind
	factors *vk.Binding // of a gated one, else nil
	out     *vk.Binding // nil if only the limbs are kept
}

// quantiseRows makes a Limbs buffer of [rows][width] values, or of their activation, if act is not nil, for operation i.
func (r *recording) quantiseRows(i, rows, width int, in, out vk.Binding, act *activated) {
	words := padded(width, vulkanPadK) / 4
	size, per := r.dev.rowGroup(words)
	if rows > manyRows && size > manyThreads && act != nil {
		size, per = manyThreads, ceilDiv(words, manyThreads)
	}
	s := shader{name: "quantize", constants: []uint32{uint32(size), uint32(per), boolConstant(width%4 == 0), 0, 0, 0, 0, boolConstant(rows > manyRows)}}
	factors, values := read(r.tables()), write(out) // what is not written is the output, see linear_row.comp's dispatch
	if act != nil {
		s.constants[3], s.constants[4] = 1, uint32(act.kind)
		if act.factors != nil {
			s.constants[5], factors = 1, read(*act.factors)
		}
		if act.out != nil {
			s.constants[6], values = 1, write(*act.out)
		}
	}
	r.dispatch(s, pushConstants(width, words, rows, i), rows, 1, 1,
		read(in), write(out), shared(r.status()), read(r.tables()), factors, values)
}

// linearShape is how the shader for few rows shares out a matrix.
type linearShape struct {
	outputs int // of a subgroup
	unroll  int // vectors of each output in flight
	groups  int // subgroups of a workgroup
}

const (
	// loadsInFlight is how many 16-byte loads of weights an invocation begins before it uses the first.
	loadsInFlight = 8
	tileSide      = 16 // invocations of linear_tile.comp each way
)

// linearShape picks the shape for vectors of 16 inputs and rows of the batch. It does not depend on the number of outputs, so
// that a gate tries the very shaders of a matrix on a part of it.
func (d *vulkanDevice) linearShape(vectors, rows, limbs int) linearShape {
	s := linearShape{outputs: 1, unroll: 1, groups: max(1, 128/d.info.Subgroup)}
	if d.plain {
		return s
	}
	if 2*rows <= d.fewRows {
		s.outputs = 2
	}
	s.unroll = max(1, min(loadsInFlight/(s.outputs*limbs), ceilDiv(vectors, d.info.Subgroup)))
	return s
}

// tileShape is how many outputs and rows an invocation of linear_tile.comp computes.
func (d *vulkanDevice) tileShape() (outputs, rows int) {
	if d.plain {
		return 1, 1
	}
	return 4, 2
}

// batchSteps are those of linear operations, and that of norms.
func (d *vulkanDevice) batchSteps() []int {
	if slices.Contains(d.steps, manyRows+1) {
		return d.steps
	}
	return append(slices.Clone(d.steps), manyRows+1)
}

// linears records OpLinear: neighbours that read the same rows run side by side.
func (r *recording) linears(i int) int {
	if n := r.linearsOfRow(i); n > 0 {
		return n
	}
	n := 1
	for r.sideBySide(i, n) {
		n++
	}
	ops := r.prog.Ops[i : i+n]
	if r.dev.matrix && r.rows >= matrixBatch {
		return r.linearMatrices(i, n)
	}
	for j := range ops {
		l := ops[j].Linear.(*vulkanLinear)
		for p := range l.parts {
			r.linearPart(&ops[j], &l.parts[p])
		}
	}
	return n
}

// sideBySide says that operation i+n is a linear one too, of the rows of the n operations from i on, none of which it
// overwrites nor is overwritten by.
func (r *recording) sideBySide(i, n int) bool {
	next := r.opAt(i+n, OpLinear)
	if next == nil || next.A != r.prog.Ops[i].A {
		return false
	}
	for j := range n {
		if r.prog.Ops[i+j].Dst == next.Dst {
			return false
		}
	}
	return true
}

// linearPart records the shader for the size of the batch.
func (r *recording) linearPart(op *Op, part *linearPart) {
	d, l := r.dev, op.Linear.(*vulkanLinear)
	// constants are those of linear.glsl, then the shader's own.
	constants := func(size int, own ...int) []uint32 {
		c := []uint32{uint32(size), uint32(l.mode.Limbs()), boolConstant(op.Bias != nil)}
		for _, v := range own {
			c = append(c, uint32(v))
		}
		return c
	}
	if r.rows <= d.fewRows {
		rows := 1 // a power of two, so that there are few shaders to gate
		for rows < r.rows {
			rows *= 2
		}
		s := d.linearShape(l.rowBytes/16, rows, l.mode.Limbs())
		sh := shader{"linear_rows_" + d.units(), d.info.Subgroup, constants(s.groups*d.info.Subgroup, s.outputs, rows, s.unroll)}
		r.linear(op, part, 0, sh, s.outputs*s.groups, 1)
		return
	}
	perN, perM := d.tileShape()
	sh := shader{"linear_tile_" + d.units(), 0, constants(0, perN, perM)}
	tileN, tileM := tileSide*perN, tileSide*perM
	most := tileM * d.info.MaxGroups[1]
	for row := 0; row < r.rows; row += most {
		r.linear(op, part, row, sh, tileN, ceilDiv(min(most, r.rows-row), tileM))
	}
}

// linear dispatches a shader for one part of the matrix, from a row of the batch on, whose workgroups compute each outputs: for all
// outputs, or, where the device allows too few workgroups, for runs of them.
func (r *recording) linear(op *Op, part *linearPart, row int, s shader, each, y int) {
	l := op.Linear.(*vulkanLinear)
	most := max(1, r.dev.info.MaxGroups[0]*each/rowsPerPart) * rowsPerPart
	for n := 0; n < part.count; n += most {
		count := min(most, part.count-n)
		weights := vk.Binding{Buffer: part.buf, Offset: int64(n) * int64(l.rowBytes)}
		uses := []access{read(weights), read(whole(l.scaleBuf)), read(r.vector(op.Bias)),
			read(r.buffer(op.A)), read(r.buffer(op.A)), write(r.buffer(op.Dst))}
		if r.dev.products != nil {
			uses = append(uses, read(whole(r.dev.products)))
		}
		r.dispatch(s, pushConstants(l.rowBytes/16, r.rows, row, l.n, part.first+n, count, part.padded), ceilDiv(count, each), y, 1, uses...)
	}
}
