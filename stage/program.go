package stage

import (
	"fmt"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

// layerWeights are the device handles of one layer. Biases and the gate may be nil.
type layerWeights struct {
	attnNorm, mlpNorm normWeights
	q, k, v, o        linearWeights
	gate, up, down    linearWeights
}

type normWeights struct{ weight, bias units.Vector }

type linearWeights struct {
	w    units.Linear
	bias units.Vector
}

// layerBufs names the activation buffers every layer program shares. H is the hidden width, I the MLP width.
type layerBufs struct {
	hidden units.Buf // [H] residual stream, also In and Out
	norm   units.Buf // [H]
	qin    units.Buf // [H] limbs: input of q, k, v and of gate, up
	q      units.Buf // [heads*headDim]
	k, v   units.Buf // [kvHeads*headDim]
	attn   units.Buf // [heads*headDim]
	qattn  units.Buf // limbs of attn
	out    units.Buf // [H] what is added to the residual stream
	gate   units.Buf // [I]
	up     units.Buf // [I]
	qmlp   units.Buf // [I] limbs
}

// compiler turns a Spec into operations. The order of the operations is the forward pass, as in the papers.
type compiler struct {
	spec     *inspect.Spec
	cos, sin units.Vector
	bufs     []units.BufSpec
	b        layerBufs
	ops      []units.Op
}

func (c *compiler) buf(kind units.BufKind, width int) units.Buf {
	c.bufs = append(c.bufs, units.BufSpec{Kind: kind, Width: width})
	return units.Buf(len(c.bufs) - 1)
}

func newCompiler(spec *inspect.Spec, cos, sin units.Vector) *compiler {
	c := &compiler{spec: spec, cos: cos, sin: sin}
	attn, kv := spec.Heads*spec.HeadDim, spec.KVHeads*spec.HeadDim
	c.b = layerBufs{
		hidden: c.buf(units.F32, spec.Hidden),
		norm:   c.buf(units.F32, spec.Hidden),
		qin:    c.buf(units.Limbs, spec.Hidden),
		q:      c.buf(units.F32, attn),
		k:      c.buf(units.F32, kv),
		v:      c.buf(units.F32, kv),
		attn:   c.buf(units.F32, attn),
		qattn:  c.buf(units.Limbs, attn),
		out:    c.buf(units.F32, spec.Hidden),
		gate:   c.buf(units.F32, spec.Inter),
		up:     c.buf(units.F32, spec.Inter),
		qmlp:   c.buf(units.Limbs, spec.Inter),
	}
	return c
}

// layer appends the operations of one pre-norm transformer layer.
//
//	h += o(attend(rope(q(n)), rope(k(n)), v(n)))   n = norm(h)
//	h += down(act(gate(n)) * up(n))                n = norm(h)
func (c *compiler) layer(layer, cacheLayer int, w *layerWeights) error {
	norm, act, err := variants(c.spec)
	if err != nil {
		return err
	}
	b, s := &c.b, c.spec
	add := func(op units.Op) {
		op.Layer, op.CacheLayer = layer, cacheLayer
		c.ops = append(c.ops, op)
	}
	normalise := func(n normWeights) {
		add(units.Op{Kind: units.OpNorm, Dst: b.norm, A: b.hidden, B: units.None, Norm: norm, Eps: float32(s.NormEps), Groups: 1, Weight: n.weight, Bias: n.bias})
		add(units.Op{Kind: units.OpQuantize, Dst: b.qin, A: b.norm, B: units.None})
	}
	linear := func(dst, a units.Buf, l linearWeights) {
		add(units.Op{Kind: units.OpLinear, Dst: dst, A: a, B: units.None, Linear: l.w, Bias: l.bias})
	}
	residual := func() {
		add(units.Op{Kind: units.OpAdd, Dst: b.hidden, A: b.hidden, B: b.out})
	}
	rotate := func(dst units.Buf, heads int) {
		add(units.Op{Kind: units.OpRope, Dst: dst, A: units.None, B: units.None, Heads: heads, HeadDim: s.HeadDim, RotaryDim: s.RotaryDim, Cos: c.cos, Sin: c.sin})
	}

	normalise(w.attnNorm)
	linear(b.q, b.qin, w.q)
	linear(b.k, b.qin, w.k)
	linear(b.v, b.qin, w.v)
	if s.Rope {
		rotate(b.q, s.Heads)
		rotate(b.k, s.KVHeads)
	}
	add(units.Op{Kind: units.OpStoreKV, Dst: units.None, A: b.k, B: b.v, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
	add(units.Op{Kind: units.OpAttend, Dst: b.attn, A: b.q, B: units.None, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Scale: float32(s.AttnScale)})
	add(units.Op{Kind: units.OpQuantize, Dst: b.qattn, A: b.attn, B: units.None})
	linear(b.out, b.qattn, w.o)
	residual()

	normalise(w.mlpNorm)
	linear(b.up, b.qin, w.up)
	if s.Gated {
		linear(b.gate, b.qin, w.gate)
		add(units.Op{Kind: units.OpAct, Dst: b.up, A: b.gate, B: b.up, Act: act})
	} else {
		add(units.Op{Kind: units.OpAct, Dst: b.up, A: b.up, B: units.None, Act: act})
	}
	add(units.Op{Kind: units.OpQuantize, Dst: b.qmlp, A: b.up, B: units.None})
	linear(b.out, b.qmlp, w.down)
	residual()
	return nil
}

// layerProgram compiles layers rng of w (indexed from w.Range.First) into one program.
func layerProgram(w *Weights, rng plan.Range, cache units.Cache) (units.Program, error) {
	c := newCompiler(&w.Model.Spec, w.cos, w.sin)
	for layer := rng.First; layer <= rng.Last; layer++ {
		i := layer - w.Range.First
		if err := c.layer(layer, i, &w.layers[i]); err != nil {
			return units.Program{}, err
		}
	}
	return units.Program{Bufs: c.bufs, Ops: c.ops, In: c.b.hidden, Out: c.b.hidden, Cache: cache}, nil
}

// readoutProgram compiles final norm and language-model head: hidden row [H] -> logits [vocab].
func readoutProgram(spec *inspect.Spec, norm normWeights, head linearWeights) (units.Program, error) {
	kind, _, err := variants(spec)
	if err != nil {
		return units.Program{}, err
	}
	const in, normed, limbs, logits = 0, 1, 2, 3
	return units.Program{
		Bufs: []units.BufSpec{
			in:     {Kind: units.F32, Width: spec.Hidden},
			normed: {Kind: units.F32, Width: spec.Hidden},
			limbs:  {Kind: units.Limbs, Width: spec.Hidden},
			logits: {Kind: units.F32, Width: spec.Vocab},
		},
		Ops: []units.Op{
			{Kind: units.OpNorm, Dst: normed, A: in, B: units.None, Layer: spec.Layers, Norm: kind, Eps: float32(spec.NormEps), Groups: 1, Weight: norm.weight, Bias: norm.bias},
			{Kind: units.OpQuantize, Dst: limbs, A: normed, B: units.None, Layer: spec.Layers},
			{Kind: units.OpLinear, Dst: logits, A: limbs, B: units.None, Layer: spec.Layers, Linear: head.w, Bias: head.bias},
		},
		In: in, Out: logits,
	}, nil
}

// variants maps the Spec's names to the operations' kinds.
func variants(s *inspect.Spec) (units.NormKind, units.ActKind, error) {
	norms := map[string]units.NormKind{"rms": units.RMSNorm, "ln": units.LayerNorm}
	acts := map[string]units.ActKind{"silu": units.SiLU, "gelu_tanh": units.GELUTanh}
	norm, ok := norms[s.Norm]
	if !ok {
		return 0, 0, fmt.Errorf("compiling %s: norm %q is not supported", s.Family, s.Norm)
	}
	act, ok := acts[s.Act]
	if !ok {
		return 0, 0, fmt.Errorf("compiling %s: activation %q is not supported", s.Family, s.Act)
	}
	return norm, act, nil
}
