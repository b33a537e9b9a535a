package units

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"dchain/units/vk"
)

// AuditError is a difference between what the device computed and what the plain reference makes of the same inputs, or what the
// device itself makes of them with barriers.
type AuditError struct {
	Op        OpKind
	Layer     int // model layer
	Row       int // of the batch
	Column    int
	Got, Want float64 // values; limbs or exponents for quantised rows and the cache

	// Chained says that the dispatches of a step of one row, awaiting each other, give something else than with barriers between
	// them, which gives Want: value Column of the output, or whether Op fails, which is 1: then Column is -1.
	Chained bool
}

func (e *AuditError) Error() string {
	if e.Chained {
		what := fmt.Sprintf("computed %v as output value %d, with barriers %v", e.Got, e.Column, e.Want)
		switch {
		case e.Column < 0 && e.Got > 0:
			what = "fails, with barriers it does not"
		case e.Column < 0:
			what = "does not fail, with barriers it does"
		}
		return fmt.Sprintf("audit of a step of one row whose dispatches are chained: %s of layer %d %s", e.Op, e.Layer, what)
	}
	return fmt.Sprintf("audit of %s of layer %d, row %d, column %d: computed %v, the reference gives %v",
		e.Op, e.Layer, e.Row, e.Column, e.Got, e.Want)
}

// WrongBit says whether an error is that a device gave a wrong bit, in an audit or in its gates.
func WrongBit(err error) bool {
	var audit *AuditError
	var gate *GateError
	return errors.As(err, &audit) || errors.As(err, &gate)
}

// Unusable says whether an error is one after which its device computes nothing more: a wrong bit, or the device is lost.
func Unusable(err error) bool { return WrongBit(err) || errors.Is(err, vk.ErrDeviceLost) }

// verdict remembers the first wrong bit of a device, which computes nothing after it: whatever made it wrong once can again.
type verdict struct{ wrong atomic.Pointer[AuditError] }

// allow says why a program must not run.
func (v *verdict) allow() error {
	if wrong := v.wrong.Load(); wrong != nil {
		return fmt.Errorf("running a program: the device is not used any more, it gave a wrong bit: %w", wrong)
	}
	return nil
}

// note takes the error of a run.
func (v *verdict) note(err error) {
	var wrong *AuditError
	if errors.As(err, &wrong) && v.wrong.CompareAndSwap(nil, wrong) {
		Metrics.WrongBits.Add(1)
	}
}

// auditor recomputes single operations of an executable for one row, on a state of its own with generic kernels.
type auditor struct {
	every uint64
	rng   *rand.Rand
	st    *state
	s     scratch

	op  *Op // the one to audit in this run; nil for none
	row int
}

func newAuditor(p *Program, every int, seed uint64) *auditor {
	a := &auditor{every: uint64(every), rng: rand.New(rand.NewPCG(seed, 1)), st: newState(p, &genericKernels)}
	a.st.rows = make([]Row, 1)
	a.st.resize(1)
	return a
}

// choose picks the operation and row of this run, the first run being number 1.
func (a *auditor) choose(p *Program, run uint64, rows int) {
	a.op = nil
	if run%a.every == 0 && len(p.Ops) > 0 {
		Metrics.Audits.Add(1)
		a.op = &p.Ops[a.rng.IntN(len(p.Ops))]
		a.row = a.rng.IntN(rows)
	}
}

// snapshot copies the inputs of the chosen row before the operation runs.
func (a *auditor) snapshot(st *state) {
	a.st.rows[0] = st.rows[a.row]
	a.st.err = nil
	for _, b := range []Buf{a.op.A, a.op.B, a.op.Dst} {
		if b < 0 || int(b) >= len(st.f32) {
			continue
		}
		if st.f32[b] != nil {
			w := st.prog.Bufs[b].Width
			copy(a.st.f32[b], st.f32[b][a.row*w:(a.row+1)*w])
		}
	}
	if a.op.Kind == OpLinear || a.op.Kind == OpExperts {
		copyLimbs(a.st.limbs[a.op.A], st.limbs[a.op.A], a.row)
	}
}

// copyLimbs makes row r of src the only row of dst.
func copyLimbs(dst, src *limbBuffer, r int) {
	dst.rows[0] = src.rows[r]
	for limb := range src.rows[r].limbs {
		src.gather(dst.limbRow(0, limb), r, limb)
	}
	dst.arrange([]int{1})
	dst.fill(0)
}

// verify recomputes the operation and compares.
func (a *auditor) verify(st *state) error {
	op, s := a.op, a.st
	switch op.Kind {
	case OpNorm:
		s.normRow(op, 0)
	case OpQuantize:
		s.limbs[op.Dst].quantise(0, s.f32[op.A])
		return a.compareLimbs(st.limbs[op.Dst])
	case OpLinear:
		l := op.Linear.(*cpuLinear)
		s.linearPanels(op, 0, len(l.scale)/panelRows, a.s.u[:])
	case OpRope:
		s.ropeRow(op, 0)
	case OpStoreKV:
		return a.compareCache()
	case OpAttend:
		s.attendRow(op, 0, &a.s)
	case OpAct:
		s.act(op, 0, len(s.f32[op.Dst]))
	case OpAdd:
		s.add(op, 0, len(s.f32[op.Dst]))
	case OpSoftcap:
		s.softcapRow(op, 0)
	case OpRoute:
		s.routeRow(op, 0, &a.s)
	case OpTop:
		s.topRow(op, 0, &a.s)
	case OpEmbed:
		s.embedRow(op, 0)
	case OpExperts:
		s.runExperts(op, func(chunks int, f func(s *scratch, chunk int)) {
			for i := range chunks {
				f(&a.s, i)
			}
		})
	case OpScale:
		s.scale(op, 0, len(s.f32[op.Dst]))
	}
	w := st.prog.Bufs[op.Dst].Width
	got := st.f32[op.Dst][a.row*w:]
	for i, want := range s.f32[op.Dst][:w] {
		if math.Float32bits(got[i]) != math.Float32bits(want) {
			return a.differs(i, float64(got[i]), float64(want))
		}
	}
	return nil
}

func (a *auditor) differs(column int, got, want float64) error {
	return &AuditError{Op: a.op.Kind, Layer: a.op.Layer, Row: a.row, Column: column, Got: got, Want: want}
}

// compareLimbs holds a quantised row, as it lies in its tile, against the reference.
func (a *auditor) compareLimbs(b *limbBuffer) error {
	want := a.st.limbs[a.op.Dst]
	g, w := b.rows[a.row], want.rows[0]
	if g.exp != w.exp || g.limbs != w.limbs {
		return a.differs(0, float64(g.exp), float64(w.exp))
	}
	row := make([]uint32, b.groups)
	t := b.tileOf(a.row)
	for limb := range w.limbs {
		b.gather(row, a.row, limb)
		got, ref := int8s(row), int8s(want.limbRow(0, limb))
		for i := range b.width {
			if got[i] != ref[i] {
				return a.differs(i, float64(got[i]), float64(ref[i]))
			}
		}
		if got := b.init[t.init+(b.slot[a.row]+limb)*t.inits()]; got != -128*w.sums[limb] {
			return a.differs(b.width, float64(got), float64(-128*w.sums[limb]))
		}
	}
	return nil
}

// compareCache holds the cached keys and values of the row against the reference.
func (a *auditor) compareCache() error {
	c, row := a.st.cache, a.st.rows[0]
	hd := c.spec.HeadDim
	for part, buf := range []Buf{a.op.A, a.op.B} {
		for h := range c.spec.KVHeads {
			b := c.block(a.op.CacheLayer, row.Slot, h, row.Pos/blockPositions)
			limbs := a.s.headLimbs(hd)
			q, ok := quantiseRow(a.st.kern, limbs, a.st.f32[buf][h*hd:(h+1)*hd], false)
			if !ok {
				return nil // the operation has reported it
			}
			pos := row.Pos % blockPositions
			exp := [2]int16{b.expK[pos], b.expV[pos]}[part]
			if int(exp) != q.exp {
				return a.differs(h*hd, float64(exp), float64(q.exp))
			}
			for d := range hd {
				for limb := range 2 {
					got := c.storedK(b, pos, d, limb)
					if part == 1 {
						got = c.storedV(b, pos, d, limb)
					}
					if want := limbs[limb][d]; got != want {
						return a.differs(h*hd+d, float64(got), float64(want))
					}
				}
			}
		}
	}
	return nil
}
