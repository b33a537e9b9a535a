package units

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"unsafe"

	"dchain/units/vk"
)

// vulkanAuditor recomputes, every so many runs, one dispatch of the program for one row on the plain reference: the
// operations it merges, from what lies in the device's buffers before it. Of a matrix it takes one panel of outputs, of
// attention one key-value head, of a mixture one of the row's experts.
//
// The audited step is one submission like any other, with copies of what the auditor reads before and after the dispatch. Its
// result is handed out when they agree.
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

	ops           []Op            // that are verified
	lists         [2]*vk.Commands // of the copies before and after them
	before, after []copied
	room          int64      // that the copies take
	copies        *vk.Buffer // where they lie; kind Readback
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
	if err := a.reserve(); err != nil {
		return nil, err
	}
	if a.lists[0], err = a.commands(a.before); err != nil {
		return nil, err
	}
	if a.lists[1], err = a.commands(a.after); err != nil {
		return nil, err
	}
	return e.dev.vk.SubmitAround(cut.cmds, partOf(group), a.lists[0], a.lists[1])
}

// end verifies the step that submit has begun and that has been awaited.
func (a *vulkanAuditor) end(l *lane) error {
	a.free()
	Metrics.Audits.Add(1)
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
	for i, c := range a.lists {
		if c != nil {
			c.Free()
		}
		a.lists[i] = nil
	}
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
	*list = append(*list, copied{buf, offset, length, a.room})
	a.room += (length + 15) / 16 * 16
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

// commands copies the parts.
func (a *vulkanAuditor) commands(parts []copied) (*vk.Commands, error) {
	c := a.e.dev.vk.NewCommands()
	c.CopyBarrier()
	for _, p := range parts {
		c.Copy(a.copies, p.at, p.buf, p.offset, p.len)
	}
	c.CopyBarrier()
	if err := c.End(); err != nil {
		c.Free()
		return nil, err
	}
	return c, nil
}

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

// snapshot takes the inputs of the operations over.
func (a *vulkanAuditor) snapshot(ops []Op) {
	for i := range ops {
		for _, b := range []Buf{ops[i].A, ops[i].B, ops[i].Dst} {
			if b >= 0 && a.st.f32[b] != nil {
				copy(a.st.f32[b], floats32(a.copy(a.before, a.e.bufs[b], a.rowAt(b), 4*int64(len(a.st.f32[b])))))
			}
		}
	}
}

// verify recomputes the operations and compares what the last of them wrote, and the limbs and what the cache holds on the way.
func (a *vulkanAuditor) verify(ops []Op) error {
	s := a.st
	first, end := 0, 0 // columns that are recomputed
	for i := range ops {
		op := &ops[i]
		last := i == len(ops)-1
		if end == 0 && op.Kind != OpStoreKV {
			end = len(s.f32[op.Dst])
		}
		var err error
		switch op.Kind {
		case OpNorm:
			s.normRow(op, 0)
		case OpQuantize:
			s.limbs[op.Dst].quantise(0, s.f32[op.A])
			if err = a.compareLimbs(op); err != nil || last {
				return err
			}
			end = 0
			continue
		case OpLinear:
			first, end = a.panelOf(op)
			a.linear(op, first, s.f32[op.Dst][first:end])
			if !last && ops[i+1].Kind == OpLinear && i+2 < len(ops) && ops[i+2].Kind == OpAct || !last && ops[i+1].Kind == OpAct {
				continue // the activation alone is kept
			}
			if err := a.compareWith(op, first, s.f32[op.Dst][first:end]); err != nil {
				return err
			}
			if last {
				return nil
			}
			first, end = 0, len(s.f32[op.Dst]) // what follows may need the whole row
			copy(s.f32[op.Dst], a.floats(op.Dst, first, end))
			continue
		case OpRope:
			s.ropeRow(op, 0)
		case OpStoreKV:
			if err := a.stored(op); err != nil || last {
				return err
			}
		case OpAttend:
			return a.attend(op)
		case OpAct:
			s.act(op, first, end)
		case OpAdd:
			s.add(op, first, end)
		case OpScale:
			s.scale(op, first, end)
		case OpSoftcap:
			s.softcapRow(op, 0)
		case OpRoute:
			s.routeRow(op, 0, &a.s)
		case OpTop:
			s.topRow(op, 0, &a.s)
		case OpEmbed:
			if err := a.embed(op); err != nil {
				return err
			}
		case OpExperts:
			return a.experts(op)
		}
	}
	op := &ops[len(ops)-1]
	return a.compareWith(op, first, s.f32[op.Dst][first:end])
}

// compareWith holds what the device has in op's output, from a column on, against the reference.
func (a *vulkanAuditor) compareWith(op *Op, column int, want []float32) error {
	return a.compare(op, column, a.floats(op.Dst, column, len(want)), want)
}

// compare holds values of the row, from a column on, against the reference.
func (a *vulkanAuditor) compare(op *Op, column int, got, want []float32) error {
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return a.differs(op, column+i, float64(got[i]), float64(want[i]))
		}
	}
	return nil
}

func (a *vulkanAuditor) differs(op *Op, column int, got, want float64) error {
	return &AuditError{op.Kind, op.Layer, a.row, column, got, want}
}

// limbRow is the audited row of a Limbs buffer.
type limbRow struct {
	planes [3][]int8
	exp    int
	limbs  int // 2 or 3
}

func (a *vulkanAuditor) limbs(at limbsAt) (l limbRow) {
	offset, size := at.info()
	info := a.copy(a.after, at.buf, offset, size)
	l.exp, l.limbs = int(int32(binary.LittleEndian.Uint32(info))), 2+int(binary.LittleEndian.Uint32(info[4:]))
	for p := range l.limbs {
		offset, size := at.plane(p)
		plane := a.copy(a.after, at.buf, offset, size)
		l.planes[p] = unsafe.Slice((*int8)(unsafe.Pointer(&plane[0])), at.width)
	}
	return l
}

func (a *vulkanAuditor) compareLimbs(op *Op) error {
	return a.compareLimbRow(op, a.limbs(a.limbsOf(op.Dst)), a.st.limbs[op.Dst])
}

// compareLimbRow holds a row of limbs against the first that the reference has.
func (a *vulkanAuditor) compareLimbRow(op *Op, got limbRow, want *limbBuffer) error {
	q := want.rows[0]
	if got.exp != q.exp || got.limbs != q.limbs {
		return a.differs(op, 0, float64(got.exp), float64(q.exp))
	}
	for p := range q.limbs {
		for i, w := range int8s(want.limbRow(0, p))[:want.width] {
			if got.planes[p][i] != w {
				return a.differs(op, i, float64(got.planes[p][i]), float64(w))
			}
		}
	}
	return nil
}

// linear computes the panel of outputs from first on, from the weights on the device.
func (a *vulkanAuditor) linear(op *Op, first int, out []float32) {
	l := op.Linear.(*vulkanLinear)
	part := &l.parts[first/l.perPart]
	var weights [2][]byte
	for b := range l.mode.Limbs() {
		weights[b] = a.copy(a.after, part.buf, l.offset(part, b, first-part.first), int64(len(out)*l.rowBytes))
	}
	l.panel(a.limbs(a.limbsOf(op.A)), weights, vectorOf(op.Bias), first, out)
}

// panel computes outputs from first on of a row, a panel at most, from the limbs of their weights.
func (l *vulkanLinear) panel(x limbRow, weights [2][]byte, bias []float32, first int, out []float32) {
	count := len(out)
	var u [2][3 * panelRows]int32
	for b := range l.mode.Limbs() {
		for p := range x.limbs {
			for n := range count {
				u[b][p*panelRows+n] = dotInt8(x.planes[p], weights[b][n*l.rowBytes:])
			}
		}
	}
	var u2 []int32
	if l.mode == Int8x2 {
		u2 = u[1][:]
	}
	if bias != nil {
		bias = bias[first : first+count]
	}
	genericKernels.combine(out, count, u[0][:], u2, []quantised{{exp: x.exp, limbs: x.limbs}}, l.scales[first:first+count], bias)
}

// dotInt8 is a unit sum: x times the first len(x) bytes of w.
func dotInt8(x []int8, w []byte) int32 {
	sum := int32(0)
	for i, v := range x {
		sum += int32(v) * int32(int8(w[i]))
	}
	return sum
}

// kvHead is where a block of the audited head of the row's slot lies, and its size.
func (a *vulkanAuditor) kvHead(op *Op, block int) (buf *vk.Buffer, at, size int64) {
	c := a.e.prog.Cache.(*vulkanCache)
	size = 16 * int64(c.blockVectors())
	return c.layers[op.CacheLayer], int64((a.st.rows[0].Slot*c.spec.KVHeads+a.head)*c.blocks()+block) * size, size
}

// kv are the blocks [first, end) of the audited head.
func (a *vulkanAuditor) kv(op *Op, first, end int) ([]byte, *vulkanCache) {
	buf, at, size := a.kvHead(op, first)
	return a.copy(a.after, buf, at, int64(end-first)*size), a.e.prog.Cache.(*vulkanCache)
}

// cached takes the limbs of position pos of a block apart: part 0 is K, 1 is V.
func (c *vulkanCache) cached(block []byte, part, pos int, limbs *[3][]int8) (exp int) {
	hdp := 16 * c.headVectors()
	for limb := range 2 {
		plane := block[(2*part+limb)*blockPositions*hdp:]
		for d := range c.spec.HeadDim {
			at := (d/16*blockPositions+pos)*16 + d%16
			if part == 1 {
				at = (pos/16*hdp+d)*16 + pos%16
			}
			limbs[limb][d] = int8(plane[at])
		}
	}
	exps := block[4*blockPositions*hdp:]
	return int(int32(binary.LittleEndian.Uint32(exps[4*(part*blockPositions+pos):])))
}

// stored holds the keys and values of one head, as the device cached them, against the reference.
func (a *vulkanAuditor) stored(op *Op) error {
	pos, head := a.st.rows[0].Pos, a.head
	block, c := a.kv(op, pos/blockPositions, pos/blockPositions+1)
	hd := c.spec.HeadDim
	got := &[3][]int8{make([]int8, hd), make([]int8, hd)}
	for part, b := range []Buf{op.A, op.B} {
		want := a.s.headLimbs(hd)
		q, ok := quantiseRow(a.st.kern, want, a.st.f32[b][head*hd:(head+1)*hd], false)
		if !ok {
			return nil // the operation has reported it
		}
		if exp := c.cached(block, part, pos%blockPositions, got); exp != q.exp {
			return a.differs(op, head*hd, float64(exp), float64(q.exp))
		}
		for limb := range 2 {
			for d := range hd {
				if got[limb][d] != want[limb][d] {
					return a.differs(op, head*hd+d, float64(got[limb][d]), float64(want[limb][d]))
				}
			}
		}
	}
	return nil
}

// attend recomputes the queries of one key-value head over what the device has cached.
func (a *vulkanAuditor) attend(op *Op) error {
	pos := a.st.rows[0].Pos
	head, perKV, hd := a.head, op.Heads/op.KVHeads, op.HeadDim
	blocks := pos/blockPositions + 1
	bytes, c := a.kv(op, 0, blocks)
	cache, err := (&cpuDevice{kern: &genericKernels}).NewCache(CacheSpec{Layers: 1, Slots: 1, Context: pos + 1, KVHeads: 1, HeadDim: hd})
	if err != nil {
		return err
	}
	defer cache.Close()
	one := cache.(*cpuCache)
	limbs := &[3][]int8{make([]int8, hd), make([]int8, hd)}
	for p := range pos + 1 {
		block, size := one.block(0, 0, 0, p/blockPositions), len(bytes)/blocks
		from := bytes[p/blockPositions*size:][:size]
		exp := c.cached(from, 0, p%blockPositions, limbs)
		one.storeK(block, p%blockPositions, limbs, exp)
		exp = c.cached(from, 1, p%blockPositions, limbs)
		one.storeV(block, p%blockPositions, limbs, exp)
	}

	// The same operation over this head alone, as a program of its own.
	local := *op
	local.A, local.Dst, local.CacheLayer, local.Heads, local.KVHeads = 0, 1, 0, perKV, 1
	if op.Slopes != nil {
		local.Slopes = &cpuVector{v: vectorOf(op.Slopes)[head*perKV : (head+1)*perKV]}
	}
	width := perKV * hd
	st := newState(&Program{Bufs: []BufSpec{{F32, width}, {F32, width}}, Cache: cache}, &genericKernels)
	st.rows = []Row{{Pos: pos}}
	st.resize(1)
	copy(st.f32[0], a.st.f32[op.A][head*width:])
	st.attendRow(&local, 0, &a.s)
	return a.compareWith(op, head*width, st.f32[1])
}
