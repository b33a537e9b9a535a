package unitstest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"dchain/units"
)

// testRoute gives logits directly: those of the patterns, ties of every kind, and ones far apart.
func testRoute(t *testing.T, dev units.Device) {
	for _, c := range []struct{ experts, topK int }{{1, 1}, {4, 1}, {4, 2}, {4, 4}, {8, 8}, {60, 4}, {128, 8}} {
		for _, normalise := range []bool{false, true} {
			b := newBench(t, dev, uint64(c.experts))
			in, out := b.buf(units.F32, c.experts), b.buf(units.F32, 2*c.topK)
			b.op(units.Op{Kind: units.OpRoute, Dst: out, A: in, B: units.None, TopK: c.topK, Normalise: normalise})
			rows, x := inputs(b.rng, c.experts)
			for range 20 { // few different logits
				for range c.experts {
					x = append(x, f32(b.rng.IntN(3))-1)
				}
				rows++
			}
			for i := range 5 {
				x = append(x, b.normal(c.experts, math.Ldexp(1, 3*i-2))...)
				rows++
			}
			b.everyBuffer(positions(0, 0, rows), x)
		}
	}
}

// testTies states what a tie gives: the lower indices, of equal weight.
func testTies(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 1)
	in, out := b.buf(units.F32, 6), b.buf(units.F32, 4)
	b.op(units.Op{Kind: units.OpRoute, Dst: out, A: in, B: units.None, TopK: 2, Normalise: true})
	b.prog.Out = out
	for _, c := range []struct{ logits, want []f32 }{
		{[]f32{0, 0, 0, 0, 0, 0}, []f32{0, 1, 0.5, 0.5}},
		{[]f32{-1, 2, 0, 2, 2, 1}, []f32{1, 3, 0.5, 0.5}},
		{[]f32{1, 0, 3, 1, 1, 0}, []f32{0, 2, 0, 0}},
		{[]f32{-200, 100, -300, -300, -200, -250}, []f32{0, 1, 0, 1}},
	} {
		got := b.run(b.compile(), positions(0, 0, 1), c.logits)
		for i, w := range c.want {
			if (i < 2 || w != 0) && math.Abs(float64(got[i]-w)) > 1e-7 {
				t.Errorf("route of %v is %v, want %v", c.logits, got, c.want)
				break
			}
		}
	}
}

// mixture builds in -> quantise -> router -> route -> experts and leaves Out at the result.
func mixture(b *bench, hidden, inter, experts int, mode units.WeightMode, op units.Op) {
	in, limbs := b.buf(units.F32, hidden), b.buf(units.Limbs, hidden)
	b.op(units.Op{Kind: units.OpQuantize, Dst: limbs, A: in, B: units.None})
	logits, route, out := b.buf(units.F32, experts), b.buf(units.F32, 2*op.TopK), b.buf(units.F32, hidden)
	router := b.normal(experts*hidden, 0.3)
	if experts > 3 {
		copy(router[2*hidden:3*hidden], router[hidden:2*hidden]) // experts 1 and 2 tie on every row
	}
	b.op(units.Op{Kind: units.OpLinear, Dst: logits, A: limbs, B: units.None, Linear: b.linear(experts, hidden, units.Int8x2, router)})
	b.op(units.Op{Kind: units.OpRoute, Dst: route, A: logits, B: units.None, TopK: op.TopK, Normalise: op.Normalise})
	op.Kind, op.Dst, op.A, op.B = units.OpExperts, out, limbs, route
	for range experts {
		op.Experts = append(op.Experts, units.Expert{
			Gate: b.linear(inter, hidden, mode, b.normal(inter*hidden, 0.2)),
			Up:   b.linear(inter, hidden, mode, b.normal(inter*hidden, 0.2)),
			Down: b.linear(hidden, inter, mode, b.normal(inter*hidden, 0.2)),
		})
	}
	b.op(op)
	b.prog.In, b.prog.Out = in, out
}

// testExperts compares batches with the reference, and the same rows in pieces of several sizes and out of order with
// the batch: which rows share an expert must not show.
func testExperts(t *testing.T, dev units.Device) {
	for i, c := range []struct {
		hidden, inter, experts int
		mode                   units.WeightMode
		op                     units.Op
	}{
		{24, 20, 4, units.Int8, units.Op{TopK: 2, Normalise: true}},
		{17, 40, 5, units.Int8x2, units.Op{TopK: 1, Act: units.GELU}},
		{64, 33, 8, units.Int8, units.Op{TopK: 3, Act: units.GELUTanh}},
		{16, 16, 4, units.Int8x2, units.Op{TopK: 4, Normalise: true, Act: units.ReLU}},
		{8, 5, 1, units.Int8, units.Op{TopK: 1}},
		{20, 12, 40, units.Int8, units.Op{TopK: 6, Normalise: true}},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.op.TopK, c.experts), func(t *testing.T) {
			b := newBench(t, dev, uint64(i))
			mixture(b, c.hidden, c.inter, c.experts, c.mode, c.op)
			const n = 60
			x := append(cycle(b, n/2, c.hidden), b.normal(n/2*c.hidden, 1)...)
			e := b.compile()
			want := b.reference(newCached(), positions(0, 0, n), x)
			same(t, "batch", b.run(e, positions(0, 0, n), x), want, c.hidden)
			for _, size := range []int{1, 2, 13, 32} {
				for first := 0; first < n; first += size {
					lo, hi := first*c.hidden, min(first+size, n)*c.hidden
					same(t, fmt.Sprintf("%d rows from %d", size, first), b.run(e, positions(0, first, min(size, n-first)), x[lo:hi]), want[lo:hi], c.hidden)
				}
			}
			var mixed []f32
			order := b.rng.Perm(n)
			for _, r := range order {
				mixed = append(mixed, x[r*c.hidden:(r+1)*c.hidden]...)
			}
			got := b.run(e, positions(0, 0, n), mixed)
			for at, r := range order {
				same(t, fmt.Sprintf("row %d at %d", r, at), got[at*c.hidden:(at+1)*c.hidden], want[r*c.hidden:(r+1)*c.hidden], c.hidden)
			}
		})
	}
}

// testExpertAccuracy compares a mixture with float64: what is left is the error of the formats.
func testExpertAccuracy(t *testing.T, dev units.Device) {
	const hidden, inter, experts, topK, rows = 48, 64, 6, 2, 20
	b := newBench(t, dev, 21)
	in, limbs := b.buf(units.F32, hidden), b.buf(units.Limbs, hidden)
	logits, route, out := b.buf(units.F32, experts), b.buf(units.F32, 2*topK), b.buf(units.F32, hidden)
	load := func(n, k int) (units.Linear, []f32) {
		w := b.normal(n*k, 0.2)
		return b.linear(n, k, units.Int8x2, w), w
	}
	router, routerW := load(experts, hidden)
	op := units.Op{Kind: units.OpExperts, Dst: out, A: limbs, B: route, TopK: topK}
	var w [experts][3][]f32
	for i := range experts {
		var e units.Expert
		e.Gate, w[i][0] = load(inter, hidden)
		e.Up, w[i][1] = load(inter, hidden)
		e.Down, w[i][2] = load(hidden, inter)
		op.Experts = append(op.Experts, e)
	}
	b.op(units.Op{Kind: units.OpQuantize, Dst: limbs, A: in, B: units.None})
	b.op(units.Op{Kind: units.OpLinear, Dst: logits, A: limbs, B: units.None, Linear: router})
	b.op(units.Op{Kind: units.OpRoute, Dst: route, A: logits, B: units.None, TopK: topK, Normalise: true})
	b.op(op)
	b.prog.Out = out
	x := b.normal(rows*hidden, 1)
	var want []float64
	for r := range rows {
		row := x[r*hidden : (r+1)*hidden]
		l := exact(routerW, row, experts, hidden)
		first, second := 0, -1
		for i := range l {
			if l[i] > l[first] {
				first = i
			}
		}
		for i := range l {
			if i != first && (second < 0 || l[i] > l[second]) {
				second = i
			}
		}
		p := 1 / (1 + math.Exp(l[second]-l[first]))
		y := make([]float64, hidden)
		for i, weight := range map[int]float64{first: p, second: 1 - p} {
			gate, up := exact(w[i][0], row, inter, hidden), exact(w[i][1], row, inter, hidden)
			h := make([]f32, inter)
			for j, g := range gate {
				h[j] = f32(g / (1 + math.Exp(-g)) * up[j])
			}
			for d, v := range exact(w[i][2], h, hidden, inter) {
				y[d] += weight * v
			}
		}
		want = append(want, y...)
	}
	if e := relativeRMS(b.run(b.compile(), positions(0, 0, rows), x), want); e > 3e-4 {
		t.Errorf("relative error %.2g, want at most 3e-4", e)
	}
}

// testExpertErrors has rows that cannot be routed or computed, and programs that must not compile.
func testExpertErrors(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 3)
	in, route := b.buf(units.F32, 4), b.buf(units.F32, 4)
	b.op(units.Op{Kind: units.OpRoute, Dst: route, A: in, B: units.None, TopK: 2, Layer: 5})
	b.prog.Out = route
	err := b.compile().Run(positions(0, 0, 3), []f32{1, 2, 3, 4, 1, f32(math.NaN()), 3, 4, f32(math.Inf(1)), 0, 0, 0}, make([]f32, 12))
	var oe *units.OpError
	if !errors.As(err, &oe) || oe.Op != units.OpRoute || oe.Layer != 5 || oe.Row != 1 || !errors.Is(err, units.ErrNonFinite) {
		t.Errorf("logits that are not finite: %v", err)
	}

	b = newBench(t, dev, 4)
	mixture(b, 6, 5, 3, units.Int8, units.Op{TopK: 2, Layer: 7})
	x := b.normal(18, 1)
	for i := 6; i < 12; i++ {
		x[i] *= 1e30 // gate times up is beyond float32
	}
	err = b.compile().Run(positions(0, 0, 3), x, make([]f32, 18))
	if !errors.As(err, &oe) || oe.Op != units.OpExperts || oe.Layer != 7 || oe.Row != 1 {
		t.Errorf("inner values that are not finite: %v", err)
	}

	const routing, experts = 2, 3 // operations
	for i, change := range []func(b *bench, ops []units.Op){
		func(_ *bench, ops []units.Op) { ops[routing].TopK = 0 },
		func(_ *bench, ops []units.Op) { ops[routing].TopK = 4 },
		func(_ *bench, ops []units.Op) { ops[routing].TopK = 1 },
		func(_ *bench, ops []units.Op) { ops[routing].Dst = ops[routing].A },
		func(b *bench, ops []units.Op) { ops[routing].Dst = b.buf(units.F32, 4) },
		func(_ *bench, ops []units.Op) { ops[experts].TopK = 0 },
		func(_ *bench, ops []units.Op) { ops[experts].TopK = 1 },
		func(_ *bench, ops []units.Op) { ops[experts].Act = 9 },
		func(_ *bench, ops []units.Op) { ops[experts].Experts = ops[experts].Experts[:2] },
		func(_ *bench, ops []units.Op) { ops[experts].Experts = nil },
		func(_ *bench, ops []units.Op) { ops[experts].A = ops[experts].B },
		func(_ *bench, ops []units.Op) { ops[experts].B = units.None },
		func(b *bench, ops []units.Op) { ops[experts].B = b.prog.In },
		func(_ *bench, ops []units.Op) { ops[experts].Dst = ops[experts].B },
		func(b *bench, ops []units.Op) { ops[experts].Dst = b.buf(units.F32, 7) },
		func(_ *bench, ops []units.Op) { ops[experts].Experts[1].Up = nil },
		func(b *bench, ops []units.Op) {
			ops[experts].Experts[1].Up = b.linear(5, 7, units.Int8, b.normal(35, 1))
		},
		func(b *bench, ops []units.Op) {
			ops[experts].Experts[2].Gate = b.linear(4, 6, units.Int8, b.normal(24, 1))
		},
		func(b *bench, ops []units.Op) {
			ops[experts].Experts[0].Down = b.linear(6, 6, units.Int8, b.normal(36, 1))
		},
		func(b *bench, ops []units.Op) {
			l, err := dev.NewLinear("open", 5, 6, units.Int8)
			b.must(err)
			ops[experts].Experts[0].Gate = l
		},
		func(b *bench, ops []units.Op) { // the route is changed before it is used
			changed := ops[routing].Dst
			b.prog.Ops = slices.Insert(b.prog.Ops, experts, units.Op{Kind: units.OpScale, Dst: changed, A: changed, B: units.None, Scale: 2})
		},
	} {
		b := newBench(t, dev, 5)
		mixture(b, 6, 5, 3, units.Int8, units.Op{TopK: 2})
		b.compile()
		change(b, b.prog.Ops)
		if _, err := dev.Compile(b.prog); err == nil {
			t.Errorf("change %d: no error", i)
		}
	}
}
