package units

import (
	"fmt"
	"slices"
)

// Norms, activations and other operations on the values of a row: their gates.

// norms gates OpNorm of a kind by itself, and in what devices merge with it: the input of matrices side by side, and of a feed-forward.
func (g *gate) norms(width int, kind NormKind) error {
	norm := func(d Device, s *gateSeries) (Op, error) {
		op := Op{Kind: OpNorm, Norm: kind, Dst: 1, A: 0, B: None, Groups: 1, Eps: 1e-5}
		var err error
		if op.Weight, err = d.NewVector("gate", s.values(width, 2)); err == nil && kind == LayerNorm {
			op.Bias, err = d.NewVector("gate", s.values(width, 1))
		}
		return op, err
	}
	shape := fmt.Sprintf("%d, kind %d", width, kind)
	err := g.check(OpNorm, shape, width, func(d Device, s *gateSeries) (Program, error) {
		op, err := norm(d, s)
		return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, width}, {F32, width}}, Ops: []Op{op}}, err
	})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		gated bool
		act   ActKind
		added bool // the row is a sum
	}{{false, 0, false}, {true, SiLU, false}, {false, 0, true}, {true, GELUTanh, true}} {
		// A device that merges nothing has no other ways of these, and what follows LayerNorm is as after the other.
		if (kind == LayerNorm || !g.merges()) && c.added {
			continue
		}
		shape := fmt.Sprintf("norm of %s, before matrices, gated %v by kind %d, of a sum %v", shape, c.gated, c.act, c.added)
		err := g.check(OpLinear, shape, width, func(d Device, s *gateSeries) (Program, error) {
			op, err := norm(d, s)
			if err != nil {
				return Program{}, err
			}
			p, err := g.normedLinears(d, s, op, width, c.gated, c.act)
			if c.added {
				p.Ops = slices.Insert(p.Ops, 0, Op{Kind: OpAdd, Dst: 0, A: 0, B: 0})
			}
			return p, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// normedLinears is three matrices of a normalised row, or a feed-forward of it, gated by that kind, that is added to the row, and a
// second one, without a gate.
func (g *gate) normedLinears(d Device, s *gateSeries, norm Op, width int, gated bool, act ActKind) (Program, error) {
	const inner = 136 // inputs, enough that a device may share them out
	p := Program{In: 0, Out: 6, Bufs: []BufSpec{{F32, width}, {F32, width}, {Limbs, width}, {F32, inner}, {F32, inner}, {F32, inner}, {F32, inner},
		{Limbs, inner}, {F32, width}}}
	linear := func(dst, a Buf, n, k int) error {
		l, err := s.linear(d, n, k, Int8)
		p.Ops = append(p.Ops, Op{Kind: OpLinear, Dst: dst, A: a, B: None, Linear: l})
		return err
	}
	up := func(dst ...Buf) error {
		p.Ops = append(p.Ops, norm, Op{Kind: OpQuantize, Dst: 2, A: 1, B: None})
		for _, b := range dst {
			if err := linear(b, 2, inner, width); err != nil {
				return err
			}
		}
		return nil
	}
	down := func() error {
		p.Ops = append(p.Ops, Op{Kind: OpQuantize, Dst: 7, A: 3, B: None})
		err := linear(8, 7, width, inner)
		p.Ops = append(p.Ops, Op{Kind: OpAdd, Dst: 0, A: 0, B: 8})
		return err
	}
	if !gated {
		err := up(3, 4, 5)
		p.Ops = append(p.Ops, Op{Kind: OpScale, Dst: 6, A: 3, B: None, Scale: -0.7}, Op{Kind: OpAdd, Dst: 6, A: 6, B: 4}, Op{Kind: OpAdd, Dst: 6, A: 6, B: 5})
		return p, err
	}
	p.Out = 0
	if err := up(3, 4); err != nil {
		return p, err
	}
	p.Ops = append(p.Ops, Op{Kind: OpAct, Act: act, Dst: 3, A: 3, B: 4})
	if err := down(); err != nil {
		return p, err
	}
	if err := up(3); err != nil {
		return p, err
	}
	return p, down()
}

// acts gates OpAct, by itself and before a quantising, OpAdd, OpSoftcap and OpScale.
func (g *gate) acts(width int) error {
	simple := func(ops ...Op) builder {
		return func(Device, *gateSeries) (Program, error) {
			return Program{In: 0, Out: 2, Bufs: []BufSpec{{F32, width}, {F32, width}, {F32, width}}, Ops: ops}, nil
		}
	}
	quantised := func(ops ...Op) builder {
		return func(d Device, s *gateSeries) (Program, error) {
			const outputs = 8
			l, err := s.linear(d, outputs, width, Int8)
			return Program{In: 0, Out: 4, Bufs: []BufSpec{{F32, width}, {F32, width}, {F32, width}, {Limbs, width}, {F32, outputs}},
				Ops: append(ops, Op{Kind: OpQuantize, Dst: 3, A: 2, B: None}, Op{Kind: OpLinear, Dst: 4, A: 3, B: None, Linear: l})}, err
		}
	}
	half := Op{Kind: OpScale, Dst: 1, A: 0, B: None, Scale: -0.7}
	shape := fmt.Sprint(width)
	for _, act := range []ActKind{SiLU, GELUTanh, GELU, ReLU} {
		for _, b := range []Buf{None, 1} {
			op := Op{Kind: OpAct, Act: act, Dst: 2, A: 0, B: b}
			if err := g.check(OpAct, fmt.Sprintf("%s, kind %d, gated %v", shape, act, b >= 0), width, simple(half, op)); err != nil {
				return err
			}
			if b < 0 && act != GELU { // which has the most of its own
				continue
			}
			err := g.check(OpLinear, fmt.Sprintf("activation of %s, kind %d, gated %v, before a matrix", shape, act, b >= 0), width, quantised(half, op))
			if err != nil {
				return err
			}
		}
	}
	if err := g.check(OpAdd, shape, width, simple(half, Op{Kind: OpAdd, Dst: 2, A: 0, B: 1})); err != nil {
		return err
	}
	err := g.check(OpSoftcap, shape, width, simple(half, Op{Kind: OpSoftcap, Dst: 2, A: 1, B: None, Cap: 3}))
	if err != nil {
		return err
	}
	return g.check(OpScale, shape, width, simple(half, Op{Kind: OpScale, Dst: 2, A: 1, B: None, Scale: 3.3}))
}
