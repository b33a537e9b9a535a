package units

import "fmt"

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
	build := func(attend bool) builder {
		return func(d Device, sr *gateSeries) (Program, error) {
			return g.attentionProgram(d, sr, s, ctx, window, attend, caches)
		}
	}
	var attend, store attentionPair
	var err error
	if attend.dev, attend.ref, attend.width, err = g.pair(build(true)); err != nil {
		return err
	}
	if store.dev, store.ref, store.width, err = g.pair(build(false)); err != nil {
		return err
	}
	return g.attentionRuns(shape, s.KVHeads*s.HeadDim, ctx, at, attend, store)
}

// attentionProgram stores a row as the keys, so that what fills limbs and exponents to their ends gets into the cache,
// and the row plus its norm as the values, and attends with a linear of the row or only stores. Queries are bounded, so that
// ordinary rows spread their weight over many positions. Without a window, queries and keys are rotated where they are to be.
func (g *gate) attentionProgram(d Device, sr *gateSeries, s GateShapes, ctx, window int, attend bool, caches map[Device]Cache) (Program, error) {
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
		Bufs: []BufSpec{{F32, kv}, {F32, kv}, {F32, kv}, {Limbs, kv}, {F32, width}, {F32, width}, {F32, width}},
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
	queries, err := sr.linear(d, width, kv, Int8)
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
	p.Ops = append(p.Ops, Op{Kind: OpQuantize, Dst: 3, A: 0, B: None}, Op{Kind: OpLinear, Dst: 4, A: 3, B: None, Linear: queries},
		Op{Kind: OpSoftcap, Dst: 5, A: 4, B: None, Cap: 8})
	p.Ops = append(append(p.Ops, rotations...), store, op)
	return p, nil
}

// heads gates attention of the outputs of three matrices, with biases or without, in what devices merge with it.
func (g *gate) heads(s GateShapes, bias bool) error {
	const width, promptWidth = 200, 72 // enough inputs that a device may share them out, of few rows and of many
	shape := fmt.Sprintf("%d heads of %d, %d key-value heads, of matrices, bias %v", s.Heads, s.HeadDim, s.KVHeads, bias)
	build := func(ctx, width int) builder {
		return func(d Device, sr *gateSeries) (Program, error) {
			q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
			cache, err := d.NewCache(CacheSpec{Layers: 1, Slots: 1, Context: ctx, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
			if err != nil {
				return Program{}, err
			}
			p := Program{In: 0, Out: 6, Cache: cache, Bufs: []BufSpec{{F32, width}, {Limbs, width}, {F32, kv}, {F32, kv}, {F32, kv}, {F32, q}, {F32, q}},
				Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}}}
			const queries, keys, values = 5, 3, 4
			for _, m := range []struct {
				dst Buf
				n   int
			}{{queries, q}, {keys, kv}, {values, kv}} {
				l, err := sr.linear(d, m.n, width, Int8)
				if err != nil {
					return p, err
				}
				op := Op{Kind: OpLinear, Dst: m.dst, A: 1, B: None, Linear: l}
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
	err := g.check(OpAttend, shape, width, build(len(gateInputs), width))
	if d, ok := g.dev.Device.(attendStepper); ok && err == nil {
		rows, _, _ := d.attendSteps()
		err = g.prompt(fmt.Sprintf("%s, a prompt of %d", shape, rows), promptWidth, rows, build(rows, promptWidth))
	}
	return err
}

// prompt compares a batch of that many rows, the first of a session.
func (g *gate) prompt(shape string, width, rows int, build builder) error {
	var runs attentionPair
	var err error
	if runs.dev, runs.ref, runs.width, err = g.pair(build); err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	s := gateSeries(g.seed + 3)
	in := make([]float32, rows*width)
	for r := range rows {
		gateInputs[r%len(gateInputs)].fill(in[r*width:(r+1)*width], &s)
	}
	if err := prepare(runs.dev, rowsAt(0, rows)); err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	return g.attentionRun(shape, width, in, runs, 0, rows)
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
func (g *gate) attentionRun(shape string, width int, in []float32, e attentionPair, first, count int) error {
	rows := rowsAt(first, count)
	x := in[first*width : (first+count)*width]
	got, want := make([]float32, count*e.width), make([]float32, count*e.width)
	if err := e.ref.Run(rows, x, want); err != nil {
		return fmt.Errorf("%s %s, reference: %w", OpAttend, shape, err)
	}
	if err := g.run(e.dev, rows, x, got); err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	g.checks = append(g.checks, GateCheck{OpAttend, shape, len(got)})
	return g.compare(OpAttend, shape, first, got, want, e.width)
}

// rotations are OpRope of queries and keys, in these buffers.
func (g *gate) rotations(d Device, s GateShapes, ctx int, q, k Buf) ([]Op, error) {
	cos, sin := RopeTables(ctx, s.RotaryDim, 10000)
	op := Op{Kind: OpRope, A: None, B: None, HeadDim: s.HeadDim, RotaryDim: s.RotaryDim, Interleaved: s.Interleaved}
	var err error
	if op.Cos, err = d.NewVector("gate", cos); err != nil {
		return nil, err
	}
	if op.Sin, err = d.NewVector("gate", sin); err != nil {
		return nil, err
	}
	queries, keys := op, op
	queries.Dst, queries.Heads, keys.Dst, keys.Heads = q, s.Heads, k, s.KVHeads
	return []Op{queries, keys}, nil
}

// attentionPair is a program on both devices, and the width of its result.
type attentionPair struct {
	dev, ref Executable
	width    int
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
// batch beyond the context for which these have a shader of their own, and has before each of the ends a short batch and two
// single rows, the second of which sees what the first has stored.
func (g *gate) attentionRuns(shape string, width, ctx int, at attentionSteps, attend, store attentionPair) error {
	const tail, crowd = 4, 20
	head := 70
	if at.prompt < ctx-tail {
		head = max(head, at.prompt+2)
	}
	var crowds []int // where they begin
	if ctx >= head+crowd+tail {
		crowds = append(crowds, head)
		if beyond := max(at.crowd, head+crowd); at.crowd > 0 && ctx >= beyond+crowd+tail {
			crowds = append(crowds, beyond)
		}
	}
	s := gateSeries(g.seed + 2)
	in := make([]float32, ctx*width)
	for r := range ctx {
		// At first ordinary rows, which share the weight, then patterns in between, some of which take all of it.
		input := gateInputs[0]
		if after := r - min(head, ctx)/2; after >= 0 && after%3 == 0 {
			input = gateInputs[(1+after/3)%len(gateInputs)]
		}
		input.fill(in[r*width:(r+1)*width], &s)
	}
	batches := [][]Row{rowsAt(0, min(head, ctx))}
	if ctx >= head+tail {
		for _, end := range at.ends {
			batches = append(batches, rowsAt(end-tail, tail-2), rowsAt(end-1, 1))
		}
	}
	for _, first := range crowds {
		batches = append(batches, rowsAt(first, crowd))
	}
	err := prepare(attend.dev, batches...)
	if n := min(256, ctx-tail-head); err == nil && n > 0 {
		err = prepare(store.dev, rowsAt(head, n))
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
	}
	run := func(e attentionPair, first, count int) error {
		return g.attentionRun(shape, width, in, e, first, count)
	}
	if err := run(attend, 0, min(head, ctx)); err != nil || ctx <= head {
		return err
	}
	filled := head
	fill := func(end int) error {
		for ; filled < end; filled += min(256, end-filled) {
			if err := run(store, filled, min(256, end-filled)); err != nil {
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
		if err := run(attend, end-tail, tail-2); err != nil {
			return err
		}
		if err := run(attend, end-2, 1); err != nil {
			return err
		}
		if err := run(attend, end-1, 1); err != nil {
			return err
		}
	}
	return nil
}
