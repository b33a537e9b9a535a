package units

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// What an audited dispatch left on the device, held against what the plain reference makes of its inputs.

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
	return &AuditError{Op: op.Kind, Layer: op.Layer, Row: a.row, Column: column, Got: got, Want: want}
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
