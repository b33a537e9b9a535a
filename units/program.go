package units

import (
	"errors"
	"fmt"
)

// lastWriter is the operation that wrote Out; the zero Op if it is In untouched.
func (p *Program) lastWriter() Op {
	for i := len(p.Ops) - 1; i >= 0; i-- {
		if p.Ops[i].Kind != OpStoreKV && p.Ops[i].Dst == p.Out {
			return p.Ops[i]
		}
	}
	return Op{}
}

// checkRows holds the arguments of Run against the program and its cache.
func (p *Program) checkRows(rows []Row, in, out []float32) error {
	if len(rows) == 0 {
		return errors.New("no rows")
	}
	if w := p.Bufs[p.In].Width; len(in) != len(rows)*w {
		return fmt.Errorf("in has %d values, want %d rows of %d", len(in), len(rows), w)
	}
	if w := p.Bufs[p.Out].Width; len(out) != len(rows)*w && len(out) != w {
		return fmt.Errorf("out has %d values, want %d rows of %d, or one", len(out), len(rows), w)
	}
	slots, context := 0, p.positions()
	if p.Cache != nil {
		slots = p.Cache.Spec().Slots
	}
	next := map[int]int{}
	for i, r := range rows {
		if slots > 0 && (r.Slot < 0 || r.Slot >= slots) {
			return fmt.Errorf("row %d: slot %d, the cache has %d", i, r.Slot, slots)
		}
		if context > 0 && (r.Pos < 0 || r.Pos >= context) {
			return fmt.Errorf("row %d: position %d outside the context of %d", i, r.Pos, context)
		}
		if want, ok := next[r.Slot]; slots > 0 && ok && r.Pos != want {
			return fmt.Errorf("row %d: position %d of slot %d, want %d", i, r.Pos, r.Slot, want)
		}
		next[r.Slot] = r.Pos + 1
	}
	return nil
}

// positions is the number of positions the cache and the rotary tables have; 0 if the program uses neither.
func (p *Program) positions() int {
	n := 0
	if p.Cache != nil {
		n = p.Cache.Spec().Context
	}
	for i := range p.Ops {
		if op := &p.Ops[i]; op.Kind == OpRope {
			if t := op.Cos.Len() / (op.RotaryDim / 2); n == 0 || t < n {
				n = t
			}
		}
	}
	return n
}
