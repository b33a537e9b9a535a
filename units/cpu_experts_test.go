package units

import (
	"fmt"
	"testing"
)

// testMixture compiles a router and its experts.
func testMixture(t testing.TB, d *cpuDevice, hidden, inter, experts, topK int, mode WeightMode) Executable {
	t.Helper()
	s := gateSeries(5)
	linear := func(n, k int, mode WeightMode) Linear {
		l, err := s.linear(d, n, k, mode)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	op := Op{Kind: OpExperts, Dst: 4, A: 1, B: 3, TopK: topK}
	for range experts {
		op.Experts = append(op.Experts, Expert{linear(inter, hidden, mode), linear(inter, hidden, mode), linear(hidden, inter, mode)})
	}
	e, err := d.Compile(Program{In: 0, Out: 4, Bufs: []BufSpec{{F32, hidden}, {Limbs, hidden}, {F32, experts}, {F32, 2 * topK}, {F32, hidden}}, Ops: []Op{
		{Kind: OpQuantize, Dst: 1, A: 0, B: None},
		{Kind: OpLinear, Dst: 2, A: 1, B: None, Linear: linear(experts, hidden, Int8x2)},
		{Kind: OpRoute, Dst: 3, A: 2, B: None, TopK: topK, Normalise: true},
		op,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExpertPasses cuts the experts into passes of several sizes, down to one at a time: equal bits for all.
func TestExpertPasses(t *testing.T) {
	defer func(v int) { expertValues = v }(expertValues)
	const hidden, inter, experts, topK, n = 24, 40, 9, 3, 50
	s := gateSeries(6)
	rows, in := make([]Row, n), s.values(n*hidden, 2)
	for _, k := range kernelSets() {
		e := testMixture(t, newTestDevice(t, CPUOptions{Threads: 2}, k), hidden, inter, experts, topK, Int8)
		var want []float32
		for _, limit := range []int{1 << 22, n * inter, 10 * inter, 0} {
			expertValues = limit
			got := make([]float32, n*hidden)
			if err := e.Run(rows, in, got); err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			sameBits(t, fmt.Sprintf("%s, passes of %d values", k.name, limit), got, want)
		}
	}
}

// BenchmarkExperts times the experts of a layer.
func BenchmarkExperts(b *testing.B) {
	const hidden, inter, experts, topK = 1024, 512, 16, 4
	d, err := newCPU(CPUOptions{}, kernelSets()[0])
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	e := testMixture(b, d, hidden, inter, experts, topK, Int8)
	for _, n := range []int{1, 48} {
		b.Run(fmt.Sprintf("%d rows", n), func(b *testing.B) {
			s := gateSeries(7)
			rows, in, out := make([]Row, n), s.values(n*hidden, 2), make([]float32, n*hidden)
			for b.Loop() {
				if err := e.Run(rows, in, out); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(3*hidden*inter*topK*n*rowLimbs)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
