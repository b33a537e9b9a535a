package units

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// vulkanAuditor recomputes, every so many runs, one dispatch of the program for one row on the plain reference: the
// operations it merges, from what lies in the device's buffers before it. Of a matrix it takes one panel of outputs, of
// attention one key-value head. Mixtures of experts are not audited, their router is.
type vulkanAuditor struct {
	every uint64
	runs  uint64
	rng   *rand.Rand
	e     *vulkanExecutable
	st    *state // one row, generic kernels
	s     scratch

	rows, row int // of the batch, and the one audited
}

func newVulkanAuditor(e *vulkanExecutable, every int, seed uint64) *vulkanAuditor {
	a := &vulkanAuditor{every: uint64(every), rng: rand.New(rand.NewPCG(seed, 2)), e: e, st: newState(&e.prog, &genericKernels)}
	a.st.rows = make([]Row, 1)
	a.st.resize(1)
	return a
}

// due says whether this run is to be audited.
func (a *vulkanAuditor) due() bool {
	a.runs++
	return a.runs%a.every == 0 && len(a.e.prog.Ops) > 0
}

// run executes the step in three submissions, so that the buffers can be read before and after the audited dispatch.
func (a *vulkanAuditor) run(whole *recording, rows []Row, in []float32) error {
	e, shape := a.e, batchShape{whole.rows, whole.context}
	group := whole.groups[a.rng.IntN(len(whole.groups))]
	a.rows, a.row = len(rows), a.rng.IntN(len(rows))
	a.st.rows[0], a.st.err = rows[a.row], nil
	e.fill(rows, in)
	if err := e.part(shape, 0, group.first); err != nil {
		return err
	}
	ops := e.prog.Ops[group.first:group.end]
	if err := a.snapshot(ops); err != nil {
		return err
	}
	if err := e.part(shape, group.first, group.end); err != nil {
		return err
	}
	status := make([]byte, 4)
	if err := e.step.Read(0, status); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(status) == noFailure { // else the run ends with that error
		if err := a.verify(ops); err != nil {
			return err
		}
	}
	return e.part(shape, group.end, len(e.prog.Ops))
}

// part runs the operations [first, end), the first of a program after the copies up, the last before those down.
func (e *vulkanExecutable) part(shape batchShape, first, end int) error {
	r, err := e.record(shape, first, end)
	if err != nil {
		return err
	}
	defer r.free()
	return e.dev.vk.Run(r.cmds)
}

// floats reads n values from offset at of the audited row of a buffer.
func (a *vulkanAuditor) floats(dst []float32, b Buf, at int) error {
	w := a.e.prog.Bufs[b].Width
	bytes := make([]byte, 4*len(dst))
	if err := a.e.bufs[b].Read(int64(4*(a.row*w+at)), bytes); err != nil {
		return err
	}
	copy(dst, floats32(bytes))
	return nil
}

// snapshot copies the inputs of the operations.
func (a *vulkanAuditor) snapshot(ops []Op) error {
	for i := range ops {
		for _, b := range []Buf{ops[i].A, ops[i].B, ops[i].Dst} {
			if b < 0 || int(b) >= len(a.st.f32) || a.st.f32[b] == nil {
				continue
			}
			if err := a.floats(a.st.f32[b], b, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify recomputes the operations and compares what the last of them wrote, and the limbs and what the cache holds on the way.
func (a *vulkanAuditor) verify(ops []Op) error {
	s := a.st
	panel := a.rng.Float64() // where the panel of matrices lies: linear operations and what follows them
	first, end := 0, 0
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
			panels := ceilDiv(len(s.f32[op.Dst]), panelRows)
			first = int(panel*float64(panels)) * panelRows
			end = min(first+panelRows, len(s.f32[op.Dst]))
			if err := a.linear(op, first, s.f32[op.Dst][first:end]); err != nil {
				return err
			}
			if !last && ops[i+1].Kind == OpLinear && i+2 < len(ops) && ops[i+2].Kind == OpAct || !last && ops[i+1].Kind == OpAct {
				continue // the activation alone is kept
			}
			if err := a.compareWith(op, first, s.f32[op.Dst][first:end]); err != nil {
				return err
			}
			if last {
				return nil
			}
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
		case OpExperts:
			return nil
		}
	}
	op := &ops[len(ops)-1]
	return a.compareWith(op, first, s.f32[op.Dst][first:end])
}

// compareWith holds what the device has in op's output, from a column on, against the reference.
func (a *vulkanAuditor) compareWith(op *Op, column int, want []float32) error {
	got := make([]float32, len(want))
	if err := a.floats(got, op.Dst, column); err != nil {
		return err
	}
	return a.compare(op, column, got, want)
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

func (a *vulkanAuditor) limbs(b Buf) (l limbRow, err error) {
	width := a.e.prog.Bufs[b].Width
	size := padded(width, vulkanPadK)
	info := make([]byte, 8)
	buf := a.e.bufs[b]
	if err := buf.Read(int64(3*a.rows*size+8*a.row), info); err != nil {
		return l, err
	}
	l.exp, l.limbs = int(int32(binary.LittleEndian.Uint32(info))), 2+int(binary.LittleEndian.Uint32(info[4:]))
	for p := range l.limbs {
		words := make([]uint32, size/4)
		bytes := make([]byte, size)
		if err := buf.Read(int64((p*a.rows+a.row)*size), bytes); err != nil {
			return l, err
		}
		l.planes[p] = int8s(words)[:width]
		for i := range width {
			l.planes[p][i] = int8(bytes[i])
		}
	}
	return l, nil
}

func (a *vulkanAuditor) compareLimbs(op *Op) error {
	want := a.st.limbs[op.Dst]
	got, err := a.limbs(op.Dst)
	if err != nil {
		return err
	}
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
func (a *vulkanAuditor) linear(op *Op, first int, out []float32) error {
	l := op.Linear.(*vulkanLinear)
	x, err := a.limbs(op.A)
	if err != nil {
		return err
	}
	count := len(out)
	part := &l.parts[first/l.perPart]
	var u [2][3 * panelRows]int32
	for b := range l.mode.Limbs() {
		w := make([]byte, count*l.rowBytes)
		if err := part.buf.Read(l.offset(part, b, first-part.first), w); err != nil {
			return err
		}
		for p := range x.limbs {
			for n := range count {
				u[b][p*panelRows+n] = dotInt8(x.planes[p], w[n*l.rowBytes:])
			}
		}
	}
	var u2 []int32
	if l.mode == Int8x2 {
		u2 = u[1][:]
	}
	bias := vectorOf(op.Bias)
	if bias != nil {
		bias = bias[first : first+count]
	}
	genericKernels.combine(out, count, u[0][:], u2, []quantised{{exp: x.exp, limbs: x.limbs}}, l.scales[first:first+count], bias)
	return nil
}

// dotInt8 is a unit sum: x times the first len(x) bytes of w.
func dotInt8(x []int8, w []byte) int32 {
	sum := int32(0)
	for i, v := range x {
		sum += int32(v) * int32(int8(w[i]))
	}
	return sum
}

// kvHead reads the blocks [first, end) of a head of the row's slot.
func (a *vulkanAuditor) kvHead(op *Op, head, first, end int) ([]byte, *vulkanCache, error) {
	c := a.e.prog.Cache.(*vulkanCache)
	size := 16 * c.blockVectors()
	at := (a.st.rows[0].Slot*c.spec.KVHeads+head)*c.blocks() + first
	bytes := make([]byte, (end-first)*size)
	return bytes, c, c.layers[op.CacheLayer].Read(int64(at)*int64(size), bytes)
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
	pos := a.st.rows[0].Pos
	head := a.rng.IntN(a.e.prog.Cache.Spec().KVHeads)
	block, c, err := a.kvHead(op, head, pos/blockPositions, pos/blockPositions+1)
	if err != nil {
		return err
	}
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
	head, perKV, hd := a.rng.IntN(op.KVHeads), op.Heads/op.KVHeads, op.HeadDim
	blocks := pos/blockPositions + 1
	bytes, c, err := a.kvHead(op, head, 0, blocks)
	if err != nil {
		return err
	}
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
	got := make([]float32, width)
	if err := a.floats(got, op.Dst, head*width); err != nil {
		return err
	}
	return a.compare(op, head*width, got, st.f32[1])
}
