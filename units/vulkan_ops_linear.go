package units

import "dchain/units/vk"

// Quantising and linear operations on a Vulkan device. A Limbs buffer is laid out as shaders/limbs.glsl says.

// limbsRowBytes is what a row takes in a Limbs buffer of this width: three planes, exponent and flag.
func limbsRowBytes(width int) int64 { return 3*int64(padded(width, vulkanPadK)) + 8 }

// rowGroup picks a workgroup for one row of n items, and how many items each invocation takes.
func (d *vulkanDevice) rowGroup(n int) (size, per int) {
	most := min(1024, d.info.MaxInvocations)
	size = min(most, padded(n, max(64, d.info.Subgroup)))
	return size, ceilDiv(n, size)
}

// quantise records OpQuantize.
func (r *recording) quantise(i int) int {
	op := &r.prog.Ops[i]
	r.quantiseRows(i, r.rows, r.prog.Bufs[op.A].Width, r.buffer(op.A), r.buffer(op.Dst))
	return 1
}

// quantiseRows makes a Limbs buffer of [rows][width] values, for operation i.
func (r *recording) quantiseRows(i, rows, width int, in, out vk.Binding) {
	words := padded(width, vulkanPadK) / 4
	size, per := r.dev.rowGroup(words)
	r.dispatch(shader{name: "quantize", constants: []uint32{uint32(size), uint32(per)}},
		pushConstants(width, words, rows, i), rows, 1, 1,
		read(in), write(out), shared(r.status()))
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

// linears records OpLinear. Neighbours that read the same rows have no barrier between them, so they run side by side.
func (r *recording) linears(i int) int {
	op := &r.prog.Ops[i]
	l := op.Linear.(*vulkanLinear)
	vectors := l.rowBytes / 16
	for p := range l.parts {
		part := &l.parts[p]
		for row := 0; row < r.rows; {
			n := r.rows - row
			if n <= r.dev.fewRows {
				s := r.dev.linearShape(vectors, n, l.mode.Limbs())
				r.linear(op, part, row, shader{"linear_rows_" + string(r.dev.tier), r.dev.info.Subgroup, []uint32{
					uint32(s.groups * r.dev.info.Subgroup), uint32(l.mode.Limbs()), boolConstant(op.Bias != nil),
					uint32(s.outputs), uint32(n), uint32(s.unroll)}}, ceilDiv(part.count, s.outputs*s.groups), 1)
				break
			}
			perN, perM := r.dev.tileShape()
			n = min(n, tileSide*perM*r.dev.info.MaxGroups[1])
			r.linear(op, part, row, shader{"linear_tile_" + string(r.dev.tier), 0, []uint32{
				0, uint32(l.mode.Limbs()), boolConstant(op.Bias != nil), uint32(perN), uint32(perM)}},
				ceilDiv(part.count, tileSide*perN), ceilDiv(n, tileSide*perM))
			row += n
		}
	}
	return 1
}

// linear dispatches a shader for one part of the matrix, from a row of the batch on.
func (r *recording) linear(op *Op, part *linearPart, row int, s shader, x, y int) {
	l := op.Linear.(*vulkanLinear)
	uses := []access{read(whole(part.buf)), read(whole(l.scaleBuf)), read(r.vector(op.Bias)),
		read(r.buffer(op.A)), read(r.buffer(op.A)), write(r.buffer(op.Dst))}
	if r.dev.products != nil {
		uses = append(uses, read(whole(r.dev.products)))
	}
	r.dispatch(s, pushConstants(l.rowBytes/16, r.rows, row, l.n, part.first, part.count, part.padded), x, y, 1, uses...)
}
