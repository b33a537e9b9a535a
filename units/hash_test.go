package units_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"dchain/units"
)

// layerHash is the SHA-256 of the outputs of TestLayerHash, on every machine. It changes only with the numerics version.
const layerHash = "53ab559497219abb524c2d3b42c000381edb8608862cc68ab01a758995ebafa6"

// sequence is a fixed series of numbers in [-1, 1), made from integers so that it is the same everywhere.
type sequence uint64

func (s *sequence) next() float32 {
	*s = *s*6364136223846793005 + 1442695040888963407
	return float32(int32(*s>>40)-1<<23) / (1 << 23)
}

func (s *sequence) fill(n int, scale float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = s.next() * scale
	}
	return v
}

// TestLayerHash runs two layers with every kind of operation on a fixed input: whatever computes it, the bits are these.
func TestLayerHash(t *testing.T) {
	d, err := units.NewCPU(units.CPUOptions{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const hidden, inter, heads, kvHeads, headDim, ctx, rows = 64, 150, 4, 2, 16, 256, 200
	seq := sequence(1)
	vector := func(n int, scale float32) units.Vector {
		v, err := d.NewVector("v", seq.fill(n, scale))
		must(err)
		return v
	}
	linear := func(n, k int, mode units.WeightMode) units.Linear {
		l, err := d.NewLinear("w", n, k, mode)
		must(err)
		must(l.PutRows(0, seq.fill(n*k, 0.3)))
		must(l.Finish())
		return l
	}
	cache, err := d.NewCache(units.CacheSpec{Layers: 2, Slots: 1, Context: ctx, KVHeads: kvHeads, HeadDim: headDim})
	must(err)
	cos, sin := units.RopeTables(ctx, headDim, 500000)
	c, err := d.NewVector("cos", cos)
	must(err)
	s, err := d.NewVector("sin", sin)
	must(err)
	const x, h, hq, q, k, v, att, attq, y, gate, up, gq = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
	const none = units.None
	p := units.Program{Cache: cache, In: x, Out: x, Bufs: []units.BufSpec{
		{Width: hidden}, {Width: hidden}, {Kind: units.Limbs, Width: hidden}, {Width: heads * headDim}, {Width: kvHeads * headDim},
		{Width: kvHeads * headDim}, {Width: heads * headDim}, {Kind: units.Limbs, Width: heads * headDim}, {Width: hidden},
		{Width: inter}, {Width: inter}, {Kind: units.Limbs, Width: inter},
	}}
	for l, mode := range []units.WeightMode{units.Int8, units.Int8x2} {
		p.Ops = append(p.Ops, []units.Op{
			{Kind: units.OpNorm, Norm: units.NormKind(l), Dst: h, A: x, B: none, Groups: 1, Weight: vector(hidden, 2), Eps: 1e-5},
			{Kind: units.OpQuantize, Dst: hq, A: h, B: none},
			{Kind: units.OpLinear, Dst: q, A: hq, B: none, Linear: linear(heads*headDim, hidden, mode), Bias: vector(heads*headDim, 1)},
			{Kind: units.OpLinear, Dst: k, A: hq, B: none, Linear: linear(kvHeads*headDim, hidden, mode)},
			{Kind: units.OpLinear, Dst: v, A: hq, B: none, Linear: linear(kvHeads*headDim, hidden, mode)},
			{Kind: units.OpNorm, Dst: q, A: q, B: none, Groups: heads, Weight: vector(headDim, 2), Eps: 1e-6},
			{Kind: units.OpRope, Dst: q, A: none, B: none, Heads: heads, HeadDim: headDim, RotaryDim: headDim, Cos: c, Sin: s},
			{Kind: units.OpRope, Dst: k, A: none, B: none, Heads: kvHeads, HeadDim: headDim, RotaryDim: headDim, Cos: c, Sin: s, Interleaved: l == 1},
			{Kind: units.OpStoreKV, Dst: none, A: k, B: v, CacheLayer: l},
			{Kind: units.OpAttend, Dst: att, A: q, B: none, CacheLayer: l, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Scale: 0.25, Window: 150 * l},
			{Kind: units.OpQuantize, Dst: attq, A: att, B: none},
			{Kind: units.OpLinear, Dst: y, A: attq, B: none, Linear: linear(hidden, heads*headDim, mode)},
			{Kind: units.OpAdd, Dst: x, A: x, B: y},
			{Kind: units.OpQuantize, Dst: hq, A: x, B: none},
			{Kind: units.OpLinear, Dst: gate, A: hq, B: none, Linear: linear(inter, hidden, mode)},
			{Kind: units.OpLinear, Dst: up, A: hq, B: none, Linear: linear(inter, hidden, mode)},
			{Kind: units.OpAct, Act: units.ActKind(l), Dst: gate, A: gate, B: up},
			{Kind: units.OpQuantize, Dst: gq, A: gate, B: none},
			{Kind: units.OpLinear, Dst: y, A: gq, B: none, Linear: linear(hidden, inter, mode)},
			{Kind: units.OpScale, Dst: y, A: y, B: none, Scale: 0.7},
			{Kind: units.OpAdd, Dst: x, A: x, B: y},
		}...)
	}
	e, err := d.Compile(p)
	must(err)
	in := seq.fill(rows*hidden, 2)
	for i := 5; i < len(in); i += 999 {
		in[i] *= 3000
	}
	batch := make([]units.Row, rows)
	for i := range batch {
		batch[i].Pos = i
	}
	out := make([]float32, rows*hidden)
	must(e.Run(batch, in, out))
	sum := sha256.New()
	for _, f := range out {
		sum.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(f)))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != layerHash {
		t.Errorf("the outputs hash to %s, want %s", got, layerHash)
	}
}
