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
