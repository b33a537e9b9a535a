package stage

import (
	"context"
	"errors"

	"dchain/inspect"
	"dchain/units"
)

func (l *loader) layer(ctx context.Context, layer int) (layerWeights, error) {
	s := &l.model.Spec
	w := layerWeights{slopes: l.slopes}
	var err error
	if r := s.Layer(layer).Rope; r != nil {
		if w.rope, err = l.rope(r); err != nil {
			return w, err
		}
	}
	for _, n := range []struct {
		role inspect.Role
		dst  *normWeights
	}{
		{inspect.RoleAttnNorm, &w.attnNorm}, {inspect.RoleQNorm, &w.qNorm}, {inspect.RoleKNorm, &w.kNorm},
		{inspect.RolePostAttnNorm, &w.postAttnNorm}, {inspect.RoleMLPNorm, &w.mlpNorm}, {inspect.RolePostMLPNorm, &w.postMLPNorm},
	} {
		if err := l.norm(ctx, n.role, layer, n.dst); err != nil {
			return w, err
		}
	}
	attn, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	qRows, kRows, vRows := s.QKVRows()
	parts := map[inspect.Role][]part{
		inspect.RoleQ:      {{&w.q, whole(attn)}},
		inspect.RoleK:      {{&w.k, whole(kv)}},
		inspect.RoleV:      {{&w.v, whole(kv)}},
		inspect.RoleQKV:    {{&w.q, qRows}, {&w.k, kRows}, {&w.v, vRows}},
		inspect.RoleO:      {{&w.o, whole(s.Hidden)}},
		inspect.RoleGate:   {{&w.gate, whole(s.Inter)}},
		inspect.RoleUp:     {{&w.up, whole(s.Inter)}},
		inspect.RoleGateUp: {{&w.gate, whole(s.Inter)}, {&w.up, []inspect.Rows{{First: s.Inter, N: s.Inter}}}},
		inspect.RoleDown:   {{&w.down, whole(s.Hidden)}},
		inspect.RoleRouter: {{&w.router, whole(s.Experts)}},
	}
	for _, role := range s.LayerRoles(layer) {
		if p, ok := parts[role]; ok {
			if err := l.linear(ctx, role, layer, p...); err != nil {
				return w, err
			}
		}
	}
	if s.Layer(layer).Experts {
		w.experts, err = l.experts(layer)
	}
	return w, err
}

// rope makes the tables of the layers that share r.
func (l *loader) rope(r *inspect.RopeSpec) (ropeTables, error) {
	if t, ok := l.ropes[r]; ok {
		return t, nil
	}
	var t ropeTables
	var err error
	cos, sin := units.RopeTablesFrom(l.w.context, r.InvFreq(l.w.context), r.Attention())
	if l.model.Spec.RopeReversed {
		for i := range sin {
			sin[i] = -sin[i]
		}
	}
	if t.cos, err = l.vector("rotary cosines", cos); err != nil {
		return t, err
	}
	if t.sin, err = l.vector("rotary sines", sin); err != nil {
		return t, err
	}
	t.queryCos, t.querySin = t.cos, t.sin
	if r.RopeQueryGrowth != 0 {
		pairs := r.RotaryDim / 2
		for i := range cos {
			scale := r.QueryScale(i / pairs)
			cos[i], sin[i] = cos[i]*scale, sin[i]*scale
		}
		if t.queryCos, err = l.vector("rotary cosines of queries", cos); err != nil {
			return t, err
		}
		if t.querySin, err = l.vector("rotary sines of queries", sin); err != nil {
			return t, err
		}
	}
	l.ropes[r] = t
	return t, nil
}

// whole is rows 0 to n-1.
func whole(n int) []inspect.Rows { return []inspect.Rows{{N: n}} }

// part is the output rows of a role's matrix that become one linear: fused q, k and v are three parts.
type part struct {
	dst  *linearWeights
	rows []inspect.Rows
}

// linear declares the matrix of a role and its bias, where the weight file holds one.
func (l *loader) linear(ctx context.Context, role inspect.Role, layer int, parts ...part) error {
	s := &l.model.Spec
	total, _ := s.Dims(role)
	t, err := l.tensor(s.WeightNames(role, layer)[0])
	if err != nil {
		return err
	}
	var bias []float32
	biasName := s.BiasName(role, layer)
	if biasName != "" {
		if bias, err = l.floats(ctx, biasName, total); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if p.dst.w, err = l.matrix(role, t, p.rows); err != nil {
			return err
		}
		if bias == nil {
			continue
		}
		var own []float32
		for _, r := range p.rows {
			own = append(own, bias[r.First:r.First+r.N]...)
		}
		if p.dst.bias, err = l.vector(biasName, own); err != nil {
			return err
		}
	}
	return nil
}

// matrix declares rows of a tensor as a linear. A router always takes the precise format: which experts a row goes to
// must not hang on rounding.
func (l *loader) matrix(role inspect.Role, t inspect.Tensor, rows []inspect.Rows) (units.Linear, error) {
	s := &l.model.Spec
	total, k := s.Dims(role)
	n := 0
	for _, r := range rows {
		n += r.N
	}
	p := matrixPart{tensor: t, rows: rows, n: n, k: k, mode: l.opts.Mode, tensorN: total,
		transposed: s.WeightLayout == "in_out" && role != inspect.RoleLMHead}
	if role == inspect.RoleRouter {
		p.mode = units.Int8x2
	}
	var err error
	if l.w.packed != nil {
		if p.linear, err = l.unpack(&p); err == nil {
			l.packed = append(l.packed, p.linear)
		}
	} else if p.linear, err = l.dev.NewLinear(t.Name, n, k, p.mode); err == nil {
		l.parts = append(l.parts, p)
	}
	if err != nil {
		return nil, err
	}
	l.w.handles = append(l.w.handles, p.linear)
	l.w.Bytes += p.linear.Bytes()
	return p.linear, nil
}

// unpack opens the matrix that lies in the packed file.
func (l *loader) unpack(p *matrixPart) (units.Linear, error) {
	b, err := l.w.packed.take(p.String())
	if err != nil {
		return nil, err
	}
	lin, err := l.dev.(units.Packer).OpenLinear(p.tensor.Name, p.n, p.k, p.mode, b)
	if errors.Is(err, units.ErrPacked) {
		err = l.w.packed.fail(err)
	}
	return lin, err
}

// experts declares the matrices of a mixture, from one tensor an expert or one for all.
func (l *loader) experts(layer int) ([]units.Expert, error) {
	s := &l.model.Spec
	experts := make([]units.Expert, s.Experts)
	// take declares the rows of one expert: n rows after skip, where one tensor holds all experts each of stride rows.
	take := func(role inspect.Role, expert, skip, n, stride int) (units.Linear, error) {
		names := s.WeightNames(role, layer)
		name, first := names[0], expert*stride+skip
		if len(names) > 1 {
			name, first = names[expert], skip
		}
		t, err := l.tensor(name)
		if err != nil {
			return nil, err
		}
		return l.matrix(role, t, []inspect.Rows{{First: first, N: n}})
	}
	gate, up, gateSkip, upSkip, stride := inspect.RoleExpertGate, inspect.RoleExpertUp, 0, 0, s.ExpertInter
	if s.Has(inspect.RoleExpertGateUp) {
		gate, up, upSkip, stride = inspect.RoleExpertGateUp, inspect.RoleExpertGateUp, s.ExpertInter, 2*s.ExpertInter
	}
	for i := range experts {
		e := &experts[i]
		var err error
		if e.Gate, err = take(gate, i, gateSkip, s.ExpertInter, stride); err != nil {
			return nil, err
		}
		if e.Up, err = take(up, i, upSkip, s.ExpertInter, stride); err != nil {
			return nil, err
		}
		if e.Down, err = take(inspect.RoleExpertDown, i, 0, s.Hidden, s.Hidden); err != nil {
			return nil, err
		}
	}
	return experts, nil
}

// norm loads the weights of a norm, and nothing where the model has no such norm.
func (l *loader) norm(ctx context.Context, role inspect.Role, layer int, dst *normWeights) error {
	s := &l.model.Spec
	if !s.Has(role) {
		return nil
	}
	width, _ := s.Dims(role)
	name, w := string(role), make([]float32, width)
	for i := range w {
		w[i] = 1
	}
	var err error
	if names := s.WeightNames(role, layer); names != nil {
		name = names[0]
		if w, err = l.floats(ctx, name, width); err != nil {
			return err
		}
		if s.NormPlusOne {
			for i := range w {
				w[i]++
			}
		}
	}
	if dst.weight, err = l.vector(name, w); err != nil {
		return err
	}
	if name = s.BiasName(role, layer); name == "" {
		return nil
	}
	if w, err = l.floats(ctx, name, width); err != nil {
		return err
	}
	dst.bias, err = l.vector(name, w)
	return err
}
