package units

import (
	"math"
	"slices"
	"testing"
)

// Of several values that are not finite the first counts, whichever chunk is done first.
func TestCopyFinite(t *testing.T) {
	src := make([]float32, 1<<20+3)
	for i := range src {
		src[i] = float32(i)
	}
	for _, bad := range [][]int{nil, {len(src) - 1}, {1<<18 - 1, 1 << 18}, {900_000, 300_000}} {
		want := -1
		from := slices.Clone(src)
		for _, i := range bad {
			from[i] = float32(math.Inf(-1))
			if want < 0 || i < want {
				want = i
			}
		}
		dst := make([]float32, len(src))
		if got := copyFinite(dst, from); got != want {
			t.Errorf("%v: %d, want %d", bad, got, want)
		}
		if !slices.Equal(dst, from) {
			t.Errorf("%v: not a copy", bad)
		}
	}
}

// TestVulkanLastRow: the last row alone is that of all, of one submission or several, audited or not.
func TestVulkanLastRow(t *testing.T) {
	for _, every := range []int{0, 1} {
		d := vulkanTest(t, VulkanOptions{AuditEvery: every})
		e := testLayer(t, d).(*vulkanExecutable)
		const n = 5
		s := gateSeries(6)
		in, out, last := s.values(n*testHidden, 1), make([]float32, n*testHidden), make([]float32, testHidden)
		if err := e.Run(rowsAt(0, n), in, out); err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{n, 2, 1} {
			e.maxRows = rows
			clear(last)
			if err := e.Run(rowsAt(0, n), in, last); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(last, out[(n-1)*testHidden:]) {
				t.Errorf("submissions of %d rows, audits every %d: the last row is another one", rows, every)
			}
		}
	}
}
