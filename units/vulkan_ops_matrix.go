package units

import (
	"fmt"
	"slices"

	"dchain/units/vk"
)

// Linear operations for many rows on cooperative matrices.

// matrixUse is the shape of cooperative matrices that shaders use.
var matrixUse = vk.MatrixShape{M: 16, N: 16, K: 32}

// hasMatrices says that a device has what linear_matrix.comp needs.
func hasMatrices(info *vk.DeviceInfo) bool {
	return info.MaxShared >= matrixShared && info.Subgroup == matrixSubgroup && slices.Contains(info.Matrices, matrixUse)
}

const (
	matrixShared   = 48 << 10 // bytes of shared memory that linear_matrix.comp uses at most
	matrixSubgroup = 32       // the size of subgroups that share out matrices as matrix.glsl has it
	// matrixBatch is the smallest batch for which matrices pay: they are 16 rows high, two limbs each.
	matrixBatch = 9
)

// useMatrices turns to linear_matrix.comp for batches of matrixBatch rows and more.
func (d *vulkanDevice) useMatrices() {
	d.matrix, d.steps = true, nil
	for _, p := range matrixPlans[:len(matrixPlans)-1] {
		d.steps = append(d.steps, p.rows+1)
	}
}

// linearTile is what a workgroup of linear_matrix.comp computes and how. Its invocations share out the vectors of a step, those of
// each row and those of 16 rows, without a rest.
type linearTile struct {
	warpsM, warpsN int // subgroups by rows and by outputs
	tilesM, tilesN int // matrices of a subgroup, for each limb of the rows
	step           int // vectors of 16 inputs at a time
}

func (t *linearTile) rows() int { return 16 * t.warpsM * t.tilesM }

func (t *linearTile) outputs() int { return 16 * t.warpsN * t.tilesN }

// matrixPlan is how a batch is computed.
type matrixPlan struct {
	rows   int        // the largest batch
	whole  linearTile // where a workgroup takes all inputs
	parted linearTile // where the inputs are shared out
	groups int        // workgroups for which they are, if the outputs make fewer
	band   int        // tiles of rows that pass over the outputs together
}

// matrixPlans are the plans by size of batch. A tile has as many matrices as the registers of two workgroups of a multiprocessor
// hold, to use each value read often, and steps are as long as shared memory allows, to have more of the memory on its way; 112
// outputs are those of which the models that are measured make nearly as many tiles as run at a time. Where the inputs are
// shared out, larger tiles have more sums to write and add up. A plan does not depend on the number of outputs: see
// linearShape. Tests replace them.
var matrixPlans = []matrixPlan{
	{16, linearTile{1, 4, 1, 2, 16}, linearTile{1, 4, 1, 2, 16}, 264, 1},
	{32, linearTile{2, 2, 1, 4, 8}, linearTile{2, 2, 1, 4, 8}, 264, 1},
	{64, linearTile{4, 1, 1, 7, 8}, linearTile{2, 2, 2, 2, 8}, 264, 1},
	{maxVulkanRows, linearTile{2, 2, 2, 4, 8}, linearTile{2, 2, 2, 4, 8}, 264, 8},
}

// matrixPlanOf is the plan for a batch.
func matrixPlanOf(rows int) *matrixPlan {
	for i := range matrixPlans {
		if rows <= matrixPlans[i].rows {
			return &matrixPlans[i]
		}
	}
	panic(fmt.Sprintf("units: no plan for %d rows", rows))
}

// partsCost is as many steps as take the time that sums of parts take to be written and added up.
const partsCost = 4

// parts is how many parts the inputs are shared out in, for that many tiles of outputs and rows and vectors of inputs.
func (p *matrixPlan) parts(tiles, vectors int) int {
	steps := ceilDiv(vectors, p.parted.step)
	each := ceilDiv(steps, min(max(1, p.groups/tiles), steps))
	if steps-each <= partsCost {
		return 1
	}
	return ceilDiv(steps, each) // none without work
}

// linearMatrices records the n linear operations from index i on, of the same rows, side by side: linear_matrix.comp, then
// linear_finish.comp where the inputs are shared out, or what follows if it takes the sums. It says how many operations it has
// recorded.
func (r *recording) linearMatrices(i, n int) int {
	ops := r.prog.Ops[i : i+n]
	plan := matrixPlanOf(r.rows)
	y := ceilDiv(r.rows, plan.parted.rows())
	tiles := 0
	for j := range ops {
		for _, part := range ops[j].Linear.(*vulkanLinear).parts {
			tiles += y * ceilDiv(part.count, plan.parted.outputs())
		}
	}
	var sums []linearSums
	for j := range ops {
		l := ops[j].Linear.(*vulkanLinear)
		for p := range l.parts {
			s := linearSums{op: &ops[j], part: &l.parts[p], parts: r.matrixParts(plan, tiles, l, &l.parts[p])}
			r.linearMatrix(plan, &s)
			if s.parts > 1 {
				sums = append(sums, s)
			}
		}
	}
	if merged := r.takesSums(i+n, sums); merged > 0 {
		return n + merged
	}
	for j := range sums {
		r.finish(&sums[j])
	}
	return n
}

// linearSums is a part of a matrix of an operation, the inputs of which are shared out in so many parts, with their sums.
type linearSums struct {
	op      *Op
	part    *linearPart
	parts   int
	partial vk.Binding
}

// takesSums records the operations from index i on if they take the sums of whole matrices themselves, and says how many that are.
func (r *recording) takesSums(i int, sums []linearSums) int {
	for _, s := range sums {
		if len(s.op.Linear.(*vulkanLinear).parts) > 1 {
			return 0
		}
	}
	switch len(sums) {
	case 1:
		return r.normOfOutput(i, &sums[0])
	case 3:
		return r.headsOfOutputs(i, sums)
	}
	return 0
}

// matrixParts is parts of the plan, so many that their sums fit a binding.
func (r *recording) matrixParts(plan *matrixPlan, tiles int, l *vulkanLinear, part *linearPart) int {
	most := r.dev.info.MaxRange / r.partialBytes(l, part, 1)
	if most < 2 {
		return 1
	}
	return min(plan.parts(tiles, l.rowBytes/16), int(most))
}

// partialBytes is what the sums of that many parts of the inputs take.
func (r *recording) partialBytes(l *vulkanLinear, part *linearPart, parts int) int64 {
	return int64(parts*l.mode.Limbs()*3*4) * int64(r.rows) * int64(part.padded)
}

// constants and linearPush are the constants of linear.glsl, for a workgroup of that size, and its push constants.
func (s *linearSums) constants(threads int) []uint32 {
	return []uint32{uint32(threads), uint32(s.op.Linear.(*vulkanLinear).mode.Limbs()), boolConstant(s.op.Bias != nil)}
}

func (r *recording) linearPush(s *linearSums) []any {
	l := s.op.Linear.(*vulkanLinear)
	return []any{l.rowBytes / 16, r.rows, 0, l.n, s.part.first, s.part.count, s.part.padded}
}

// linearUses are the first bindings of linear.glsl.
func (r *recording) linearUses(s *linearSums) []access {
	l := s.op.Linear.(*vulkanLinear)
	return []access{read(whole(s.part.buf)), read(whole(l.scaleBuf)), read(r.vector(s.op.Bias)), read(r.buffer(s.op.A)), read(r.buffer(s.op.A))}
}

// linearMatrix dispatches linear_matrix.comp; where the inputs are shared out it sets s.partial.
func (r *recording) linearMatrix(plan *matrixPlan, s *linearSums) {
	d, out, tile := r.dev, r.buffer(s.op.Dst), plan.whole
	outs := []access{write(out), shared(r.scratchBuf("unused", 16))} // which the shader declares for writing
	if s.parts > 1 {
		tile = plan.parted
		n := r.partialBytes(s.op.Linear.(*vulkanLinear), s.part, s.parts)
		s.partial = r.scratchBuf(fmt.Sprintf("sums %d %d %d", s.op.Dst, s.part.first, n), n)
		outs = []access{shared(out), write(s.partial)} // of the output nothing is written
	}
	threads := tile.warpsM * tile.warpsN * d.info.Subgroup
	constants := s.constants(threads)
	for _, v := range []int{tile.warpsM, tile.warpsN, tile.tilesM, tile.tilesN, threads, tile.step} {
		constants = append(constants, uint32(v))
	}
	name := "linear_matrix"
	if d.tiled {
		name += "_tiled"
	}
	r.dispatch(shader{name, d.info.Subgroup, append(constants, boolConstant(s.parts > 1), uint32(d.info.Subgroup), uint32(plan.band))},
		pushConstants(r.linearPush(s)...), ceilDiv(s.part.count, tile.outputs()), ceilDiv(r.rows, tile.rows()), s.parts,
		append(r.linearUses(s), outs...)...)
}

// finish dispatches linear_finish.comp.
func (r *recording) finish(s *linearSums) {
	const threads, outputs = 64, 4
	r.dispatch(shader{"linear_finish", 0, s.constants(threads)}, pushConstants(append(r.linearPush(s), s.parts)...),
		ceilDiv(s.part.count, outputs*threads), r.rows, 1, append(r.linearUses(s), write(r.buffer(s.op.Dst)), read(s.partial))...)
}
