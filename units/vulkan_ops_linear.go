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

// quantise records OpQuantize, or all that linear_row.comp takes.
func (r *recording) quantise(i int) int {
	if n := r.linearsOfRow(i); n > 0 {
		return n
	}
	op := &r.prog.Ops[i]
	r.quantiseRows(i, r.rows, r.prog.Bufs[op.A].Width, r.buffer(op.A), r.buffer(op.Dst))
	return 1
}

// quantiseRows makes a Limbs buffer of [rows][width] values, for operation i.
func (r *recording) quantiseRows(i, rows, width int, in, out vk.Binding) {
	words := padded(width, vulkanPadK) / 4
	size, per := r.dev.rowGroup(words)
	r.dispatch(shader{name: "quantize", constants: []uint32{uint32(size), uint32(per), boolConstant(width%4 == 0)}},
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

// matrixOf picks the shape of cooperative matrices that linear_matrix.comp uses, the widest of 16 rows and 32 inputs.
func matrixOf(info *vk.DeviceInfo) (best vk.MatrixShape, ok bool) {
	if info.MaxShared < matrixShared {
		return best, false
	}
	for _, m := range info.Matrices {
		if m.M == 16 && m.K == 32 && (m.N == 8 || m.N == 16) && m.N > best.N {
			best, ok = m, true
		}
	}
	return best, ok
}

const (
	matrixWarps  = 2        // subgroups of linear_matrix.comp each way
	matrixShared = 48 << 10 // bytes of shared memory that it uses at most
	// matrixBatch is the smallest batch for which matrices pay: they are 16 rows high, two limbs each.
	matrixBatch = 9
)

// matrixShape is how many matrices a subgroup of linear_matrix.comp has each way, and the vectors of 16 inputs of a step: many
// matrices for a large batch, to use each value read often; few outputs and long steps for a small one, so that there are
// workgroups enough, each with loads enough on their way, to read the weights. It does not depend on the number of outputs:
// see linearShape.
func (d *vulkanDevice) matrixShape(rows int) (tilesM, tilesN, step int) {
	wide := 16 / d.matrix.N
	switch {
	case rows <= 32:
		return 1, wide, 8
	case rows <= 64:
		return 2, wide, 8
	case rows <= 256:
		return 2, 2 * wide, 4
	}
	return 2, 4 * wide, 4
}

func (d *vulkanDevice) batchSteps() []int { return d.steps }

// linears records OpLinear. Neighbours that read the same rows have no barrier between them, so they run side by side.
func (r *recording) linears(i int) int {
	if n := r.linearsOfRow(i); n > 0 {
		return n
	}
	op := &r.prog.Ops[i]
	l := op.Linear.(*vulkanLinear)
	for p := range l.parts {
		r.linearPart(op, &l.parts[p])
	}
	return 1
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
		r.linear(op, part, 0, sh, ceilDiv(part.count, s.outputs*s.groups), 1)
		return
	}
	perN, perM := d.tileShape()
	sh := shader{"linear_tile_" + d.units(), 0, constants(0, perN, perM)}
	tileN, tileM := tileSide*perN, tileSide*perM
	if d.matrix.M > 0 && r.rows >= matrixBatch {
		m, n, step := d.matrixShape(r.rows)
		threads := matrixWarps * matrixWarps * d.info.Subgroup
		sh = shader{"linear_matrix", d.info.Subgroup, constants(threads, d.matrix.M, d.matrix.N, d.matrix.K, matrixWarps, matrixWarps, m, n, threads, step)}
		tileN, tileM = d.matrix.N*n*matrixWarps, d.matrix.M*m*matrixWarps
	}
	most := tileM * d.info.MaxGroups[1]
	for row := 0; row < r.rows; row += most {
		r.linear(op, part, row, sh, ceilDiv(part.count, tileN), ceilDiv(min(most, r.rows-row), tileM))
	}
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
