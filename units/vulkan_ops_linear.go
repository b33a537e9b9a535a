package units

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
	width := r.prog.Bufs[op.A].Width
	words := padded(width, vulkanPadK) / 4
	size, per := r.dev.rowGroup(words)
	r.dispatch(shader{name: "quantize", constants: []uint32{uint32(size), uint32(per)}},
		pushConstants(width, words, r.rows, i), r.rows, 1, 1,
		read(r.buffer(op.A)), write(r.buffer(op.Dst)), shared(r.status()))
	return 1
}

// linearShape is how the shader for few rows shares out a matrix.
type linearShape struct {
	outputs int // of a subgroup
	unroll  int // vectors of each output in flight
	groups  int // subgroups of a workgroup
}

const (
	// fewRows is the largest batch that reads the weights once in registers.
	fewRows = 8
	// loadsInFlight is how many 16-byte loads of weights an invocation begins before it uses the first.
	loadsInFlight = 8
	// manyOutputs is the number of subgroups that keep a large device busy; a matrix with more outputs gives each more.
	manyOutputs = 4096
	tileOutputs = 64 // of linear_tile.comp
	tileRows    = 32
)

// linearShape picks the shape for a matrix of n outputs, vectors of 16 inputs, and rows of the batch.
func (d *vulkanDevice) linearShape(n, vectors, rows, limbs int) linearShape {
	s := linearShape{outputs: 1, groups: max(1, 128/d.info.Subgroup)}
	for s.outputs < 4 && n >= 2*manyOutputs*s.outputs && 2*s.outputs*rows <= min(d.info.Subgroup, fewRows) {
		s.outputs *= 2
	}
	s.unroll = max(1, min(loadsInFlight/(s.outputs*limbs), ceilDiv(vectors, d.info.Subgroup)))
	return s
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
			if n <= min(fewRows, r.dev.info.Subgroup) {
				s := r.dev.linearShape(part.count, vectors, n, l.mode.Limbs())
				r.linear(op, part, row, shader{"linear_rows_" + string(r.dev.tier), r.dev.info.Subgroup, []uint32{
					uint32(s.groups * r.dev.info.Subgroup), uint32(l.mode.Limbs()), boolConstant(op.Bias != nil),
					uint32(s.outputs), uint32(n), uint32(s.unroll)}}, ceilDiv(part.count, s.outputs*s.groups), 1)
				break
			}
			n = min(n, tileRows*r.dev.info.MaxGroups[1])
			r.linear(op, part, row, shader{"linear_tile_" + string(r.dev.tier), 0, []uint32{
				0, uint32(l.mode.Limbs()), boolConstant(op.Bias != nil)}}, ceilDiv(part.count, tileOutputs), ceilDiv(n, tileRows))
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
