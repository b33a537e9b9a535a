package units

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestSmoke(t *testing.T) {
	d, err := NewCPU(CPUOptions{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	const hid, heads, kv, hd, ctx = 72, 6, 2, 12, 200
	mk := func(n, k int) (Linear, []float32) {
		l, err := d.NewLinear("w", n, k, Int8x2)
		if err != nil {
			t.Fatal(err)
		}
		w := make([]float32, n*k)
		for i := range w {
			w[i] = float32(rng.NormFloat64()) * 0.1
		}
		if err := l.PutRows(0, w); err != nil {
			t.Fatal(err)
		}
		if err := l.Finish(); err != nil {
			t.Fatal(err)
		}
		return l, w
	}
	q, _ := mk(heads*hd, hid)
	k, _ := mk(kv*hd, hid)
	v, _ := mk(kv*hd, hid)
	cache, err := d.NewCache(CacheSpec{1, 2, ctx, kv, hd})
	if err != nil {
		t.Fatal(err)
	}
	cos, sin := RopeTables(ctx, hd, 10000)
	vc, _ := d.NewVector("cos", cos)
	vs, _ := d.NewVector("sin", sin)
	p := Program{
		Bufs: []BufSpec{{F32, hid}, {Limbs, hid}, {F32, heads * hd}, {F32, kv * hd}, {F32, kv * hd}, {F32, heads * hd}},
		Ops: []Op{
			{Kind: OpQuantize, Dst: 1, A: 0},
			{Kind: OpLinear, Dst: 2, A: 1, Linear: q},
			{Kind: OpLinear, Dst: 3, A: 1, Linear: k},
			{Kind: OpLinear, Dst: 4, A: 1, Linear: v},
			{Kind: OpRope, Dst: 2, Heads: heads, HeadDim: hd, RotaryDim: hd, Cos: vc, Sin: vs},
			{Kind: OpRope, Dst: 3, Heads: kv, HeadDim: hd, RotaryDim: hd, Cos: vc, Sin: vs},
			{Kind: OpStoreKV, A: 3, B: 4},
			{Kind: OpAttend, Dst: 5, A: 2, Heads: heads, KVHeads: kv, HeadDim: hd, Scale: 0.3},
		},
		In: 0, Out: 5, Cache: cache,
	}
	e, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	n := 150
	in := make([]float32, n*hid)
	for i := range in {
		in[i] = float32(rng.NormFloat64())
	}
	out := make([]float32, n*heads*hd)
	rows := make([]Row, n)
	for i := range rows {
		rows[i] = Row{1, i}
	}
	if err := e.Run(rows, in, out); err != nil {
		t.Fatal(err)
	}
	out2 := make([]float32, heads*hd)
	for i := range rows {
		rows[i].Slot = 0
		if err := e.Run(rows[i:i+1], in[i*hid:(i+1)*hid], out2); err != nil {
			t.Fatal(err)
		}
		for j := range out2 {
			if math.Float32bits(out2[j]) != math.Float32bits(out[i*heads*hd+j]) {
				t.Fatalf("row %d col %d: %v %v", i, j, out2[j], out[i*heads*hd+j])
			}
		}
	}
	t.Log(out2[:10])
}
