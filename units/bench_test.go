package units

import (
	"fmt"
	"testing"
)

// benchShape is a transformer layer of a published size.
type benchShape struct {
	name                    string
	hidden, inter           int
	heads, kvHeads, headDim int
	layers                  int
}

var benchShapes = []benchShape{{"0.5b", 896, 4864, 14, 2, 64, 6}}

// benchProgram compiles the layers; weights are random, their values do not matter.
func benchProgram(b *testing.B, d *cpuDevice, m benchShape, slots, ctx int) (e Executable, weightBytes int64) {
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	s := gateSeries(4)
	vector := func(v []float32) Vector {
		h, err := d.NewVector("v", v)
		must(err)
		return h
	}
	linear := func(n, k int) Linear {
		l, err := d.NewLinear("w", n, k, Int8)
		must(err)
		rows := s.values(min(n, 64)*k, 0.05)
		for first := 0; first < n; first += 64 {
			must(l.PutRows(first, rows[:min(64, n-first)*k]))
		}
		must(l.Finish())
		weightBytes += l.Bytes()
		return l
	}
	cache, err := d.NewCache(CacheSpec{Layers: m.layers, Slots: slots, Context: ctx, KVHeads: m.kvHeads, HeadDim: m.headDim})
	must(err)
	cos, sin := RopeTables(ctx, m.headDim, 1e6)
	c, sn := vector(cos), vector(sin)
	q, kv := m.heads*m.headDim, m.kvHeads*m.headDim
	p := Program{Cache: cache, In: 0, Out: 0, Bufs: []BufSpec{{F32, m.hidden}, {F32, m.hidden}, {Limbs, m.hidden}, {F32, q}, {F32, kv},
		{F32, kv}, {F32, q}, {Limbs, q}, {F32, m.hidden}, {F32, m.inter}, {F32, m.inter}, {Limbs, m.inter}}}
	for l := range m.layers {
		rope := func(dst Buf, heads int) Op {
			return Op{Kind: OpRope, Dst: dst, A: None, B: None, Heads: heads, HeadDim: m.headDim, RotaryDim: m.headDim, Cos: c, Sin: sn}
		}
		p.Ops = append(p.Ops, []Op{
			{Kind: OpNorm, Dst: 1, A: 0, B: None, Groups: 1, Weight: vector(s.values(m.hidden, 1)), Eps: 1e-6},
			{Kind: OpQuantize, Dst: 2, A: 1, B: None},
			{Kind: OpLinear, Dst: 3, A: 2, B: None, Linear: linear(q, m.hidden), Bias: vector(s.values(q, 1))},
			{Kind: OpLinear, Dst: 4, A: 2, B: None, Linear: linear(kv, m.hidden), Bias: vector(s.values(kv, 1))},
			{Kind: OpLinear, Dst: 5, A: 2, B: None, Linear: linear(kv, m.hidden), Bias: vector(s.values(kv, 1))},
			rope(3, m.heads), rope(4, m.kvHeads),
			{Kind: OpStoreKV, Dst: None, A: 4, B: 5, CacheLayer: l},
			{Kind: OpAttend, Dst: 6, A: 3, B: None, CacheLayer: l, Heads: m.heads, KVHeads: m.kvHeads, HeadDim: m.headDim, Scale: 0.125},
			{Kind: OpQuantize, Dst: 7, A: 6, B: None},
			{Kind: OpLinear, Dst: 8, A: 7, B: None, Linear: linear(m.hidden, q)},
			{Kind: OpAdd, Dst: 0, A: 0, B: 8},
			{Kind: OpNorm, Dst: 1, A: 0, B: None, Groups: 1, Weight: vector(s.values(m.hidden, 1)), Eps: 1e-6},
			{Kind: OpQuantize, Dst: 2, A: 1, B: None},
			{Kind: OpLinear, Dst: 9, A: 2, B: None, Linear: linear(m.inter, m.hidden)},
			{Kind: OpLinear, Dst: 10, A: 2, B: None, Linear: linear(m.inter, m.hidden)},
			{Kind: OpAct, Dst: 9, A: 9, B: 10},
			{Kind: OpQuantize, Dst: 11, A: 9, B: None},
			{Kind: OpLinear, Dst: 8, A: 11, B: None, Linear: linear(m.hidden, m.inter)},
			{Kind: OpAdd, Dst: 0, A: 0, B: 8},
		}...)
	}
	e, err = d.Compile(p)
	must(err)
	return e, weightBytes
}

// BenchmarkLayers is a step of some layers: rows of one session after ctx positions.
func BenchmarkLayers(b *testing.B) {
	for _, m := range benchShapes {
		for _, k := range kernelSets() {
			for _, c := range []struct{ threads, rows, pos int }{{1, 1, 100}, {2, 1, 100}, {1, 1, 4000}, {1, 128, 0}, {2, 128, 0}, {1, 128, 900}} {
				b.Run(fmt.Sprintf("%s/%s/threads=%d/rows=%d/pos=%d", m.name, k.name, c.threads, c.rows, c.pos), func(b *testing.B) {
					d, err := newCPU(CPUOptions{Threads: c.threads}, k)
					if err != nil {
						b.Fatal(err)
					}
					defer d.Close()
					e, bytes := benchProgram(b, d, m, 1, c.pos+c.rows)
					s := gateSeries(5)
					in := s.values(c.rows*m.hidden, 1)
					out := make([]float32, len(in))
					rows := make([]Row, c.rows)
					for i := range rows {
						rows[i].Pos = c.pos + i
					}
					for b.Loop() {
						if err := e.Run(rows, in, out); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
					b.ReportMetric(2*float64(bytes)*float64(c.rows)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
				})
			}
		}
	}
}
