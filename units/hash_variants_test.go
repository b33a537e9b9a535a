package units_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"dchain/units"
)

// variantHash is the SHA-256 of the outputs of TestVariantHash, on every machine. It changes only with the numerics version.
const variantHash = "da783e23f5ec15e65e6c486ecdf85588b51dcd6fe7a544dd52456643d942c87f"

// TestVariantHash is TestLayerHash for the operations that only some families have: attention with a soft cap and ALiBi,
// exact GELU and ReLU, capped values, a mixture of experts.
func TestVariantHash(t *testing.T) {
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
	const hidden, inter, heads, kvHeads, headDim, experts, topK, ctx, rows = 64, 40, 4, 2, 16, 7, 3, 128, 100
	seq := sequence(2)
	linear := func(n, k int, mode units.WeightMode) units.Linear {
		l, err := d.NewLinear("w", n, k, mode)
		must(err)
		must(l.PutRows(0, seq.fill(n*k, 0.3)))
		must(l.Finish())
		return l
	}
	cache, err := d.NewCache(units.CacheSpec{Layers: 4, Slots: 1, Context: ctx, KVHeads: kvHeads, HeadDim: headDim})
	must(err)
	const x, xq, k, v, att, y, yq, logits, route = 0, 1, 2, 3, 4, 5, 6, 7, 8
	const none = units.None
	p := units.Program{Cache: cache, In: x, Out: x, Bufs: []units.BufSpec{
		{Width: hidden}, {Kind: units.Limbs, Width: hidden}, {Width: kvHeads * headDim}, {Width: kvHeads * headDim}, {Width: hidden},
		{Width: hidden}, {Kind: units.Limbs, Width: hidden}, {Width: experts}, {Width: 2 * topK},
	}}
	for l, act := range []units.ActKind{units.GELU, units.ReLU, units.SiLU, units.GELUTanh} {
		attend := units.Op{Kind: units.OpAttend, Dst: att, A: x, B: none, CacheLayer: l, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Scale: 0.25}
		if l%2 == 0 {
			attend.Cap = 20
		}
		if l < 2 {
			attend.Slopes, err = d.NewVector("slopes", []float32{0.25, 0.0625, 0.015625, 0.3})
			must(err)
		}
		mixture := units.Op{Kind: units.OpExperts, Dst: y, A: yq, B: route, TopK: topK, Act: act}
		for range experts {
			mixture.Experts = append(mixture.Experts, units.Expert{Gate: linear(inter, hidden, units.Int8), Up: linear(inter, hidden, units.Int8x2),
				Down: linear(hidden, inter, units.Int8)})
		}
		p.Ops = append(p.Ops, []units.Op{
			{Kind: units.OpQuantize, Dst: xq, A: x, B: none},
			{Kind: units.OpLinear, Dst: k, A: xq, B: none, Linear: linear(kvHeads*headDim, hidden, units.Int8)},
			{Kind: units.OpLinear, Dst: v, A: xq, B: none, Linear: linear(kvHeads*headDim, hidden, units.Int8)},
			{Kind: units.OpStoreKV, Dst: none, A: k, B: v, CacheLayer: l},
			attend,
			{Kind: units.OpAct, Act: act, Dst: y, A: att, B: none},
			{Kind: units.OpAdd, Dst: x, A: x, B: y},
			{Kind: units.OpQuantize, Dst: yq, A: x, B: none},
			{Kind: units.OpLinear, Dst: logits, A: yq, B: none, Linear: linear(experts, hidden, units.Int8x2)},
			{Kind: units.OpRoute, Dst: route, A: logits, B: none, TopK: topK, Normalise: l%2 == 1},
			mixture,
			{Kind: units.OpAdd, Dst: x, A: x, B: y},
			{Kind: units.OpSoftcap, Dst: x, A: x, B: none, Cap: 40},
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
	if got := hex.EncodeToString(sum.Sum(nil)); got != variantHash {
		t.Errorf("the outputs hash to %s, want %s", got, variantHash)
	}
}
