package unitstest

import (
	"math"
	"testing"

	"dchain/units"
)

// relativeRMS is the root mean square of got-want over that of want.
func relativeRMS(got []f32, want []float64) float64 {
	var diff, size float64
	for i, w := range want {
		d := float64(got[i]) - w
		diff += d * d
		size += w * w
	}
	return math.Sqrt(diff / size)
}

// exact is the matrix product in float64.
func exact(w, x []f32, n, k int) []float64 {
	var y []float64
	for r := range len(x) / k {
		for i := range n {
			s := 0.0
			for j := range k {
				s += float64(w[i*k+j]) * float64(x[r*k+j])
			}
			y = append(y, s)
		}
	}
	return y
}

// product runs quantise and linear on the device.
func product(b *bench, n, k int, mode units.WeightMode, w, x []f32) []f32 {
	in, q, y := b.buf(units.F32, k), b.buf(units.Limbs, k), b.buf(units.F32, n)
	b.op(units.Op{Kind: units.OpQuantize, Dst: q, A: in, B: units.None})
	b.op(units.Op{Kind: units.OpLinear, Dst: y, A: q, B: units.None, Linear: b.linear(n, k, mode, w)})
	b.prog.In, b.prog.Out = in, y
	return b.run(b.compile(), positions(0, 0, len(x)/k), x)
}

func testLinearAccuracy(t *testing.T, dev units.Device) {
	for _, c := range []struct {
		mode  units.WeightMode
		limit float64
	}{{units.Int8x2, 1e-4}, {units.Int8, 2e-2}} {
		const n, k, rows = 96, 512, 4
		b := newBench(t, dev, 10)
		w, x := b.normal(n*k, 0.02), b.normal(rows*k, 3)
		if e := relativeRMS(product(b, n, k, c.mode, w, x), exact(w, x, n, k)); e > c.limit {
			t.Errorf("%v: relative error %.2g, want at most %.2g", c.mode, e, c.limit)
		}
	}
}

// testOutlier gives a row one channel that is hundreds or thousands of times the others and weights that ignore it:
// what is left is the contribution of the other channels, within 0.1 %.
func testOutlier(t *testing.T, dev units.Device) {
	for _, k := range []int{64, 512, 4096} {
		for _, ratio := range []float64{20, 47, 60, 100, 500, 1000, 5000, 1e5} {
			const n = 64
			b := newBench(t, dev, uint64(k))
			w, x := b.normal(n*k, 0.02), b.normal(k, 1)
			x[k/3] = f32(ratio)
			for i := range n {
				w[i*k+k/3] = 0
			}
			limit := 1e-3
			if ratio > 5000 {
				limit = 2e-2 // three limbs reach this far
			}
			if e := relativeRMS(product(b, n, k, units.Int8x2, w, x), exact(w, x, n, k)); e > limit {
				t.Errorf("K %d, outlier %gx: relative error %.2g, want at most %g", k, ratio, e, limit)
			}
		}
	}
}

// selectColumns is a linear operation that copies n columns of a from first on (to 15 bits).
func (b *bench) selectColumns(limbs units.Buf, first, n int) units.Buf {
	k := b.prog.Bufs[limbs].Width
	w := make([]f32, n*k)
	for i := range n {
		w[i*k+first+i] = 1
	}
	dst := b.buf(units.F32, n)
	b.op(units.Op{Kind: units.OpLinear, Dst: dst, A: limbs, B: units.None, Linear: b.linear(n, k, units.Int8x2, w)})
	return dst
}

// qkvPrograms gives two programs over one cache whose input rows are q, k, v side by side: one stores and attends, one
// only stores.
func qkvPrograms(b *bench, heads, headDim, ctx int, scale f32) (attend, store units.Executable) {
	cache, err := b.dev.NewCache(units.CacheSpec{Layers: 1, Slots: 2, Context: ctx, KVHeads: heads, HeadDim: headDim})
	b.must(err)
	b.prog.Cache = cache
	width := heads * headDim
	in, limbs := b.buf(units.F32, 3*width), b.buf(units.Limbs, 3*width)
	b.op(units.Op{Kind: units.OpQuantize, Dst: limbs, A: in, B: units.None})
	q, k, v := b.selectColumns(limbs, 0, width), b.selectColumns(limbs, width, width), b.selectColumns(limbs, 2*width, width)
	b.op(units.Op{Kind: units.OpStoreKV, Dst: units.None, A: k, B: v})
	b.prog.In, b.prog.Out = in, in
	store = b.compile()
	out := b.buf(units.F32, width)
	b.op(units.Op{Kind: units.OpAttend, Dst: out, A: q, B: units.None, Heads: heads, KVHeads: heads, HeadDim: headDim, Scale: scale})
	b.prog.Out = out
	return b.compile(), store
}

// testLongAttention has a sink and 16,000 keys of weight 1e-5 each, which together are 14 % of the result.
func testLongAttention(t *testing.T, dev units.Device) {
	const hd, n, tail = 16, 16001, 70
	b := newBench(t, dev, 11)
	attend, store := qkvPrograms(b, 1, hd, n, 1)
	x := make([]f32, n*3*hd)
	for j := range n {
		row := x[j*3*hd:]
		row[0] = 4 // q . k is 11.5 for the sink, 0 for the others: e^-11.5 is 1.013e-5
		if j == 0 {
			row[hd] = 2.875
		}
		for d := range hd {
			row[2*hd+d] = f32(1 + 0.5*b.rng.NormFloat64())
		}
		if j == 0 {
			for d := range hd {
				row[2*hd+d] = f32(d%3) / 8
			}
		}
	}
	w, sum := math.Exp(-11.5), 0.0
	want := make([]float64, hd)
	for j := range n {
		p := w
		if j == 0 {
			p = 1
		}
		sum += p
		for d := range hd {
			want[d] += p * float64(x[(j*3+2)*hd+d])
		}
	}
	for d := range want {
		want[d] /= sum
	}
	fill := func(slot, end int) {
		for first := 0; first < end; first += 1000 {
			count := min(1000, end-first)
			b.must(store.Run(positions(slot, first, count), x[first*3*hd:(first+count)*3*hd], make([]f32, count*3*hd)))
		}
	}
	fill(0, n-1)
	decode := b.run(attend, positions(0, n-1, 1), x[(n-1)*3*hd:])
	if e := relativeRMS(decode, want); e > 1e-4 {
		t.Errorf("relative error %.2g, want at most 1e-4", e)
	}
	fill(1, n-tail)
	prefill := b.run(attend, positions(1, n-tail, tail), x[(n-tail)*3*hd:])
	same(t, "prefill against decode", prefill[(tail-1)*hd:], decode, hd)
}

// testFaintAttention lowers the weights from block to block by 2^-10, down to those that count as zero, and gives each
// block channels of its own, so that the least significant bits of a block's sum are seen.
func testFaintAttention(t *testing.T, dev units.Device) {
	const hd, n = 8, 320
	b := newBench(t, dev, 14)
	attention, _ := qkvPrograms(b, 1, hd, n, 1)
	x := make([]f32, n*3*hd)
	for j := range n {
		q, k, v := x[j*3*hd:][:hd], x[(j*3+1)*hd:][:hd], x[(j*3+2)*hd:][:hd]
		q[0] = 1
		k[0] = -f32((float64(j/64)*9.8 + 3*b.rng.Float64()) * math.Ln2)
		for d := range hd {
			if d == j/64 || (d > 4 && b.rng.IntN(20) == 0) {
				v[d] = f32(b.rng.NormFloat64())
			}
		}
		if j == 0 {
			k[0] = 0
		}
	}
	rows := positions(0, 0, n)
	same(t, "faint", b.run(attention, rows, x), b.reference(newCached(), rows, x), hd)
}

func testAttentionAccuracy(t *testing.T, dev units.Device) {
	const heads, hd, n = 3, 32, 150
	b := newBench(t, dev, 12)
	attend, _ := qkvPrograms(b, heads, hd, n, f32(1/math.Sqrt(hd)))
	x := b.normal(n*3*heads*hd, 1)
	at := func(j, part, h, d int) float64 { return float64(x[((j*3+part)*heads+h)*hd+d]) }
	var want []float64
	for j := range n {
		for h := range heads {
			y, sum := make([]float64, hd), 0.0
			for i := range j + 1 {
				s := 0.0
				for d := range hd {
					s += at(j, 0, h, d) * at(i, 1, h, d)
				}
				p := math.Exp(s / math.Sqrt(hd))
				sum += p
				for d := range hd {
					y[d] += p * at(i, 2, h, d)
				}
			}
			for d := range hd {
				want = append(want, y[d]/sum)
			}
		}
	}
	got := b.run(attend, positions(0, 0, n), x)
	if e := relativeRMS(got, want); e > 2e-4 {
		t.Errorf("relative error %.2g, want at most 2e-4", e)
	}
}

func testLoading(t *testing.T, dev units.Device) {
	for _, s := range [][2]int{{0, 4}, {4, 0}, {-1, 4}, {1, 131072}} {
		if _, err := dev.NewLinear("w", s[0], s[1], units.Int8); err == nil {
			t.Errorf("%v: no error", s)
		}
	}
	for _, s := range []units.CacheSpec{{}, {Layers: 1, Slots: 1, Context: 0, KVHeads: 1, HeadDim: 1}, {Layers: 1, Slots: -1, Context: 1, KVHeads: 1, HeadDim: 1}} {
		if _, err := dev.NewCache(s); err == nil {
			t.Errorf("%v: no error", s)
		}
	}
	l, err := dev.NewLinear("w", 5, 3, units.Int8x2)
	if err != nil {
		t.Fatal(err)
	}
	if n, k := l.Shape(); n != 5 || k != 3 || l.Bytes() < 5*3*2 {
		t.Errorf("shape %d x %d, %d bytes", n, k, l.Bytes())
	}
	for _, c := range []struct{ first, values int }{{-1, 3}, {5, 3}, {4, 6}, {0, 4}} {
		if err := l.PutRows(c.first, make([]f32, c.values)); err == nil {
			t.Errorf("%d values at row %d: no error", c.values, c.first)
		}
	}
	for _, first := range []int{3, 0} {
		if err := l.PutRows(first, make([]f32, 6)); err != nil {
			t.Error(err)
		}
	}
	if err := l.Finish(); err == nil {
		t.Error("finished with row 2 missing")
	}
	if err := l.PutRows(2, make([]f32, 3)); err != nil {
		t.Error(err)
	}
	if err := l.Finish(); err != nil {
		t.Error(err)
	}
	if err := l.PutRows(2, make([]f32, 3)); err == nil {
		t.Error("row put into a finished matrix")
	}
}

func testBadPrograms(t *testing.T, dev units.Device) {
	newLayer := func() *bench {
		b := newBench(t, dev, 13)
		layer(b, 12, 10, 2, 1, 4, 1, 16)
		return b
	}
	find := func(b *bench, kind units.OpKind) *units.Op {
		for i := range b.prog.Ops {
			if b.prog.Ops[i].Kind == kind {
				return &b.prog.Ops[i]
			}
		}
		t.Fatalf("no %v", kind)
		return nil
	}
	if _, err := dev.Compile(newLayer().prog); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(b *bench){
		func(b *bench) { b.prog.In = 99 },
		func(b *bench) { b.prog.Out = units.None },
		func(b *bench) { b.prog.Out = 2 }, // limbs
		func(b *bench) { b.prog.Out = b.buf(units.F32, 4) },
		func(b *bench) { b.prog.Cache = nil },
		func(b *bench) { b.prog.Bufs[0].Width = 0 },
		func(b *bench) { b.prog.Bufs[0].Width = 13 },
		func(b *bench) { b.prog.Bufs[2].Kind = units.F32 },
		func(b *bench) { find(b, units.OpNorm).Groups = 0 },
		func(b *bench) { find(b, units.OpNorm).Groups = 5 },
		func(b *bench) { find(b, units.OpNorm).Eps = 0 },
		func(b *bench) { find(b, units.OpNorm).Eps = f32(math.NaN()) },
		func(b *bench) { find(b, units.OpNorm).Weight = nil },
		func(b *bench) { find(b, units.OpNorm).Weight = b.vector(make([]f32, 7)) },
		func(b *bench) { find(b, units.OpNorm).Norm = 9 },
		func(b *bench) { find(b, units.OpQuantize).Dst = 0 },
		func(b *bench) { find(b, units.OpLinear).Linear = nil },
		func(b *bench) { find(b, units.OpLinear).Linear = b.linear(8, 11, units.Int8, make([]f32, 88)) },
		func(b *bench) { find(b, units.OpLinear).Linear = b.linear(9, 12, units.Int8, make([]f32, 108)) },
		func(b *bench) { find(b, units.OpLinear).Bias = b.vector(make([]f32, 7)) },
		func(b *bench) {
			l, err := dev.NewLinear("open", 8, 12, units.Int8)
			b.must(err)
			find(b, units.OpLinear).Linear = l
		},
		func(b *bench) { find(b, units.OpRope).RotaryDim = 3 },
		func(b *bench) { find(b, units.OpRope).RotaryDim = 6 },
		func(b *bench) { find(b, units.OpRope).Heads = 3 },
		func(b *bench) { find(b, units.OpRope).Sin = b.vector(make([]f32, 2)) },
		func(b *bench) { find(b, units.OpStoreKV).CacheLayer = 1 },
		func(b *bench) { find(b, units.OpStoreKV).A = 0 },
		func(b *bench) { find(b, units.OpAttend).CacheLayer = -1 },
		func(b *bench) { find(b, units.OpAttend).Heads = 3 },
		func(b *bench) { find(b, units.OpAttend).KVHeads = 2 },
		func(b *bench) { find(b, units.OpAttend).Scale = 0 },
		func(b *bench) { find(b, units.OpAttend).Window = -1 },
		func(b *bench) { find(b, units.OpAttend).Cap = -1 },
		func(b *bench) { find(b, units.OpAttend).Cap = f32(math.Inf(1)) },
		func(b *bench) { find(b, units.OpAttend).Slopes = b.vector([]f32{1, 1, 1}) },
		func(b *bench) { find(b, units.OpAttend).Slopes = b.vector([]f32{1, 1e30}) },
		func(b *bench) { find(b, units.OpAct).Kind = units.OpSoftcap },
		func(b *bench) { find(b, units.OpAct).Act = 9 },
		func(b *bench) { find(b, units.OpAct).B = 0 },
		func(b *bench) { find(b, units.OpAdd).B = units.None },
		func(b *bench) { find(b, units.OpAdd).Kind = 200 },
		func(b *bench) { b.prog.Ops = b.prog.Ops[1:] }, // reads what nothing wrote
	} {
		b := newLayer()
		change(b)
		if _, err := dev.Compile(b.prog); err == nil {
			t.Errorf("change %d: no error", i)
		}
	}
}
