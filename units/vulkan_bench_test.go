package units

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// layerShape is the layer of a model, for measuring.
type layerShape struct {
	name                                   string
	hidden, inter, heads, kvHeads, headDim int
	layers                                 int // of the model, of which measured are computed
	measured, vocab                        int
}

var layerShapes = []layerShape{
	{"tiny", 64, 128, 4, 2, 16, 2, 2, 256}, // for trying the benchmark
	{"0.5B", 896, 4864, 14, 2, 64, 24, 24, 151936},
	{"8B", 4096, 14336, 32, 8, 128, 32, 8, 128256},
}

// layersProgram is measured layers of the shape as stage compiles them.
func layersProgram(b testing.TB, d *vulkanDevice, s layerShape, slots, context int) Program {
	b.Helper()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	series := gateSeries(5)
	values := series.values(1<<20, 0.02)
	linear := func(n, k int) Linear {
		l, err := d.NewLinear("bench", n, k, Int8)
		must(err)
		for first := 0; first < n; {
			count := min(n-first, len(values)/k)
			must(l.PutRows(first, values[:count*k]))
			first += count
		}
		must(l.Finish())
		return l
	}
	vector := func(v []float32) Vector {
		h, err := d.NewVector("bench", v)
		must(err)
		return h
	}
	cache, err := d.NewCache(CacheSpec{Layers: s.measured, Slots: slots, Context: context, KVHeads: s.kvHeads, HeadDim: s.headDim})
	must(err)
	cosines, sines := RopeTables(context, s.headDim, 1e6)
	cos, sin := vector(cosines), vector(sines)
	q, kv := s.heads*s.headDim, s.kvHeads*s.headDim
	const hidden, normed, qin, bq, bk, bv, attn, qattn, out, gate, up, qmlp = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
	p := Program{In: hidden, Out: hidden, Cache: cache, Bufs: []BufSpec{{F32, s.hidden}, {F32, s.hidden}, {Limbs, s.hidden}, {F32, q}, {F32, kv}, {F32, kv},
		{F32, q}, {Limbs, q}, {F32, s.hidden}, {F32, s.inter}, {F32, s.inter}, {Limbs, s.inter}}}
	norm := Op{Kind: OpNorm, Dst: normed, A: hidden, B: None, Groups: 1, Weight: vector(series.values(s.hidden, 1)), Eps: 1e-5}
	rope := Op{Kind: OpRope, A: None, B: None, HeadDim: s.headDim, RotaryDim: s.headDim, Cos: cos, Sin: sin}
	ropeQ, ropeK := rope, rope
	ropeQ.Dst, ropeQ.Heads, ropeK.Dst, ropeK.Heads = bq, s.heads, bk, s.kvHeads
	for l := range s.measured {
		p.Ops = append(p.Ops, norm,
			Op{Kind: OpQuantize, Dst: qin, A: normed, B: None},
			Op{Kind: OpLinear, Dst: bq, A: qin, B: None, Linear: linear(q, s.hidden)},
			Op{Kind: OpLinear, Dst: bk, A: qin, B: None, Linear: linear(kv, s.hidden)},
			Op{Kind: OpLinear, Dst: bv, A: qin, B: None, Linear: linear(kv, s.hidden)},
			ropeQ, ropeK,
			Op{Kind: OpStoreKV, Dst: None, A: bk, B: bv, CacheLayer: l},
			Op{Kind: OpAttend, Dst: attn, A: bq, B: None, Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.headDim, Scale: 0.1, CacheLayer: l},
			Op{Kind: OpQuantize, Dst: qattn, A: attn, B: None},
			Op{Kind: OpLinear, Dst: out, A: qattn, B: None, Linear: linear(s.hidden, q)},
			Op{Kind: OpAdd, Dst: hidden, A: hidden, B: out},
			norm,
			Op{Kind: OpQuantize, Dst: qin, A: normed, B: None},
			Op{Kind: OpLinear, Dst: gate, A: qin, B: None, Linear: linear(s.inter, s.hidden)},
			Op{Kind: OpLinear, Dst: up, A: qin, B: None, Linear: linear(s.inter, s.hidden)},
			Op{Kind: OpAct, Act: SiLU, Dst: gate, A: gate, B: up},
			Op{Kind: OpQuantize, Dst: qmlp, A: gate, B: None},
			Op{Kind: OpLinear, Dst: out, A: qmlp, B: None, Linear: linear(s.hidden, s.inter)},
			Op{Kind: OpAdd, Dst: hidden, A: hidden, B: out})
	}
	return p
}

// BenchmarkVulkanLayers measures the layers of models: decoding for one and several sessions at position 512, and prompts;
// then the share of each shader and number of workgroups, by the device's clock, every dispatch waiting for the one before. The
// rate is that of all layers of the model, without the head.
//
//	go test ./units -run - -bench 'VulkanLayers/dp4a/8B'
func BenchmarkVulkanLayers(b *testing.B) {
	for _, tier := range VulkanTiers(vulkanTest(b, VulkanOptions{}).info) {
		for _, s := range layerShapes {
			b.Run(string(tier)+"/"+s.name, func(b *testing.B) {
				d := vulkanTest(b, VulkanOptions{Tier: tier})
				if d.plain && s.name != "tiny" {
					b.Skip("a software renderer")
				}
				const context = 2048
				p := layersProgram(b, d, s, 64, context)
				for _, c := range []struct{ sessions, rows, pos int }{{1, 1, 512}, {8, 8, 512}, {64, 64, 512}, {1, 128, 0}, {1, 512, 512}, {1, 2048, 0}} {
					if d.plain && c.rows > 8 {
						continue
					}
					b.Run(fmt.Sprintf("sessions=%d,rows=%d", c.sessions, c.rows), func(b *testing.B) { benchRows(b, d, p, s, c.sessions, c.rows, c.pos) })
				}
			})
		}
	}
}

func benchRows(b *testing.B, d *vulkanDevice, p Program, s layerShape, sessions, n, pos int) {
	x, err := d.Compile(p)
	if err != nil {
		b.Fatal(err)
	}
	e := x.(*vulkanExecutable)
	series := gateSeries(7)
	rows, in := make([]Row, n), series.values(n*s.hidden, 1)
	for i := range rows {
		rows[i] = Row{Slot: i * sessions / n, Pos: pos + i%(n/sessions)}
	}
	out := make([]float32, len(in))
	run := func() {
		if err := e.Run(rows, in, out); err != nil {
			b.Fatal(err)
		}
	}
	run()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		run()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	b.ReportMetric(float64(n)/median.Seconds()*float64(s.measured)/float64(s.layers), "tok/s")
	b.ReportMetric(median.Seconds()*1e6/float64(s.measured), "us/layer")

	e.drop()
	e.profile = true
	run()
	r := e.recordings[recordingKey{batchShape: batchShape{n, e.contextOf(rows)}}]
	times, err := r.cmds.Times()
	if err != nil {
		b.Fatal(err)
	}
	total := map[string]time.Duration{}
	var names []string
	for i, t := range times {
		key := r.names[i]
		if _, ok := total[key]; !ok {
			names = append(names, key)
		}
		total[key] += t
	}
	var shares strings.Builder
	for _, name := range names {
		fmt.Fprintf(&shares, "%8.1f us/layer  %s\n", total[name].Seconds()*1e6/float64(s.measured), name)
	}
	b.Log("\n" + shares.String())
	e.drop()
}
