package units

import "fmt"

const (
	// gateExperts and gateExpertWeights bound the experts of a gated mixture and the weights of each of their matrices; the
	// router is gated at its size.
	gateExperts       = 6
	gateExpertWeights = 1 << 18
)

// experts gates OpRoute on logits of every kind, and OpExperts behind a router.
func (g *gate) experts(s ExpertShape) error {
	if s.TopK < 1 || s.TopK > s.Count || s.Hidden < 1 || s.Inter < 1 {
		return fmt.Errorf("mixture of %+v", s)
	}
	for _, normalise := range []bool{false, true} {
		shape := fmt.Sprintf("%d of %d, normalised %v", s.TopK, s.Count, normalise)
		err := g.check(OpRoute, shape, s.Count, func(Device, *gateSeries) (Program, error) {
			return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, s.Count}, {F32, 2 * s.TopK}},
				Ops: []Op{{Kind: OpRoute, Dst: 1, A: 0, B: None, TopK: s.TopK, Normalise: normalise}}}, nil
		})
		if err != nil {
			return err
		}
	}
	n, inter := min(s.Count, gateExperts), s.Inter
	if inter*s.Hidden > gateExpertWeights {
		inter = min(inter, max(1, gateExpertWeights/s.Hidden/64)*64+inter%64)
	}
	k := min(s.TopK, n)
	shape := fmt.Sprintf("%d of %d, %d x %d %v, %d of them, %d wide", s.TopK, s.Count, s.Inter, s.Hidden, s.Mode, n, inter)
	return g.check(OpExperts, shape, s.Hidden, func(d Device, sr *gateSeries) (Program, error) {
		router, err := sr.linear(d, n, s.Hidden, Int8x2)
		if err != nil {
			return Program{}, err
		}
		op := Op{Kind: OpExperts, Dst: 4, A: 2, B: 3, TopK: k, Act: s.Act}
		for range n {
			var e Expert
			for _, m := range []struct {
				l    *Linear
				n, k int
			}{{&e.Gate, inter, s.Hidden}, {&e.Up, inter, s.Hidden}, {&e.Down, s.Hidden, inter}} {
				if *m.l, err = sr.linear(d, m.n, m.k, s.Mode); err != nil {
					return Program{}, err
				}
			}
			op.Experts = append(op.Experts, e)
		}
		return Program{In: 0, Out: 4, Bufs: []BufSpec{{F32, s.Hidden}, {F32, s.Hidden}, {Limbs, s.Hidden}, {F32, 2 * k}, {F32, s.Hidden}, {F32, n}},
			Ops: []Op{
				// Large inputs times large weights, multiplied once more inside an expert, could leave the range of float32.
				{Kind: OpSoftcap, Dst: 1, A: 0, B: None, Cap: 1 << 13},
				{Kind: OpQuantize, Dst: 2, A: 1, B: None},
				{Kind: OpLinear, Dst: 5, A: 2, B: None, Linear: router},
				{Kind: OpRoute, Dst: 3, A: 5, B: None, TopK: k, Normalise: true},
				op,
			}}, nil
	})
}
