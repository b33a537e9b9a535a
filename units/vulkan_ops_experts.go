package units

import (
	"fmt"

	"dchain/units/vk"
)

// Mixtures of experts on a Vulkan device: shaders/experts.glsl describes slots and their list.

// expertRows is how many rows OpExperts takes at once: a slot's values fit a binding and its number the status word.
func (e *vulkanExecutable) expertRows(op *Op) int {
	inter, _ := op.Experts[0].Gate.Shape()
	slot := max(limbsRowBytes(inter), 4*int64(inter), 4*int64(e.prog.Bufs[op.Dst].Width))
	return int(min(e.dev.info.MaxRange/slot, maxVulkanRows) / int64(op.TopK))
}

// expertScratch is what lies between the dispatches of a mixture: values [slots][inner] of gate, whose place the product with up
// takes, and of up; the product as limbs; what the last matrix gives, [slots][width]; and the list of experts.glsl.
type expertScratch struct {
	gate, up, hidden, down, list, next vk.Binding
}

func (r *recording) expertScratch(op *Op) expertScratch {
	slots, count := int64(r.rows*op.TopK), int64(len(op.Experts))
	inter, _ := op.Experts[0].Gate.Shape()
	width := int64(r.prog.Bufs[op.Dst].Width)
	scratch := func(name string, bytes int64) vk.Binding {
		return r.scratchBuf(fmt.Sprintf("experts %s %d", name, bytes), bytes)
	}
	values := 4 * slots * int64(inter)
	return expertScratch{
		gate: scratch("gate", values), up: scratch("up", values), hidden: scratch("hidden", slots*limbsRowBytes(inter)),
		down: scratch("down", 4*slots*width), list: scratch("list", 4*(count+1+slots)), next: scratch("next", 4*count),
	}
}

// experts is OpExperts. The dispatches of all experts run side by side: each writes the rows of its own slots.
func (r *recording) experts(i int) int {
	op := &r.prog.Ops[i]
	slots, count := r.rows*op.TopK, len(op.Experts)
	inter, _ := op.Experts[0].Gate.Shape()
	width := r.prog.Bufs[op.Dst].Width
	s := r.expertScratch(op)
	gate, up, hidden, down, list, next := s.gate, s.up, s.hidden, s.down, s.list, s.next

	r.dispatch(shader{name: "experts_assign"}, pushConstants(r.rows, op.TopK, count), 1, 1, 1,
		read(r.buffer(op.B)), write(list), write(next))
	r.barrier()
	for e := range op.Experts {
		r.expert(op, e, op.Experts[e].Gate, false, r.buffer(op.A), gate, list)
		r.expert(op, e, op.Experts[e].Up, false, r.buffer(op.A), up, list)
	}
	r.barrier()
	r.quantiseRows(i, slots, inter, gate, hidden, &activated{kind: op.Act, factors: &up, out: &gate}) // the product is kept for audits
	r.barrier()
	for e := range op.Experts {
		r.expert(op, e, op.Experts[e].Down, true, hidden, down, list)
	}
	r.barrier()
	r.dispatch(shader{name: "experts_sum"}, pushConstants(width, op.TopK), ceilDiv(width, 64), r.rows, 1,
		read(r.buffer(op.B)), read(down), write(r.buffer(op.Dst)))
	return 1
}

// barrier orders everything so far before what follows, for dispatches that declare less than they use.
func (r *recording) barrier() {
	if r.compile != nil {
		return
	}
	r.cmds.Barrier()
	r.pending = r.pending[:0]
}

// expert applies a matrix of expert e to its slots; bySlot says that the input has a row for each of them. What it writes
// is not declared, so that the experts do not wait for one another.
func (r *recording) expert(op *Op, e int, w Linear, bySlot bool, in, out, list vk.Binding) {
	l := w.(*vulkanLinear)
	rows := r.rows
	if bySlot {
		rows *= op.TopK
	}
	groups := max(1, 128/r.dev.info.Subgroup)
	s := shader{r.units("experts_linear"), r.dev.info.Subgroup, []uint32{uint32(groups * r.dev.info.Subgroup),
		uint32(l.mode.Limbs()), 0, boolConstant(bySlot)}}
	products := r.tables()
	if r.dev.tier == VulkanLUT {
		products = whole(r.dev.products)
	}
	for p := range l.parts {
		part := &l.parts[p]
		r.dispatch(s, pushConstants(l.rowBytes/16, rows, 0, l.n, part.first, part.count, part.padded, op.TopK, len(op.Experts), e),
			ceilDiv(part.count, groups), 1, 1,
			read(whole(part.buf)), read(whole(l.scaleBuf)), read(r.tables()), read(in), read(in), shared(out), shared(products), read(list))
	}
}
