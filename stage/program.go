package stage

import (
	"fmt"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

// layerWeights are the device handles of one layer. What a layer does not have is nil: biases, norms, the gate, experts.
type layerWeights struct {
	attnNorm, qNorm, kNorm, postAttnNorm normWeights
	mlpNorm, postMLPNorm                 normWeights
	q, k, v, o                           linearWeights
	gate, up, down                       linearWeights
	router                               linearWeights
	experts                              []units.Expert
	rope                                 ropeTables
	slopes                               units.Vector // ALiBi
}

type normWeights struct{ weight, bias units.Vector }

type linearWeights struct {
	w    units.Linear
	bias units.Vector
}

// ropeTables are the rotary cosines and sines, [positions][rotaryDim/2]. Queries have tables of their own where they are
// scaled by their position.
type ropeTables struct{ cos, sin, queryCos, querySin units.Vector }

// layerBufs names the activation buffers every layer program shares. H is the hidden width, I the MLP width.
type layerBufs struct {
	hidden units.Buf // [H] residual stream, also In and Out
	norm   units.Buf // [H]
	qin    units.Buf // [H] limbs: input of q, k, v and of the feed-forward network
	q      units.Buf // [heads*headDim]
	k, v   units.Buf // [kvHeads*headDim]
	attn   units.Buf // [heads*headDim]
	qattn  units.Buf // limbs of attn
	out    units.Buf // [H] what is added to the residual stream
	gate   units.Buf // [I]
	up     units.Buf // [I]
	qmlp   units.Buf // [I] limbs
	router units.Buf // [experts] logits
	route  units.Buf // [2*topK] experts and their weights
	dense  units.Buf // [H] output of the network beside the experts
}

// compiler turns a Spec into operations. The order of the operations is the forward pass, as in the papers.
type compiler struct {
	spec *inspect.Spec
	norm units.NormKind
	act  units.ActKind
	bufs []units.BufSpec
	b    layerBufs
	ops  []units.Op

	layer, cacheLayer int // of the operations being added
}

func newCompiler(spec *inspect.Spec) (*compiler, error) {
	norm, act, err := variants(spec)
	if err != nil {
		return nil, err
	}
	c := &compiler{spec: spec, norm: norm, act: act}
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
	}
	if spec.Has(inspect.RoleDown) {
		c.b.gate = c.buf(units.F32, spec.Inter)
		c.b.up = c.buf(units.F32, spec.Inter)
		c.b.qmlp = c.buf(units.Limbs, spec.Inter)
	}
	if spec.Experts > 0 {
		c.b.router = c.buf(units.F32, spec.Experts)
		c.b.route = c.buf(units.F32, 2*spec.TopK)
		c.b.dense = c.buf(units.F32, spec.Hidden)
	}
	return c, nil
}

// addLayer appends the operations of one transformer layer. Norms that the model does not have fall away.
//
//	h += postNorm(attention(norm(h)))
//	h += postNorm(feedForward(norm(h)))     Parallel: of the h before the first line
//
// NormAfter:
//
//	h = norm(h + attention(h))
//	h = norm(h + feedForward(h))
func (c *compiler) addLayer(layer, cacheLayer int, w *layerWeights) {
	c.layer, c.cacheLayer = layer, cacheLayer
	b, s, l := &c.b, c.spec, c.spec.Layer(layer)

	if s.NormAfter {
		c.input(normWeights{})
		c.attention(l, w)
		c.residual()
		c.normalise(b.hidden, b.hidden, w.attnNorm)
		c.input(normWeights{})
		c.feedForward(b.out, w)
		c.residual()
		c.normalise(b.hidden, b.hidden, w.mlpNorm)
		return
	}
	c.input(w.attnNorm)
	c.attention(l, w)
	c.normalise(b.out, b.out, w.postAttnNorm)
	if s.Parallel {
		if s.Has(inspect.RoleMLPNorm) {
			c.input(w.mlpNorm)
		}
		c.residual()
	} else {
		c.residual()
		c.input(w.mlpNorm)
	}
	switch {
	case l.Experts && l.Dense:
		c.mixture(w)
		c.feedForward(b.dense, w)
		c.add(units.Op{Kind: units.OpAdd, Dst: b.out, A: b.out, B: b.dense})
	case l.Experts:
		c.mixture(w)
	default:
		c.feedForward(b.out, w)
	}
	c.normalise(b.out, b.out, w.postMLPNorm)
	c.residual()
}

// attention: out = o(attend(rope(q), rope(k), v)), of the layer's input.
func (c *compiler) attention(l inspect.LayerSpec, w *layerWeights) {
	b, s := &c.b, c.spec
	c.linear(b.q, b.qin, w.q)
	c.linear(b.k, b.qin, w.k)
	c.linear(b.v, b.qin, w.v)
	if !s.QKNormLate {
		c.headNorms(w)
	}
	if l.Rope != nil {
		c.rotate(b.q, s.Heads, l.Rope, w.rope.queryCos, w.rope.querySin)
		c.rotate(b.k, s.KVHeads, l.Rope, w.rope.cos, w.rope.sin)
	}
	if s.QKNormLate {
		c.headNorms(w)
	}
	c.add(units.Op{Kind: units.OpStoreKV, Dst: units.None, A: b.k, B: b.v, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
	c.add(units.Op{Kind: units.OpAttend, Dst: b.attn, A: b.q, B: units.None, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
		Scale: float32(l.AttnScale), Window: l.Window, Cap: float32(s.AttnCap), Slopes: w.slopes})
	c.quantize(b.qattn, b.attn)
	c.linear(b.out, b.qattn, w.o)
}

// feedForward: dst = down(act(gate(n)) * up(n)), or down(act(up(n))), of the layer's input n.
func (c *compiler) feedForward(dst units.Buf, w *layerWeights) {
	b := &c.b
	c.linear(b.up, b.qin, w.up)
	op := units.Op{Kind: units.OpAct, Dst: b.up, A: b.up, B: units.None, Act: c.act}
	if c.spec.Gated {
		c.linear(b.gate, b.qin, w.gate)
		op.A, op.B = b.gate, b.up
	} else if c.spec.Act == "relu2" {
		op.B = b.up // relu(x) * x
	}
	c.add(op)
	c.quantize(b.qmlp, b.up)
	c.linear(dst, b.qmlp, w.down)
}

// mixture: out = the weighted sum of the experts that the router picks for each row.
func (c *compiler) mixture(w *layerWeights) {
	b, s := &c.b, c.spec
	c.linear(b.router, b.qin, w.router)
	c.add(units.Op{Kind: units.OpRoute, Dst: b.route, A: b.router, B: units.None, TopK: s.TopK, Normalise: s.TopKRenorm})
	c.add(units.Op{Kind: units.OpExperts, Dst: b.out, A: b.qin, B: b.route, TopK: s.TopK, Act: c.act, Experts: w.experts})
}

func (c *compiler) buf(kind units.BufKind, width int) units.Buf {
	c.bufs = append(c.bufs, units.BufSpec{Kind: kind, Width: width})
	return units.Buf(len(c.bufs) - 1)
}

func (c *compiler) add(op units.Op) {
	op.Layer, op.CacheLayer = c.layer, c.cacheLayer
	c.ops = append(c.ops, op)
}

// input makes the input of attention or feed-forward: the normalised residual stream, or as it is without a norm.
func (c *compiler) input(n normWeights) {
	from := c.b.hidden
	if n.weight != nil {
		c.normalise(c.b.norm, from, n)
		from = c.b.norm
	}
	c.quantize(c.b.qin, from)
}

// normalise adds a norm of whole rows, or nothing where the model has none.
func (c *compiler) normalise(dst, a units.Buf, n normWeights) {
	if n.weight != nil {
		c.groupNorm(dst, a, 1, n)
	}
}

func (c *compiler) groupNorm(dst, a units.Buf, groups int, n normWeights) {
	c.add(units.Op{Kind: units.OpNorm, Dst: dst, A: a, B: units.None, Norm: c.norm, Eps: float32(c.spec.NormEps), Groups: groups, Weight: n.weight, Bias: n.bias})
}

// headNorms normalises queries and keys, each head by itself or across the width.
func (c *compiler) headNorms(w *layerWeights) {
	if c.spec.QKNorm == "" {
		return
	}
	q, k := c.spec.Heads, c.spec.KVHeads
	if c.spec.QKNorm == "width" {
		q, k = 1, 1
	}
	c.groupNorm(c.b.q, c.b.q, q, w.qNorm)
	c.groupNorm(c.b.k, c.b.k, k, w.kNorm)
}

func (c *compiler) rotate(dst units.Buf, heads int, r *inspect.RopeSpec, cos, sin units.Vector) {
	c.add(units.Op{Kind: units.OpRope, Dst: dst, A: units.None, B: units.None, Heads: heads, HeadDim: c.spec.HeadDim,
		RotaryDim: r.RotaryDim, Interleaved: c.spec.RopeInterleaved, Cos: cos, Sin: sin})
}

func (c *compiler) quantize(dst, a units.Buf) {
	c.add(units.Op{Kind: units.OpQuantize, Dst: dst, A: a, B: units.None})
}

func (c *compiler) linear(dst, a units.Buf, l linearWeights) {
	c.add(units.Op{Kind: units.OpLinear, Dst: dst, A: a, B: units.None, Linear: l.w, Bias: l.bias})
}

func (c *compiler) scale(b units.Buf, by float64) {
	if by != 0 && by != 1 {
		c.add(units.Op{Kind: units.OpScale, Dst: b, A: b, B: units.None, Scale: float32(by)})
	}
}

// residual adds the output to the residual stream.
func (c *compiler) residual() {
	c.scale(c.b.out, c.spec.ResidualScale)
	c.add(units.Op{Kind: units.OpAdd, Dst: c.b.hidden, A: c.b.hidden, B: c.b.out})
}

// layerProgram compiles layers rng of w (indexed from w.Range.First) into one program.
func layerProgram(w *Weights, rng plan.Range, cache units.Cache) (units.Program, error) {
	c, err := newCompiler(&w.Model.Spec)
	if err != nil {
		return units.Program{}, err
	}
	c.addLayers(w, rng)
	return units.Program{Bufs: c.bufs, Ops: c.ops, In: c.b.hidden, Out: c.b.hidden, Cache: cache}, nil
}

// modelProgram compiles all layers of w and its readout into one program: row [H] -> what addReadout says.
func modelProgram(w *Weights, cache units.Cache, top int) (units.Program, error) {
	c, err := newCompiler(&w.Model.Spec)
	if err != nil {
		return units.Program{}, err
	}
	c.addLayers(w, w.Range)
	out := c.addReadout(w, top)
	return units.Program{Bufs: c.bufs, Ops: c.ops, In: c.b.hidden, Out: out, Cache: cache}, nil
}

func (c *compiler) addLayers(w *Weights, rng plan.Range) {
	for layer := rng.First; layer <= rng.Last; layer++ {
		i := layer - w.Range.First
		c.addLayer(layer, i, &w.layers[i])
	}
}

// embedProgram compiles the norm of embeddings: row [H] -> row [H].
func embedProgram(spec *inspect.Spec, norm normWeights) (units.Program, error) {
	kind, _, err := variants(spec)
	if err != nil {
		return units.Program{}, err
	}
	c := &compiler{spec: spec, norm: kind}
	row := c.buf(units.F32, spec.Hidden)
	c.normalise(row, row, norm)
	return units.Program{Bufs: c.bufs, Ops: c.ops, In: row, Out: row}, nil
}

// projectProgram compiles the projection of embeddings: row [E] -> row [H].
func projectProgram(spec *inspect.Spec, proj linearWeights) units.Program {
	c := &compiler{spec: spec}
	in, limbs, out := c.buf(units.F32, spec.EmbedWidth()), c.buf(units.Limbs, spec.EmbedWidth()), c.buf(units.F32, spec.Hidden)
	c.quantize(limbs, in)
	c.linear(out, limbs, proj)
	return units.Program{Bufs: c.bufs, Ops: c.ops, In: in, Out: out}
}

// readoutProgram compiles the readout of w alone: hidden row [H] -> what addReadout says.
func readoutProgram(w *Weights, top int) (units.Program, error) {
	spec := &w.Model.Spec
	kind, _, err := variants(spec)
	if err != nil {
		return units.Program{}, err
	}
	c := &compiler{spec: spec, norm: kind}
	c.b = layerBufs{hidden: c.buf(units.F32, spec.Hidden), norm: c.buf(units.F32, spec.Hidden), qin: c.buf(units.Limbs, spec.Hidden)}
	out := c.addReadout(w, top)
	return units.Program{Bufs: c.bufs, Ops: c.ops, In: c.b.hidden, Out: out}, nil
}

// addReadout appends final norm, projection, where the model has these, and language-model head. It returns the buffer of the
// logits [vocab] if top is 0, else of the most probable tokens [2*top]: their ids, then their logits.
func (c *compiler) addReadout(w *Weights, top int) units.Buf {
	s := c.spec
	c.layer, c.cacheLayer = s.Layers, 0
	c.input(w.finalNorm)
	last := c.b.qin
	if w.readProj.w != nil {
		narrow := c.buf(units.F32, s.EmbedWidth())
		c.linear(narrow, last, w.readProj)
		last = c.buf(units.Limbs, s.EmbedWidth())
		c.quantize(last, narrow)
	}
	logits := c.buf(units.F32, s.Vocab)
	c.linear(logits, last, w.lmHead)
	c.scale(logits, s.LogitScale)
	if s.LogitCap != 0 {
		c.add(units.Op{Kind: units.OpSoftcap, Dst: logits, A: logits, B: units.None, Cap: float32(s.LogitCap)})
	}
	if top == 0 {
		return logits
	}
	best := c.buf(units.F32, 2*top)
	c.add(units.Op{Kind: units.OpTop, Dst: best, A: logits, B: units.None, TopK: top})
	return best
}

// variants maps the Spec's names to the operations' kinds.
func variants(s *inspect.Spec) (units.NormKind, units.ActKind, error) {
	norms := map[string]units.NormKind{"rms": units.RMSNorm, "ln": units.LayerNorm}
	acts := map[string]units.ActKind{
		"silu": units.SiLU, "gelu_tanh": units.GELUTanh, "gelu": units.GELU, "relu": units.ReLU, "relu2": units.ReLU,
	}
	norm, ok := norms[s.Norm]
	if !ok {
		return 0, 0, fmt.Errorf("compiling %s: norm %q is not supported", s.Family, s.Norm)
	}
	act, ok := acts[s.Act]
	if !ok || s.Act == "relu2" && (s.Gated || s.Experts > 0) {
		return 0, 0, fmt.Errorf("compiling %s: activation %q is not supported", s.Family, s.Act)
	}
	return norm, act, nil
}
