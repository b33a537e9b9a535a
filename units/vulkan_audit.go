package units

import (
	"math/rand/v2"

	"dchain/units/vk"
)

// vulkanAuditor recomputes, every so many runs, one dispatch of the program for one row on the plain reference: the
// operations it merges, from what lies in the device's buffers before it. Of a matrix it takes one panel of outputs, of
// attention one key-value head, of a mixture one of the row's experts.
//
// The audited step is one submission like any other, with copies of what the auditor reads before and after the dispatch, and now
// and then with the chained recording of the step. Its result is handed out when they agree.
type vulkanAuditor struct {
	every uint64
	runs  uint64
	owed  bool // a run that was to be audited was thrown away
	rng   *rand.Rand
	e     *vulkanExecutable
	st    *state // one row, generic kernels
	s     scratch

	rows, row int     // of the batch, and the one audited
	panel     float64 // where the panel of matrices lies, from 0 to 1: linear operations and what follows them
	head      int     // the key-value head
	choice    int     // which of the row's experts
	between   expertScratch

	ops           []Op // that are verified
	before, after []copied
	chain         chainAudit
	lists         []*vk.Commands // of copies, for the step under way
	room          int64          // that the copies take
	copies        *vk.Buffer     // where they lie; kind Readback
}

// copied is a part of one of the device's buffers, as it is at one point of the step.
type copied struct {
	buf         *vk.Buffer
	offset, len int64
	at          int64 // in copies
}

func newVulkanAuditor(e *vulkanExecutable, every int, seed uint64) *vulkanAuditor {
	a := &vulkanAuditor{every: uint64(every), rng: rand.New(rand.NewPCG(seed, 2)), e: e, st: newState(&e.prog, &genericKernels)}
	a.st.rows = make([]Row, 1)
	a.st.resize(1)
	return a
}

// due says whether the next run is to be audited.
func (a *vulkanAuditor) due() bool {
	return (a.owed || (a.runs+1)%a.every == 0) && len(a.e.prog.Ops) > 0
}

// submit begins the step of a recording, which has been filled, and what there is to verify of it.
func (a *vulkanAuditor) submit(whole *recording, rows []Row) (*vk.Pending, error) {
	a.owed = false
	e := a.e
	cut, err := e.cutOf(whole)
	if err != nil {
		return nil, err
	}
	group := a.rng.IntN(len(cut.groups))
	a.ops = e.prog.Ops[cut.groups[group].first:cut.groups[group].end]
	a.rows, a.row, a.panel = len(rows), a.rng.IntN(len(rows)), a.rng.Float64()
	a.st.rows[0], a.st.err = rows[a.row], nil
	if e.prog.Cache != nil {
		a.head = a.rng.IntN(e.prog.Cache.Spec().KVHeads)
	}
	a.plan(whole, a.ops)
	a.chain.plan(a, whole)
	if err := a.reserve(); err != nil {
		return nil, err
	}
	before, err := a.save(a.before...)
	if err != nil {
		return nil, err
	}
	after, err := a.save(a.after...)
	if err != nil {
		return nil, err
	}
	first, err := a.chain.lists(a, whole)
	if err != nil {
		return nil, err
	}
	return e.dev.vk.SubmitAround(cut.cmds, partOf(group), before, after, first...)
}

// end verifies the step that submit has begun and that has been awaited.
func (a *vulkanAuditor) end(l *lane) error {
	a.free()
	Metrics.Audits.Add(1)
	if err := a.chain.verify(a, l); err != nil {
		return err
	}
	if l.failed() { // the run ends with that error
		return nil
	}
	a.snapshot(a.ops)
	return a.verify(a.ops)
}

// forgo is end for a step that is thrown away: the next is audited in its place.
func (a *vulkanAuditor) forgo() {
	a.free()
	a.owed = true
}

// free releases the lists of copies.
func (a *vulkanAuditor) free() {
	for _, c := range a.lists {
		c.Free()
	}
	a.lists = a.lists[:0]
}

// plan lists what snapshot and verify read.
func (a *vulkanAuditor) plan(whole *recording, ops []Op) {
	a.before, a.after, a.room = a.before[:0], a.after[:0], 0
	pos := a.st.rows[0].Pos
	for i := range ops {
		op := &ops[i]
		for _, b := range []Buf{op.A, op.B, op.Dst} {
			if b >= 0 && a.st.f32[b] != nil {
				a.take(&a.before, a.e.bufs[b], a.rowAt(b), 4*int64(len(a.st.f32[b])))
			}
		}
		switch {
		case op.Kind == OpStoreKV:
			a.takeKV(op, pos/blockPositions, pos/blockPositions+1)
			continue
		case op.Kind == OpQuantize:
			a.takeLimbs(a.limbsOf(op.Dst))
			continue
		case op.Kind == OpExperts:
			a.takeExperts(whole, op)
		case op.Kind == OpLinear:
			a.takeLimbs(a.limbsOf(op.A))
			l := op.Linear.(*vulkanLinear)
			first, end := a.panelOf(op)
			part := &l.parts[first/l.perPart]
			for limb := range l.mode.Limbs() {
				a.take(&a.after, part.buf, l.offset(part, limb, first-part.first), int64((end-first)*l.rowBytes))
			}
		case op.Kind == OpAttend:
			a.takeKV(op, 0, pos/blockPositions+1)
		}
		a.take(&a.after, a.e.bufs[op.Dst], a.rowAt(op.Dst), 4*int64(len(a.st.f32[op.Dst])))
	}
}

// take adds a part to a list.
func (a *vulkanAuditor) take(list *[]copied, buf *vk.Buffer, offset, length int64) {
	*list = append(*list, a.place(buf, offset, length))
}

// place is a part with room for its copy.
func (a *vulkanAuditor) place(buf *vk.Buffer, offset, length int64) copied {
	p := copied{buf, offset, length, a.room}
	a.room += (length + 15) / 16 * 16
	return p
}

// rowAt is where the audited row of a float buffer begins.
func (a *vulkanAuditor) rowAt(b Buf) int64 { return 4 * int64(a.row) * int64(a.e.prog.Bufs[b].Width) }

// limbsAt is a row of limbs: row of rows, of that width.
type limbsAt struct {
	buf              *vk.Buffer
	width, rows, row int
}

// limbsOf is the audited row of a Limbs buffer.
func (a *vulkanAuditor) limbsOf(b Buf) limbsAt {
	return limbsAt{a.e.bufs[b], a.e.prog.Bufs[b].Width, a.rows, a.row}
}

// plane is where a plane of the row begins, and how long it is.
func (l *limbsAt) plane(p int) (offset, length int64) {
	size := padded(l.width, vulkanPadK)
	return int64((p*l.rows + l.row) * size), int64(size)
}

// info is where the exponent of the row and whether it is wide lie.
func (l *limbsAt) info() (offset, length int64) {
	return int64(3*l.rows*padded(l.width, vulkanPadK) + 8*l.row), 8
}

// takeLimbs adds a row of limbs: its planes and then what rowInfo holds.
func (a *vulkanAuditor) takeLimbs(l limbsAt) {
	for p := range 3 {
		at, size := l.plane(p)
		a.take(&a.after, l.buf, at, size)
	}
	at, size := l.info()
	a.take(&a.after, l.buf, at, size)
}

// takeKV adds the blocks [first, end) of the audited head.
func (a *vulkanAuditor) takeKV(op *Op, first, end int) {
	buf, at, size := a.kvHead(op, first)
	a.take(&a.after, buf, at, int64(end-first)*size)
}

// panelOf is the panel of outputs that is audited, panelAt that of n values.
func (a *vulkanAuditor) panelOf(op *Op) (first, end int) { return a.panelAt(len(a.st.f32[op.Dst])) }

func (a *vulkanAuditor) panelAt(n int) (first, end int) {
	first = int(a.panel*float64(ceilDiv(n, panelRows))) * panelRows
	return first, min(first+panelRows, n)
}

// reserve makes room for the copies.
func (a *vulkanAuditor) reserve() error {
	if a.copies != nil && a.copies.Size() >= a.room {
		return nil
	}
	a.drop()
	var err error
	a.copies, err = a.e.dev.vk.NewBuffer(a.room, vk.Readback)
	return err
}

// drop frees the copies and their lists.
func (a *vulkanAuditor) drop() {
	a.free()
	if a.copies != nil {
		a.copies.Free()
		a.copies = nil
	}
}

// save is a list that copies the parts.
func (a *vulkanAuditor) save(parts ...copied) (*vk.Commands, error) {
	return a.list(func(c *vk.Commands) {
		for _, p := range parts {
			c.Copy(a.copies, p.at, p.buf, p.offset, p.len)
		}
	})
}

// restore is a list that copies a part back.
func (a *vulkanAuditor) restore(p copied) (*vk.Commands, error) {
	return a.list(func(c *vk.Commands) { c.Copy(p.buf, p.offset, a.copies, p.at, p.len) })
}

// list is one of copies.
func (a *vulkanAuditor) list(copies func(c *vk.Commands)) (*vk.Commands, error) {
	c := a.e.dev.vk.NewCommands()
	a.lists = append(a.lists, c)
	c.CopyBarrier()
	copies(c)
	c.CopyBarrier()
	return c, c.End()
}

// bytes are the copy of a part.
func (a *vulkanAuditor) bytes(p copied) []byte { return a.copies.Bytes()[p.at:][:p.len] }

// copy is what a list has of a buffer from an offset on.
func (a *vulkanAuditor) copy(list []copied, buf *vk.Buffer, offset, length int64) []byte {
	for _, p := range list {
		if p.buf == buf && p.offset <= offset && offset+length <= p.offset+p.len {
			return a.copies.Bytes()[p.at+offset-p.offset:][:length]
		}
	}
	panic("units: an audit reads what it did not plan to")
}

// floats are n values from column at of the audited row of a buffer, after the operations.
func (a *vulkanAuditor) floats(b Buf, at, n int) []float32 {
	return floats32(a.copy(a.after, a.e.bufs[b], a.rowAt(b)+4*int64(at), 4*int64(n)))
}
