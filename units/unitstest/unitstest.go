// Package unitstest is the contract of units.Device as a test suite: every operation against a reference written here
// from NUMERICS.md alone, invariance under batching and chunking, and the accuracy the formats promise.
package unitstest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"dchain/units"
)

// Run tries everything on devices made by newDevice.
func Run(t *testing.T, newDevice func() units.Device) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, units.Device)
	}{
		{"linear", testLinear}, {"elementwise", testElementwise}, {"norm", testNorm}, {"rope", testRope},
		{"attend", testAttend}, {"window", testWindow}, {"capped and biased attention", testAttendVariants},
		{"layer", testLayer}, {"chunks", testChunks},
		{"sessions", testSessions}, {"concurrent", testConcurrent}, {"outlier row", testOutlier},
		{"long attention", testLongAttention}, {"faint attention", testFaintAttention},
		{"linear accuracy", testLinearAccuracy}, {"attention accuracy", testAttentionAccuracy},
		{"last row", testLastRow},
		{"not finite", testNotFinite}, {"bad rows", testBadRows}, {"bad programs", testBadPrograms},
		{"route", testRoute}, {"ties", testTies}, {"experts", testExperts}, {"expert accuracy", testExpertAccuracy},
		{"expert errors", testExpertErrors},
		{"top", testTop}, {"top errors", testTopErrors},
		{"embed", testEmbed}, {"embed errors", testEmbedErrors},
		{"loading", testLoading},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := newDevice()
			defer func() {
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			}()
			c.f(t, dev)
		})
	}
}

func testLinear(t *testing.T, dev units.Device) {
	shapes := [][2]int{{1, 1}, {3, 5}, {16, 16}, {17, 64}, {40, 67}, {33, 260}, {130, 96}}
	for i, s := range shapes {
		n, k := s[0], s[1]
		for _, mode := range []units.WeightMode{units.Int8, units.Int8x2} {
			t.Run(fmt.Sprintf("%dx%d %v", n, k, mode), func(t *testing.T) {
				b := newBench(t, dev, uint64(i))
				in, q := b.buf(units.F32, k), b.buf(units.Limbs, k)
				y, z := b.buf(units.F32, n), b.buf(units.F32, n)
				w := b.normal(n*k, 0.05)
				for r := range n { // some rows of special weights
					row := w[r*k : (r+1)*k]
					switch r % 8 {
					case 1:
						each(row, func(int) float64 { return -0.75 })
					case 2:
						clear(row)
					case 3:
						each(row, func(int) float64 { return math.Ldexp(b.rng.NormFloat64(), -49) })
					case 4:
						row[0] = 1000
					case 5:
						each(row, func(int) float64 { return math.Ldexp(1.5-b.rng.Float64(), -50) })
					case 6:
						each(row, func(int) float64 { return math.Ldexp(b.rng.Float64(), -50) })
					}
				}
				l := b.linear(n, k, mode, w)
				b.op(units.Op{Kind: units.OpQuantize, Dst: q, A: in, B: units.None})
				b.op(units.Op{Kind: units.OpLinear, Dst: y, A: q, B: units.None, Linear: l})
				b.op(units.Op{Kind: units.OpLinear, Dst: z, A: q, B: units.None, Linear: l, Bias: b.vector(b.normal(n, 1))})
				rows, x := inputs(b.rng, k)
				b.everyBuffer(positions(0, 0, rows), x)
			})
		}
	}
}

func testElementwise(t *testing.T, dev units.Device) {
	for _, width := range []int{1, 7, 64, 1000} {
		b := newBench(t, dev, uint64(width))
		in := b.buf(units.F32, width)
		other, scaled, sum := b.buf(units.F32, width), b.buf(units.F32, width), b.buf(units.F32, width)
		b.op(units.Op{Kind: units.OpNorm, Norm: units.LayerNorm, Dst: other, A: in, B: units.None, Groups: 1,
			Weight: b.vector(b.normal(width, 3)), Bias: b.vector(b.normal(width, 1)), Eps: 1e-5})
		b.op(units.Op{Kind: units.OpScale, Dst: scaled, A: in, B: units.None, Scale: -0.37})
		b.op(units.Op{Kind: units.OpAdd, Dst: sum, A: scaled, B: other})
		for _, act := range []units.ActKind{units.SiLU, units.GELUTanh, units.GELU, units.ReLU} {
			plain, gated := b.buf(units.F32, width), b.buf(units.F32, width)
			b.op(units.Op{Kind: units.OpAct, Act: act, Dst: plain, A: in, B: units.None})
			b.op(units.Op{Kind: units.OpAct, Act: act, Dst: gated, A: other, B: in})
		}
		for _, c := range []f32{30, 1e-3} {
			capped := b.buf(units.F32, width)
			b.op(units.Op{Kind: units.OpSoftcap, Dst: capped, A: in, B: units.None, Cap: c})
			b.op(units.Op{Kind: units.OpSoftcap, Dst: capped, A: capped, B: units.None, Cap: 2 * c})
		}
		// in place
		b.op(units.Op{Kind: units.OpAct, Act: units.SiLU, Dst: sum, A: sum, B: other})
		b.op(units.Op{Kind: units.OpAdd, Dst: scaled, A: scaled, B: scaled})
		rows, x := inputs(b.rng, width)
		b.everyBuffer(positions(0, 0, rows), x)
	}
}

func testNorm(t *testing.T, dev units.Device) {
	for _, c := range []struct{ width, groups int }{{1, 1}, {5, 1}, {64, 1}, {768, 1}, {96, 6}, {33, 11}} {
		b := newBench(t, dev, uint64(c.width))
		in := b.buf(units.F32, c.width)
		k := c.width / c.groups
		w, bias := b.vector(b.normal(k, 2)), b.vector(b.normal(k, 1))
		for _, op := range []units.Op{
			{Norm: units.RMSNorm, Eps: 1e-6}, {Norm: units.LayerNorm, Eps: 1e-5, Bias: bias}, {Norm: units.LayerNorm, Eps: 1e-12},
		} {
			op.Kind, op.A, op.B, op.Dst, op.Groups, op.Weight = units.OpNorm, in, units.None, b.buf(units.F32, c.width), c.groups, w
			b.op(op)
		}
		in2 := b.buf(units.F32, c.width) // in place
		b.op(units.Op{Kind: units.OpScale, Dst: in2, A: in, B: units.None, Scale: 1})
		b.op(units.Op{Kind: units.OpNorm, Norm: units.LayerNorm, Dst: in2, A: in2, B: units.None, Groups: c.groups, Weight: w, Bias: bias, Eps: 1e-5})
		rows, x := inputs(b.rng, c.width)
		b.everyBuffer(positions(0, 0, rows), x)
	}
}

func testRope(t *testing.T, dev units.Device) {
	const ctx = 300
	for i, op := range []units.Op{
		{Heads: 1, HeadDim: 2, RotaryDim: 2}, {Heads: 3, HeadDim: 10, RotaryDim: 6}, {Heads: 2, HeadDim: 64, RotaryDim: 64},
		{Heads: 3, HeadDim: 10, RotaryDim: 6, Interleaved: true}, {Heads: 2, HeadDim: 16, RotaryDim: 16, Interleaved: true},
	} {
		b := newBench(t, dev, uint64(i))
		cos, sin := units.RopeTables(ctx, op.RotaryDim, 10000)
		op.Kind, op.Cos, op.Sin = units.OpRope, b.vector(cos), b.vector(sin)
		op.Dst, op.A, op.B = b.buf(units.F32, op.Heads*op.HeadDim), units.None, units.None
		b.op(op)
		rows, x := inputs(b.rng, op.Heads*op.HeadDim)
		b.everyBuffer(positions(0, 7, rows), x)
		b.everyBuffer(positions(0, ctx-rows, rows), x)
	}
}

// attention builds in -> q, k, v -> store -> attend and leaves Out at the result.
func attention(b *bench, op units.Op, slots, ctx int) {
	kvWidth := op.KVHeads * op.HeadDim
	cache, err := b.dev.NewCache(units.CacheSpec{Layers: op.CacheLayer + 1, Slots: slots, Context: ctx, KVHeads: op.KVHeads, HeadDim: op.HeadDim})
	b.must(err)
	b.prog.Cache = cache
	in := b.buf(units.F32, op.Heads*op.HeadDim)
	k, v := in, in
	if op.Heads != op.KVHeads {
		k, v = b.project(in, kvWidth, units.Int8x2, 0.1), b.project(in, kvWidth, units.Int8, 0.3)
	}
	out := b.buf(units.F32, op.Heads*op.HeadDim)
	b.op(units.Op{Kind: units.OpStoreKV, Dst: units.None, A: k, B: v, CacheLayer: op.CacheLayer})
	op.Kind, op.Dst, op.A, op.B = units.OpAttend, out, in, units.None
	b.op(op)
	b.prog.In, b.prog.Out = in, out
}

// cycle fills n rows with the patterns in turn.
func cycle(b *bench, n, width int) []f32 {
	x := make([]f32, n*width)
	for r := range n {
		patterns[r%len(patterns)].fill(b.rng, x[r*width:(r+1)*width])
	}
	return x
}

func testAttend(t *testing.T, dev units.Device) {
	for i, op := range []units.Op{
		{Heads: 1, KVHeads: 1, HeadDim: 1, Scale: 1},
		{Heads: 3, KVHeads: 3, HeadDim: 20, Scale: 0.2},
		{Heads: 6, KVHeads: 2, HeadDim: 16, Scale: 0.25, CacheLayer: 2},
		{Heads: 26, KVHeads: 2, HeadDim: 5, Scale: 0.5},
		{Heads: 2, KVHeads: 1, HeadDim: 64, Scale: 1e-3},
	} {
		t.Run(fmt.Sprintf("%d heads of %d", op.Heads, op.HeadDim), func(t *testing.T) {
			b := newBench(t, dev, uint64(i))
			attention(b, op, 2, 200)
			width := op.Heads * op.HeadDim
			rows := positions(1, 0, 140)
			for _, x := range [][]f32{cycle(b, 140, width), b.normal(140*width, 1)} {
				same(t, "attend", b.run(b.compile(), rows, x), b.reference(newCached(), rows, x), width)
			}
		})
	}
}

func testWindow(t *testing.T, dev units.Device) {
	for _, window := range []int{1, 5, 64, 100} {
		b := newBench(t, dev, uint64(window))
		attention(b, units.Op{Heads: 4, KVHeads: 2, HeadDim: 8, Scale: 0.5, Window: window}, 1, 256)
		rows := positions(0, 0, 230)
		x := b.normal(230*32, 2)
		same(t, fmt.Sprintf("window %d", window), b.run(b.compile(), rows, x), b.reference(newCached(), rows, x), 32)
	}
}

// testAttendVariants tries the soft cap, ALiBi and the window together and alone. A slope of 0 and a negative one, which no
// model has, are rows like any other.
func testAttendVariants(t *testing.T, dev units.Device) {
	slopes := []f32{0.7, 0, 0.04, -0.01, 1e-30, 3}
	for i, c := range []struct {
		cap    f32
		alibi  bool
		window int
	}{{cap: 4}, {alibi: true}, {cap: 50, window: 70}, {cap: 0.5, alibi: true}, {cap: 1 << 60}, {alibi: true, window: 33}} {
		t.Run(fmt.Sprintf("cap %v alibi %v window %d", c.cap, c.alibi, c.window), func(t *testing.T) {
			b := newBench(t, dev, uint64(i))
			op := units.Op{Heads: 6, KVHeads: 2, HeadDim: 12, Scale: 0.4, Cap: c.cap, Window: c.window}
			if c.alibi {
				op.Slopes = b.vector(slopes)
			}
			attention(b, op, 2, 200)
			const n, width = 150, 6 * 12
			e := b.compile()
			for slot, x := range [][]f32{cycle(b, n, width), b.normal(n*width, 1.5)} {
				want := b.reference(newCached(), positions(slot, 0, n), x)
				same(t, "together", b.run(e, positions(slot, 0, n), x), want, width)
				for first := 0; first < n; first += 11 {
					count := min(11, n-first)
					part := [2]int{first * width, (first + count) * width}
					same(t, fmt.Sprintf("rows from %d", first), b.run(e, positions(slot, first, count), x[part[0]:part[1]]), want[part[0]:part[1]], width)
				}
			}
		})
	}
}

// layer builds a whole transformer layer with a residual stream.
func layer(b *bench, hidden, inter, heads, kvHeads, headDim, slots, ctx int) {
	cache, err := b.dev.NewCache(units.CacheSpec{Layers: 1, Slots: slots, Context: ctx, KVHeads: kvHeads, HeadDim: headDim})
	b.must(err)
	b.prog.Cache = cache
	cosine, sine := units.RopeTables(ctx, headDim, 1e6)
	cos, sin := b.vector(cosine), b.vector(sine)
	x, h := b.buf(units.F32, hidden), b.buf(units.F32, hidden)
	norm := units.Op{Kind: units.OpNorm, Dst: h, A: x, B: units.None, Groups: 1, Weight: b.vector(b.normal(hidden, 1)), Eps: 1e-6}
	b.op(norm)
	limbs := b.buf(units.Limbs, hidden)
	b.op(units.Op{Kind: units.OpQuantize, Dst: limbs, A: h, B: units.None})
	var qkv [3]units.Buf
	for i, n := range []int{heads * headDim, kvHeads * headDim, kvHeads * headDim} {
		qkv[i] = b.buf(units.F32, n)
		b.op(units.Op{Kind: units.OpLinear, Dst: qkv[i], A: limbs, B: units.None,
			Linear: b.linear(n, hidden, units.Int8, b.normal(n*hidden, 0.2)), Bias: b.vector(b.normal(n, 0.2))})
	}
	rope := units.Op{Kind: units.OpRope, A: units.None, B: units.None, HeadDim: headDim, RotaryDim: headDim, Cos: cos, Sin: sin}
	rope.Dst, rope.Heads = qkv[0], heads
	b.op(rope)
	rope.Dst, rope.Heads = qkv[1], kvHeads
	b.op(rope)
	b.op(units.Op{Kind: units.OpStoreKV, Dst: units.None, A: qkv[1], B: qkv[2]})
	att := b.buf(units.F32, heads*headDim)
	b.op(units.Op{Kind: units.OpAttend, Dst: att, A: qkv[0], B: units.None, Heads: heads, KVHeads: kvHeads, HeadDim: headDim,
		Scale: f32(1 / math.Sqrt(float64(headDim)))})
	o := b.project(att, hidden, units.Int8, 0.2)
	b.op(units.Op{Kind: units.OpAdd, Dst: x, A: x, B: o})
	b.op(norm)
	b.op(units.Op{Kind: units.OpQuantize, Dst: limbs, A: h, B: units.None})
	var gate, up = b.buf(units.F32, inter), b.buf(units.F32, inter)
	for _, dst := range []units.Buf{gate, up} {
		b.op(units.Op{Kind: units.OpLinear, Dst: dst, A: limbs, B: units.None, Linear: b.linear(inter, hidden, units.Int8x2, b.normal(inter*hidden, 0.2))})
	}
	b.op(units.Op{Kind: units.OpAct, Act: units.SiLU, Dst: gate, A: gate, B: up})
	down := b.project(gate, hidden, units.Int8, 0.2)
	b.op(units.Op{Kind: units.OpAdd, Dst: x, A: x, B: down})
	b.prog.In, b.prog.Out = x, x
}

func testLayer(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 5)
	layer(b, 48, 100, 6, 2, 8, 1, 128)
	b.everyBuffer(positions(0, 0, 90), b.normal(90*48, 1))
}

// testChunks feeds the same positions in pieces of several sizes: equal bits for all.
func testChunks(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 6)
	const n, hidden = 200, 64
	layer(b, hidden, 96, 8, 2, 8, 6, 256)
	x := cycle(b, n, hidden)
	e := b.compile()
	want := b.run(e, positions(0, 0, n), x)
	for slot, size := range []int{1, 7, 64, 150} {
		var got []f32
		for first := 0; first < n; first += size {
			count := min(size, n-first)
			got = append(got, b.run(e, positions(slot+1, first, count), x[first*hidden:(first+count)*hidden])...)
		}
		same(t, fmt.Sprintf("chunks of %d", size), got, want, hidden)
	}
}

// testSessions runs several slots in one batch, in different mixtures, against each alone.
func testSessions(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 7)
	const n, hidden, sessions = 40, 48, 5
	layer(b, hidden, 70, 6, 3, 8, 2*sessions, 64)
	e := b.compile()
	var x, want [sessions][]f32
	for s := range sessions {
		x[s] = cycle(b, n, hidden)
		want[s] = b.run(e, positions(s, 0, n), x[s])
	}
	var got [sessions][]f32
	for len(got[0]) < n*hidden || len(got[sessions-1]) < n*hidden {
		var rows []units.Row
		var in []f32
		for _, s := range b.rng.Perm(sessions) {
			first := len(got[s]) / hidden
			count := min(n-first, b.rng.IntN(4))
			rows = append(rows, positions(sessions+s, first, count)...)
			in = append(in, x[s][first*hidden:(first+count)*hidden]...)
		}
		if len(rows) == 0 {
			continue
		}
		out := b.run(e, rows, in)
		for i, r := range rows {
			s := r.Slot - sessions
			got[s] = append(got[s], out[i*hidden:(i+1)*hidden]...)
		}
	}
	for s := range sessions {
		m := len(got[s])
		same(t, fmt.Sprintf("session %d", s), got[s], want[s][:m], hidden)
	}
}

// testConcurrent runs several executables at once over one cache, each on a slot of its own, against each alone.
func testConcurrent(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 15)
	const n, hidden, callers = 60, 64, 4
	layer(b, hidden, 300, 4, 2, 16, 2*callers, 64)
	x := b.normal(n*hidden, 1)
	want := b.run(b.compile(), positions(0, 0, n), x)
	errs := make(chan error, callers)
	for c := range callers {
		e := b.compile()
		go func() {
			got := make([]f32, len(want))
			for first, count := 0, 0; first < n; first += count {
				count = min(c+1, n-first)
				if err := e.Run(positions(callers+c, first, count), x[first*hidden:(first+count)*hidden], got[first*hidden:(first+count)*hidden]); err != nil {
					errs <- err
					return
				}
			}
			for i := range got {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					errs <- fmt.Errorf("caller %d: row %d column %d is %v, want %v", c, i/hidden, i%hidden, got[i], want[i])
					return
				}
			}
			errs <- nil
		}()
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func testNotFinite(t *testing.T, dev units.Device) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := []f32{1, 2, f32(bad), 4}
		if _, err := dev.NewVector("the vector", x); err == nil || !strings.Contains(err.Error(), "the vector") {
			t.Errorf("%v in a vector: %v", bad, err)
		}
		l, err := dev.NewLinear("the matrix", 3, 4, units.Int8)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.PutRows(1, x); err == nil || !strings.Contains(err.Error(), "the matrix") || !strings.Contains(err.Error(), "row 1") {
			t.Errorf("%v in a matrix: %v", bad, err)
		}
		b := newBench(t, dev, 8)
		in := b.buf(units.F32, 4)
		b.project(in, 4, units.Int8, 1)
		b.prog.Ops[0].Layer = 17
		b.prog.Out = 2
		err = b.compile().Run(positions(0, 0, 2), append([]f32{1, 2, 3, 4}, x...), make([]f32, 8))
		var oe *units.OpError
		if !errors.As(err, &oe) || oe.Layer != 17 || oe.Row != 1 || oe.Op != units.OpQuantize {
			t.Errorf("%v in a row: %v", bad, err)
		}
	}
}

// testLastRow has room for the last row of a batch alone, which others must neither change nor fail.
func testLastRow(t *testing.T, dev units.Device) {
	const n, hidden, half = 40, 64, 20
	b := newBench(t, dev, 21)
	layer(b, hidden, 300, 4, 2, 16, 2, n)
	x := b.normal(n*hidden, 1)
	e := b.compile()
	want := b.run(e, positions(0, 0, n), x)
	last := make([]f32, hidden)
	for _, batch := range [][2]int{{0, half}, {half, n}, {n - 1, n}} {
		b.must(e.Run(positions(1, batch[0], batch[1]-batch[0]), x[batch[0]*hidden:batch[1]*hidden], last))
		same(t, fmt.Sprintf("positions %v", batch), last, want[(batch[1]-1)*hidden:batch[1]*hidden], hidden)
	}
	b = newBench(t, dev, 22)
	in := b.buf(units.F32, 4)
	b.op(units.Op{Kind: units.OpScale, Dst: in, A: in, B: units.None, Scale: 2, Layer: 3})
	b.prog.Out = in
	e = b.compile()
	rows := []f32{1, f32(math.Inf(1)), 3, 4, 5, 6, 7, 8}
	b.must(e.Run(positions(0, 0, 2), rows, last[:4]))
	same(t, "after a row that is not finite", last[:4], []f32{10, 12, 14, 16}, 4)
	copy(rows[4:], rows[:4])
	var oe *units.OpError
	if err := e.Run(positions(0, 0, 2), rows, last[:4]); !errors.As(err, &oe) || oe.Row != 1 || oe.Layer != 3 {
		t.Errorf("a last row that is not finite: %v", err)
	}
}

func testBadRows(t *testing.T, dev units.Device) {
	b := newBench(t, dev, 9)
	attention(b, units.Op{Heads: 1, KVHeads: 1, HeadDim: 4, Scale: 1}, 2, 10)
	e := b.compile()
	for _, c := range []struct {
		name string
		rows []units.Row
		in   int
	}{
		{"none", nil, 0}, {"slot", []units.Row{{Slot: 2}}, 4}, {"slot", []units.Row{{Slot: -1}}, 4},
		{"position", []units.Row{{Pos: 10}}, 4}, {"position", []units.Row{{Pos: -1}}, 4},
		{"gap", []units.Row{{Pos: 1}, {Pos: 3}}, 8}, {"order", []units.Row{{Pos: 1}, {Pos: 0}}, 8}, {"twice", []units.Row{{Pos: 1}, {Pos: 1}}, 8},
		{"in", []units.Row{{Pos: 0}}, 5},
	} {
		if err := e.Run(c.rows, make([]f32, c.in), make([]f32, len(c.rows)*4)); err == nil {
			t.Errorf("%s %v: no error", c.name, c.rows)
		}
	}
	if err := e.Run(positions(0, 0, 1), make([]f32, 4), make([]f32, 3)); err == nil {
		t.Error("short out: no error")
	}
	if err := e.Run(positions(0, 0, 3), make([]f32, 12), make([]f32, 8)); err == nil {
		t.Error("out of two rows for three: no error")
	}
	b.run(e, []units.Row{{Slot: 1, Pos: 0}, {Slot: 0, Pos: 0}, {Slot: 1, Pos: 1}}, make([]f32, 12))
}
