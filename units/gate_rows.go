package units

import (
	"errors"
	"fmt"
)

// Norms, activations and other operations on the values of a row: their gates.

// gateNorm is a kind of norm, with a bias or without.
type gateNorm struct {
	kind NormKind
	bias bool
}

var gateNorms = []gateNorm{{RMSNorm, false}, {LayerNorm, true}, {LayerNorm, false}}

// norms gates OpNorm of a kind by itself.
func (g *gate) norms(width int, n gateNorm) error {
	return g.check(OpNorm, fmt.Sprintf("%d, %+v", width, n), width, func(d Device, s *gateSeries) (Program, error) {
		op, err := s.norm(d, width, n)
		return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, width}, {F32, width}}, Ops: []Op{op}}, err
	})
}

// norm is a norm of buffer 0 to buffer 1.
func (s *gateSeries) norm(d Device, width int, n gateNorm) (Op, error) {
	op := Op{Kind: OpNorm, Norm: n.kind, Dst: 1, A: 0, B: None, Groups: 1, Eps: 1e-5}
	var err error
	if op.Weight, err = d.NewVector("gate", s.values(width, 2)); err == nil && n.bias {
		op.Bias, err = d.NewVector("gate", s.values(width, 1))
	}
	return op, err
}

// normedMatrices gates what devices merge with a norm, or do to rows without one: the input of matrices of a format, side by side, and
// of a feed-forward.
func (g *gate) normedMatrices(width int, n gateNorm, mode WeightMode, c normedCase) error {
	if !c.follows(n, g.merges()) {
		return nil
	}
	shape := fmt.Sprintf("norm of %d, %+v, with matrices of %v, %+v", width, n, mode, c)
	return g.check(OpLinear, shape, width, func(d Device, s *gateSeries) (Program, error) {
		op, err := s.norm(d, width, n)
		if err != nil {
			return Program{}, err
		}
		return g.normedLinears(d, s, op, width, mode, c)
	})
}

// normedCase is what follows a norm: matrices side by side and one alone, or a feed-forward gated by that kind.
type normedCase struct {
	gated bool
	act   ActKind
	added bool // the row is a sum
	bias  bool // of the matrices
	bare  bool // they have the row itself as input, as in models with norms only after them
	after bool // the norms are of the sums, in place, and so is what matrices are added to next
}

var normedCases = []normedCase{
	{}, {gated: true, act: SiLU}, {gated: true, act: GELUTanh}, {gated: true, act: GELU},
	{added: true}, {gated: true, act: SiLU, added: true}, {gated: true, act: GELUTanh, added: true}, {gated: true, act: GELU, added: true},
	{bias: true}, {gated: true, act: SiLU, bias: true}, {added: true, bias: true}, {gated: true, act: SiLU, added: true, bias: true},
	{bare: true}, {gated: true, act: SiLU, bare: true}, {bare: true, bias: true}, {after: true},
}

// follows says whether a case is tried with a norm on a device that merges operations or not. One that merges none has no other ways
// of most of them, what follows a sum is the same after every norm, and models with LayerNorm have no other gated activation.
func (c normedCase) follows(n gateNorm, merges bool) bool {
	switch {
	case !merges:
		return !c.added && !c.bias && !c.bare && !c.after && c.act == SiLU
	case n.kind == LayerNorm:
		return !c.added && !c.bare && c.act == SiLU
	}
	return !c.after
}

// normedLinears is three matrices of a normalised row, and one of it, or a feed-forward of it that is added to the row, and a second
// one, without a gate; or, with norms after, such feed-forwards, after norms that are kept and one that is not, before a matrix.
func (g *gate) normedLinears(d Device, s *gateSeries, norm Op, width int, mode WeightMode, c normedCase) (Program, error) {
	const inner = 72 // inputs, enough that a device may share them out
	p := Program{In: 0, Out: 6, Bufs: []BufSpec{{F32, width}, {F32, width}, {Limbs, width}, {F32, inner}, {F32, inner}, {F32, inner}, {F32, inner},
		{Limbs, inner}, {F32, width}}}
	matrices := map[LinearShape]int{}
	linear := func(dst, a Buf, n, k int) error {
		of := LinearShape{n, k, mode}
		l, err := g.matrix(d, matrices[of], n, k, mode)
		matrices[of]++
		op := Op{Kind: OpLinear, Dst: dst, A: a, B: None, Linear: l}
		if c.bias && err == nil {
			op.Bias, err = d.NewVector("gate", s.values(n, 1))
		}
		p.Ops = append(p.Ops, op)
		return err
	}
	up := func(dst ...Buf) error {
		quantise := Op{Kind: OpQuantize, Dst: 2, A: norm.Dst, B: None}
		if c.bare {
			quantise.A = 0
		} else {
			p.Ops = append(p.Ops, norm)
		}
		p.Ops = append(p.Ops, quantise)
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
	sum := func(b Buf) {
		if c.added {
			p.Ops = append(p.Ops, Op{Kind: OpAdd, Dst: 0, A: 0, B: b})
		}
	}
	if c.after {
		norm.Dst = 0
		for range 2 {
			if err := errors.Join(up(3), down()); err != nil {
				return p, err
			}
		}
		p.Ops = append(p.Ops, norm, Op{Kind: OpScale, Dst: 0, A: 0, B: None, Scale: -0.7})
		return p, errors.Join(up(3), down(), up(6))
	}
	sum(0)
	if !c.gated {
		if err := up(3, 4, 5); err != nil {
			return p, err
		}
		p.Ops = append(p.Ops, Op{Kind: OpScale, Dst: 6, A: 3, B: None, Scale: -0.7}, Op{Kind: OpAdd, Dst: 6, A: 6, B: 4}, Op{Kind: OpAdd, Dst: 6, A: 6, B: 5})
		p.Ops = append(p.Ops, Op{Kind: OpScale, Dst: 8, A: 0, B: None, Scale: -0.7})
		sum(8) // rather than double again
		err := up(3)
		p.Ops = append(p.Ops, Op{Kind: OpScale, Dst: 3, A: 3, B: None, Scale: -0.7}, Op{Kind: OpAdd, Dst: 6, A: 6, B: 3})
		return p, err
	}
	p.Out = 0
	if err := up(3, 4); err != nil {
		return p, err
	}
	p.Ops = append(p.Ops, Op{Kind: OpAct, Act: c.act, Dst: 3, A: 3, B: 4})
	if err := down(); err != nil || c.bare { // whose values grow from matrix to matrix
		return p, err
	}
	if err := up(3); err != nil {
		return p, err
	}
	return p, down()
}

// halved is the start of programs of operations on values: a second row, of which buffer 0 is to be gated with.
var halved = Op{Kind: OpScale, Dst: 1, A: 0, B: None, Scale: -0.7}

// act gates OpAct of a kind, by itself and before a quantising.
func (g *gate) act(width int, act ActKind) error {
	const outputs = 8
	for _, b := range []Buf{None, 1} {
		op := Op{Kind: OpAct, Act: act, Dst: 2, A: 0, B: b}
		shape := fmt.Sprintf("%d, kind %d, gated %v", width, act, b >= 0)
		if err := g.values(op, shape, width); err != nil {
			return err
		}
		err := g.check(OpLinear, fmt.Sprintf("activation of %s, before a matrix", shape), width, func(d Device, _ *gateSeries) (Program, error) {
			l, err := g.matrix(d, 0, outputs, width, Int8)
			return Program{In: 0, Out: 4, Bufs: []BufSpec{{F32, width}, {F32, width}, {F32, width}, {Limbs, width}, {F32, outputs}},
				Ops: []Op{halved, op, {Kind: OpQuantize, Dst: 3, A: 2, B: None}, {Kind: OpLinear, Dst: 4, A: 3, B: None, Linear: l}}}, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// elementwise gates OpAdd, OpSoftcap and OpScale.
func (g *gate) elementwise(width int) error {
	for _, op := range []Op{{Kind: OpAdd, Dst: 2, A: 0, B: 1}, {Kind: OpSoftcap, Dst: 2, A: 1, B: None, Cap: 3}, {Kind: OpScale, Dst: 2, A: 1, B: None, Scale: 3.3}} {
		if err := g.values(op, fmt.Sprint(width), width); err != nil {
			return err
		}
	}
	return nil
}

// values gates an operation on the values of buffers 0 and 1 to buffer 2.
func (g *gate) values(op Op, shape string, width int) error {
	return g.check(op.Kind, shape, width, func(Device, *gateSeries) (Program, error) {
		return Program{In: 0, Out: 2, Bufs: []BufSpec{{F32, width}, {F32, width}, {F32, width}}, Ops: []Op{halved, op}}, nil
	})
}
