package units

import (
	"errors"
	"fmt"
)

// attention gates OpStoreKV and OpAttend over ctx positions, and over all for which the device has another way: a prefill, then
// single rows late in the context.
func (g *gate) attention(s GateShapes, ctx, window int) error {
	if ctx < 1 || s.KVHeads < 1 || s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("attention of %d heads, %d key-value heads, %d positions", s.Heads, s.KVHeads, s.Context)
	}
	var at attentionSteps
	at.ends = []int{ctx}
	if d, ok := g.dev.Device.(attendStepper); ok {
		rows, contexts, crowd := d.attendSteps()
		at.prompt = rows
		if window == 0 {
			at.ends, at.crowd, ctx = contexts, crowd, contexts[len(contexts)-1]
		}
	}
	shape := fmt.Sprintf("%d heads of %d, %d key-value heads, %d positions, window %d, cap %v, alibi %v",
		s.Heads, s.HeadDim, s.KVHeads, ctx, window, s.Cap, s.ALiBi)
	caches := map[Device]Cache{}
	return g.attentionRuns(shape, s.KVHeads*s.HeadDim, ctx, at, func(attend bool) builder {
		return func(d Device, sr *gateSeries) (Program, error) {
			return g.attentionProgram(d, sr, s, ctx, window, attend, caches)
		}
	})
}

// attentionProgram stores a row as the keys, so that what fills limbs and exponents to their ends gets into the cache,
// and the row plus its norm as the values, and attends with a linear of a few sums of the row, or only stores. Queries are bounded, so
// that ordinary rows spread their weight over many positions. Without a window, queries and keys are rotated where they are to be.
func (g *gate) attentionProgram(d Device, sr *gateSeries, s GateShapes, ctx, window int, attend bool, caches map[Device]Cache) (Program, error) {
	const few = 32
	width, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	if caches[d] == nil {
		c, err := d.NewCache(CacheSpec{Layers: 1, Slots: 1, Context: ctx, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
		if err != nil {
			return Program{}, err
		}
		caches[d] = c
	}
	norm := Op{Kind: OpNorm, Norm: RMSNorm, Dst: 1, A: 0, B: None, Groups: 1, Eps: 1e-5}
	var err error
	if norm.Weight, err = d.NewVector("gate", sr.values(kv, 2)); err != nil {
		return Program{}, err
	}
	p := Program{In: 0, Out: 2, Cache: caches[d],
		Bufs: []BufSpec{{F32, kv}, {F32, kv}, {F32, kv}, {Limbs, kv}, {F32, width}, {F32, width}, {F32, width}, {F32, few}, {Limbs, few}},
		Ops:  []Op{norm, {Kind: OpAdd, Dst: 2, A: 0, B: 1}},
	}
	var rotations []Op
	if s.RotaryDim > 0 && window == 0 {
		if rotations, err = g.rotations(d, s, ctx, 5, 0); err != nil {
			return Program{}, err
		}
	}
	store := Op{Kind: OpStoreKV, Dst: None, A: 0, B: 2}
	if !attend {
		if rotations != nil {
			p.Ops = append(p.Ops, rotations[1])
		}
		p.Ops = append(p.Ops, store)
		return p, nil
	}
	sums, err := d.NewLinear("gate", few, kv, Int8)
	if err == nil {
		err = sums.PutRows(0, sr.values(few*kv, 0.4))
	}
	if err == nil {
		err = sums.Finish()
	}
	if err != nil {
		return Program{}, err
	}
	queries, err := g.matrix(d, 0, width, few, Int8)
	if err != nil {
		return Program{}, err
	}
	p.Out = 6
	op := Op{Kind: OpAttend, Dst: 6, A: 5, B: None, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Scale: 0.05, Window: window, Cap: s.Cap}
	if s.ALiBi {
		if op.Slopes, err = d.NewVector("gate", sr.values(s.Heads, 1)); err != nil {
			return Program{}, err
		}
	}
	p.Ops = append(p.Ops, Op{Kind: OpQuantize, Dst: 3, A: 0, B: None}, Op{Kind: OpLinear, Dst: 7, A: 3, B: None, Linear: sums},
		Op{Kind: OpQuantize, Dst: 8, A: 7, B: None}, Op{Kind: OpLinear, Dst: 4, A: 8, B: None, Linear: queries}, Op{Kind: OpSoftcap, Dst: 5, A: 4, B: None, Cap: 12})
	p.Ops = append(append(p.Ops, rotations...), store, op)
	return p, nil
}

// heads gates attention of the outputs of three matrices, with biases or without, in what devices merge with it, for few rows.
func (g *gate) heads(s GateShapes, bias bool) error {
	const width = 200 // enough inputs that a device may share them out
	return g.check(OpAttend, s.headsShape(bias), width, g.headsOf(s, bias, gateRows, width))
}

// headsOfPrompt is heads for a batch of the first rows of a session from which on the device has another way.
func (g *gate) headsOfPrompt(s GateShapes, bias bool) error {
	const width = 72 // enough, of so many rows
	d, ok := g.dev.Device.(attendStepper)
	if !ok {
		return nil
	}
	count, _, _ := d.attendSteps()
	shape := fmt.Sprintf("%s, a prompt of %d", s.headsShape(bias), count)
	rows := rowsAt(0, count)
	e, err := g.pair(g.headsOf(s, bias, count, width), rows)
	if err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	sr := gateSeries(g.seed + 3)
	in := make([]float32, count*width)
	for r := range count {
		gateInputs[r%len(gateInputs)].fill(in[r*width:(r+1)*width], &sr)
	}
	if err := e.ready(); err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	return g.attentionRun(shape, width, in, e, 0, count)
}

func (s *GateShapes) headsShape(bias bool) string {
	return fmt.Sprintf("%d heads of %d, %d key-value heads, of matrices, bias %v", s.Heads, s.HeadDim, s.KVHeads, bias)
}

// headsOf is attention of the outputs of three matrices of width inputs.
func (g *gate) headsOf(s GateShapes, bias bool, ctx, width int) builder {
	return func(d Device, sr *gateSeries) (Program, error) {
		q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
		cache, err := d.NewCache(CacheSpec{Layers: 1, Slots: 1, Context: ctx, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
		if err != nil {
			return Program{}, err
		}
		p := Program{In: 0, Out: 6, Cache: cache, Bufs: []BufSpec{{F32, width}, {Limbs, width}, {F32, kv}, {F32, kv}, {F32, kv}, {F32, q}, {F32, q}},
			Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}}}
		const queries, keys, values = 5, 3, 4
		for i, m := range []struct {
			dst Buf
			n   int
		}{{queries, q}, {keys, kv}, {values, kv}} {
			op := Op{Kind: OpLinear, Dst: m.dst, A: 1, B: None}
			if op.Linear, err = g.matrix(d, i, m.n, width, Int8); err != nil {
				return p, err
			}
			if bias {
				if op.Bias, err = d.NewVector("gate", sr.values(m.n, 1)); err != nil {
					return p, err
				}
			}
			p.Ops = append(p.Ops, op)
		}
		rotations, err := g.rotations(d, s, ctx, queries, keys)
		p.Ops = append(append(p.Ops, rotations...), Op{Kind: OpStoreKV, Dst: None, A: keys, B: values},
			Op{Kind: OpAttend, Dst: 6, A: queries, B: None, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Scale: 0.05})
		return p, err
	}
}

// rowsAt are rows of one session at the positions from first on.
func rowsAt(first, count int) []Row {
	rows := make([]Row, count)
	for i := range rows {
		rows[i].Pos = first + i
	}
	return rows
}

// attentionRun compares a batch of count rows at the positions from first on; in are those of all positions.
func (g *gate) attentionRun(shape string, width int, in []float32, e *gatePair, first, count int) error {
	want, err := attentionWant(shape, width, in, e, first, count)
	if err != nil {
		return err
	}
	return g.attentionGot(shape, width, in, e, first, want)
}

// attentionWant is what the reference makes of those rows.
func attentionWant(shape string, width int, in []float32, e *gatePair, first, count int) ([]float32, error) {
	want := make([]float32, count*e.width)
	if err := e.ref.Run(rowsAt(first, count), in[first*width:(first+count)*width], want); err != nil {
		return nil, fmt.Errorf("%s %s, reference: %w", OpAttend, shape, err)
	}
	return want, nil
}

// attentionGot compares a batch of as many rows as want has with it.
func (g *gate) attentionGot(shape string, width int, in []float32, e *gatePair, first int, want []float32) error {
	got := make([]float32, len(want))
	count := len(want) / e.width
	if err := g.run(e.dev, rowsAt(first, count), in[first*width:(first+count)*width], got); err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	g.checks = append(g.checks, GateCheck{OpAttend, shape, len(got)})
	return g.compare(OpAttend, shape, first, got, want, e.width)
}

// rotations are OpRope of queries and keys, in these buffers.
func (g *gate) rotations(d Device, s GateShapes, ctx int, q, k Buf) ([]Op, error) {
	if len(g.cos) != ctx*s.RotaryDim/2 {
		g.cos, g.sin = RopeTables(ctx, s.RotaryDim, 10000)
	}
	op := Op{Kind: OpRope, A: None, B: None, HeadDim: s.HeadDim, RotaryDim: s.RotaryDim, Interleaved: s.Interleaved}
	var err error
	if op.Cos, err = d.NewVector("gate", g.cos); err != nil {
		return nil, err
	}
	if op.Sin, err = d.NewVector("gate", g.sin); err != nil {
		return nil, err
	}
	queries, keys := op, op
	queries.Dst, queries.Heads, keys.Dst, keys.Heads = q, s.Heads, k, s.KVHeads
	return []Op{queries, keys}, nil
}

// attendStepper is a device that computes attention in other ways from so many rows of a batch on, of few rows for each of
// these contexts up to it, in ascending order, and of more rows than that up to the context crowd.
type attendStepper interface {
	attendSteps() (rows int, contexts []int, crowd int)
}

// attentionSteps are what attendSteps gives; ends are the contexts.
type attentionSteps struct {
	prompt, crowd int
	ends          []int
}

// attentionRuns prefills a few blocks with attention, has a batch like that of many sessions, fills up without, but for another such
// batch beyond the context for which these have a shader of their own, and has before each of the ends two single rows, the second of
// which sees what the first has stored, and both in a batch. The program is one that attends, or only stores.
func (g *gate) attentionRuns(shape string, width, ctx int, at attentionSteps, program func(attend bool) builder) error {
	const tail, crowd, span = 2, 17, 256
	head := 70
	if at.prompt < ctx-tail {
		head = max(head, at.prompt+2)
	}
	head = min(head, ctx)
	batches := [][]Row{rowsAt(0, head)}
	var crowds []int // where they begin
	if ctx >= head+crowd+tail {
		crowds = append(crowds, head)
		if beyond := max(at.crowd, head+crowd); at.crowd > 0 && ctx >= beyond+crowd+tail {
			crowds = append(crowds, beyond)
		}
	}
	for _, first := range crowds {
		batches = append(batches, rowsAt(first, crowd))
	}
	if ctx >= head+tail {
		for _, end := range at.ends {
			batches = append(batches, rowsAt(end-tail, tail), rowsAt(end-1, 1))
		}
	}
	attend, err := g.pair(program(true), batches...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	var spans [][]Row
	if n := min(span, ctx-tail-head); n > 0 {
		spans = append(spans, rowsAt(head, n))
	}
	store, err := g.pair(program(false), spans...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", OpStoreKV, shape, err)
	}
	s := gateSeries(g.seed + 2)
	in := make([]float32, ctx*width)
	for r := range ctx {
		// At first ordinary rows, which share the weight, then patterns in between, some of which take all of it.
		input := gateInputs[0]
		if after := r - head/2; after >= 0 && after%3 == 0 {
			input = gateInputs[(1+after/3)%len(gateInputs)]
		}
		input.fill(in[r*width:(r+1)*width], &s)
	}
	if err := errors.Join(attend.ready(), store.ready()); err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	run := func(e *gatePair, first, count int) error {
		return g.attentionRun(shape, width, in, e, first, count)
	}
	if err := run(attend, 0, head); err != nil || ctx == head {
		return err
	}
	filled := head
	fill := func(end int) error {
		for ; filled < end; filled += min(span, end-filled) {
			if err := run(store, filled, min(span, end-filled)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, first := range crowds {
		if err := fill(first); err != nil {
			return err
		}
		if err := run(attend, first, crowd); err != nil {
			return err
		}
		filled = first + crowd
	}
	if err := fill(ctx - tail); err != nil {
		return err
	}
	if ctx < filled+tail {
		return nil
	}
	for _, end := range at.ends {
		first := end - tail
		want, err := attentionWant(shape, width, in, attend, first, tail)
		if err != nil {
			return err
		}
		for row := range tail {
			if err := g.attentionGot(shape, width, in, attend, first+row, want[row*attend.width:][:attend.width]); err != nil {
				return err
			}
		}
		if err := g.attentionGot(shape, width, in, attend, first, want); err != nil {
			return err
		}
	}
	return nil
}
