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
	return info.MaxShared >= matrixShared && info.Subgroup <= matrixSubgroup && slices.Contains(info.Matrices, matrixUse)
}

const (
	matrixShared = 48 << 10 // bytes of shared memory that linear_matrix.comp uses at most
	// matrixSubgroup is the largest subgroup of which the tiles of all plans have something to load for each invocation.
	matrixSubgroup = 64
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

// matrixPlan is what a workgroup of linear_matrix.comp computes and how.
type matrixPlan struct {
	rows           int // the largest batch
	warpsM, warpsN int // subgroups by rows and by outputs
	tilesM, tilesN int // matrices of a subgroup, for each limb of the rows
	step           int // vectors of 16 inputs at a time
	buffers        int // of a step in shared memory
	groups         int // workgroups for which the inputs are shared out, if the outputs make fewer
	band           int // tiles of rows that pass over the outputs together
}

// matrixPlans are the plans by size of batch. A large one has many matrices, to use each value read often. A small one
// waits for the memory: long steps keep more of it on its way, and the inputs are shared out where the outputs make too few
// workgroups. A plan does not depend on the number of outputs: see linearShape. Tests replace them.
var matrixPlans = []matrixPlan{
	{16, 1, 4, 1, 1, 8, 2, 264, 1},
	{32, 2, 2, 1, 2, 8, 2, 264, 1},
	{64, 2, 2, 2, 2, 8, 1, 264, 1},
	{maxVulkanRows, 2, 2, 2, 4, 4, 2, 264, 8},
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

func (p *matrixPlan) tileRows() int { return 16 * p.warpsM * p.tilesM }

func (p *matrixPlan) tileOutputs() int { return 16 * p.warpsN * p.tilesN }

// parts is how many parts the inputs are shared out in, for that many tiles of outputs and rows and vectors of inputs.
func (p *matrixPlan) parts(tiles, vectors int) int {
	steps := ceilDiv(vectors, p.step)
	parts := min(max(1, p.groups/tiles), steps)
	return ceilDiv(steps, ceilDiv(steps, parts)) // none without work
}

// linearMatrices records linear operations of the same rows side by side: linear_matrix.comp, then linear_finish.comp where the
// inputs are shared out.
func (r *recording) linearMatrices(ops []Op) {
	plan := matrixPlanOf(r.rows)
	y := ceilDiv(r.rows, plan.tileRows())
	tiles := 0
	for i := range ops {
		for _, part := range ops[i].Linear.(*vulkanLinear).parts {
			tiles += y * ceilDiv(part.count, plan.tileOutputs())
		}
	}
	for _, finish := range []bool{false, true} {
		for i := range ops {
			l := ops[i].Linear.(*vulkanLinear)
			for p := range l.parts {
				parts := r.matrixParts(plan, tiles, l, &l.parts[p])
				if !finish || parts > 1 {
					r.linearMatrix(&ops[i], &l.parts[p], plan, parts, finish)
				}
			}
		}
	}
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

// linearMatrix dispatches one of the two shaders for a part of a matrix.
func (r *recording) linearMatrix(op *Op, part *linearPart, plan *matrixPlan, parts int, finish bool) {
	d, l := r.dev, op.Linear.(*vulkanLinear)
	constants := []uint32{64, uint32(l.mode.Limbs()), boolConstant(op.Bias != nil)}
	push := []any{l.rowBytes / 16, r.rows, 0, l.n, part.first, part.count, part.padded}
	out := r.buffer(op.Dst)
	sums := r.scratchBuf("unused", 16) // the shader declares it for writing
	if parts > 1 {
		n := r.partialBytes(l, part, parts)
		sums = r.scratchBuf(fmt.Sprintf("sums %d %d %d", op.Dst, part.first, n), n)
	}
	uses := []access{read(whole(part.buf)), read(whole(l.scaleBuf)), read(r.vector(op.Bias)), read(r.buffer(op.A)), read(r.buffer(op.A))}
	if finish {
		r.dispatch(shader{"linear_finish", 0, constants}, pushConstants(append(push, parts)...), ceilDiv(part.count, 4*64), r.rows, 1,
			append(uses, write(out), read(sums))...)
		return
	}
	if parts > 1 {
		uses = append(uses, shared(out), write(sums)) // of the output nothing is written
	} else {
		uses = append(uses, write(out), shared(sums))
	}
	threads := plan.warpsM * plan.warpsN * d.info.Subgroup
	constants[0] = uint32(threads)
	for _, v := range []int{plan.warpsM, plan.warpsN, plan.tilesM, plan.tilesN, threads, plan.step, plan.buffers} {
		constants = append(constants, uint32(v))
	}
	name := "linear_matrix"
	if d.tiled {
		name += "_tiled"
	}
	r.dispatch(shader{name, d.info.Subgroup, append(constants, boolConstant(parts > 1), uint32(d.info.Subgroup), uint32(plan.band))}, pushConstants(push...),
		ceilDiv(part.count, plan.tileOutputs()), ceilDiv(r.rows, plan.tileRows()), parts, uses...)
}
