package unitstest

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"testing"

	"dchain/units"
)

// top is OpTop by a full sort.
func top(x []f32, k int) []f32 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(x[b], x[a]) })
	y := make([]f32, 2*k)
	for i, at := range order[:k] {
		y[i], y[k+i] = f32(at), x[at]
	}
	return y
}

// testTop has rows of different values, of few different ones, and of one, in widths of up to several rounds of chunks.
func testTop(t *testing.T, dev units.Device) {
	for _, c := range []struct{ width, k int }{{1, 1}, {5, 5}, {64, 1}, {300, 7}, {1024, 1}, {1025, 64}, {5000, 1}, {9000, 256}, {70000, 64}} {
		b := newBench(t, dev, uint64(c.width))
		in, out := b.buf(units.F32, c.width), b.buf(units.F32, 2*c.k)
		b.op(units.Op{Kind: units.OpTop, Dst: out, A: in, B: units.None, TopK: c.k})
		rows, x := inputs(b.rng, c.width)
		for _, values := range []int{1, 2, 50} {
			for range c.width {
				x = append(x, f32(b.rng.IntN(values)-1))
			}
			rows++
		}
		for _, at := range []int{0, c.width / 2, c.width - 1} { // one above the others, which are equal
			row := make([]f32, c.width)
			each(row, func(int) float64 { return -1e30 })
			row[at] = -1e29
			x, rows = append(x, row...), rows+1
		}
		b.everyBuffer(positions(0, 0, rows), x)
	}
}

// testTopErrors has a value that is not finite, wherever it is, and shapes that are refused.
func testTopErrors(t *testing.T, dev units.Device) {
	const width = 3000
	for _, k := range []int{1, 64} {
		b := newBench(t, dev, 1)
		in, out := b.buf(units.F32, width), b.buf(units.F32, 2*k)
		b.op(units.Op{Kind: units.OpTop, Dst: out, A: in, B: units.None, TopK: k, Layer: 7})
		b.prog.Out = out
		e := b.compile()
		for i, bad := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
			x := b.normal(2*width, 1)
			x[width+i*(width-1)/2] = f32(bad)
			var oe *units.OpError
			err := e.Run(positions(0, 0, 2), x, make([]f32, 2*2*k))
			if !errors.As(err, &oe) || oe.Op != units.OpTop || oe.Layer != 7 || oe.Row != 1 || !errors.Is(err, units.ErrNonFinite) {
				t.Errorf("%v among the values: %v", bad, err)
			}
		}
	}
	for _, c := range []struct{ width, k, dst int }{{10, 0, 0}, {10, 11, 22}, {1000, 257, 514}, {10, 2, 5}} {
		p := units.Program{In: 0, Out: 1, Bufs: []units.BufSpec{{Kind: units.F32, Width: c.width}, {Kind: units.F32, Width: max(1, c.dst)}},
			Ops: []units.Op{{Kind: units.OpTop, Dst: 1, A: 0, B: units.None, TopK: c.k}}}
		if _, err := dev.Compile(p); err == nil {
			t.Errorf("the %d largest of %d values, in a buffer of %d, are accepted", c.k, c.width, c.dst)
		}
	}
}
