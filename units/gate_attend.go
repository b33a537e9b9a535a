package units

import "fmt"

// attention gates OpStoreKV and OpAttend over ctx positions: a prefill, then single rows late in the context.
func (g *gate) attention(s GateShapes, ctx, window int) error {
	if ctx < 1 || s.KVHeads < 1 || s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("attention of %d heads, %d key-value heads, %d positions", s.Heads, s.KVHeads, s.Context)
	}
	shape := fmt.Sprintf("%d heads of %d, %d key-value heads, %d positions, window %d, cap %v, alibi %v",
		s.Heads, s.HeadDim, s.KVHeads, ctx, window, s.Cap, s.ALiBi)
	caches := map[Device]Cache{}
	defer func() {
		for _, c := range caches {
			c.Close()
		}
	}()
	build := func(attend bool) builder {
		return func(d Device, sr *gateSeries) (Program, error) {
			return g.attentionProgram(d, sr, s, ctx, window, attend, caches)
		}
	}
	var attend, store [2]Executable
	var err error
	if attend[0], attend[1], _, err = g.pair(build(true)); err != nil {
		return err
	}
	if store[0], store[1], _, err = g.pair(build(false)); err != nil {
		return err
	}
	return g.attentionRuns(shape, s.Heads*s.HeadDim, ctx, attend, store)
}

// attentionProgram makes keys and values from the row by scaling and normalising, so that they differ, and attends or
// only stores.
func (g *gate) attentionProgram(d Device, sr *gateSeries, s GateShapes, ctx, window int, attend bool, caches map[Device]Cache) (Program, error) {
	width, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	if caches[d] == nil {
		c, err := d.NewCache(CacheSpec{Layers: 1, Slots: 1, Context: ctx, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
		if err != nil {
			return Program{}, err
		}
		caches[d] = c
	}
	p := Program{In: 0, Out: 0, Cache: caches[d],
		Bufs: []BufSpec{{F32, width}, {Limbs, width}, {F32, kv}, {F32, kv}, {F32, width}},
		Ops:  []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}}}
	for dst := Buf(2); dst <= 3; dst++ {
		l, err := sr.linear(d, kv, width, Int8)
		if err != nil {
			return Program{}, err
		}
		p.Ops = append(p.Ops, Op{Kind: OpLinear, Dst: dst, A: 1, B: None, Linear: l})
	}
	p.Ops = append(p.Ops, Op{Kind: OpStoreKV, Dst: None, A: 2, B: 3})
	if attend {
		p.Out = 4
		op := Op{Kind: OpAttend, Dst: 4, A: 0, B: None, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
			Scale: 0.05, Window: window, Cap: s.Cap}
		if s.ALiBi {
			var err error
			if op.Slopes, err = d.NewVector("gate", sr.values(s.Heads, 1)); err != nil {
				return Program{}, err
			}
		}
		p.Ops = append(p.Ops, op)
	}
	return p, nil
}

// attentionRuns prefills a few blocks with attention, fills up without, and ends with a short batch and single rows.
func (g *gate) attentionRuns(shape string, width, ctx int, attend, store [2]Executable) error {
	s := gateSeries(g.seed + 2)
	in := make([]float32, ctx*width)
	for r := range ctx {
		// Mostly ordinary rows; the patterns in between.
		input := gateInputs[0]
		if r%5 == 4 {
			input = gateInputs[r/5%len(gateInputs)]
		}
		input.fill(in[r*width:(r+1)*width], &s)
	}
	run := func(e [2]Executable, first, count int, compare bool) error {
		rows := make([]Row, count)
		for i := range rows {
			rows[i].Pos = first + i
		}
		x := in[first*width : (first+count)*width]
		got, want := make([]float32, count*width), make([]float32, count*width)
		if err := e[1].Run(rows, x, want); err != nil {
			return fmt.Errorf("%s %s, reference: %w", OpAttend, shape, err)
		}
		if err := g.run(e[0], rows, x, got); err != nil {
			return fmt.Errorf("%s %s: %w", OpAttend, shape, err)
		}
		if !compare {
			return nil
		}
		g.checks = append(g.checks, GateCheck{OpAttend, shape, count * width})
		return g.compare(OpAttend, shape, first, got, want, width)
	}
	const head, tail = 70, 4
	if err := run(attend, 0, min(head, ctx), true); err != nil || ctx <= head {
		return err
	}
	for first := head; first < ctx-tail; first += 256 {
		if err := run(store, first, min(256, ctx-tail-first), false); err != nil {
			return err
		}
	}
	if ctx < head+tail {
		return nil
	}
	if err := run(attend, ctx-tail, tail-1, true); err != nil {
		return err
	}
	return run(attend, ctx-1, 1, true)
}
