package units

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// values draws n numbers whose sizes run over the given powers of two.
func values(rng *rand.Rand, n, lo, hi int) guarded[float32] {
	g := newGuarded[float32](n, 7e30)
	for i := range g.v {
		g.v[i] = flush(float32(math.Ldexp(rng.NormFloat64(), lo+rng.IntN(hi-lo+1))))
	}
	return g
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s of %d values: value %d is %v, want %v", what, len(want), i, got[i], want[i])
		}
	}
}

func TestNormKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for _, n := range rowLengths() {
			x := values(rng, n, -30, 0)
			for i := range x.v {
				x.v[i] = max(-2, min(2, x.v[i]))
			}
			s, q := k.moments(x.v, 1<<20)
			if ws, wq := momentsGeneric(x.v, 1<<20); s != ws || q != wq {
				t.Fatalf("moments of %d values: %d, %d, want %d, %d", n, s, q, ws, wq)
			}
			w, b := values(rng, n, -40, 3), values(rng, n, -60, 3)
			for _, bias := range [][]float32{nil, b.v} {
				for _, r := range []float32{1, 1e-9, 3e4} {
					want := make([]float32, n)
					normaliseGeneric(want, x.v, r, w.v, bias)
					got := newGuarded[float32](n, 5)
					k.normalise(got.v, x.v, r, w.v, bias)
					sameBits(t, "normalise", got.v, want)
					got.check(t, "normalise")
				}
			}
		}
	})
}

func TestActKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		edges := []float32{0, 1, -1, 16, -16, 16.00001, -16.00001, 60, -60, 41.58, -41.58, -41.6, 87, -88, 1e30, -1e30, 1.1e-19, -1.1e-19}
		for _, kind := range []ActKind{SiLU, GELUTanh, GELU, ReLU} {
			for round := range 40 {
				for _, n := range rowLengths() {
					x, up := values(rng, n, -64, 6), values(rng, n, -30, 5)
					for i := range edges {
						if round == 0 && i < n {
							x.v[i] = edges[(i+n)%len(edges)]
						}
					}
					for _, u := range [][]float32{nil, up.v} {
						want := make([]float32, n)
						actGeneric(kind, want, x.v, u)
						got := newGuarded[float32](n, 5)
						k.act(kind, got.v, x.v, u)
						sameBits(t, "act", got.v, want)
						got.check(t, "act")
						copy(got.v, x.v)
						k.act(kind, got.v, got.v, u) // in place
						sameBits(t, "act in place", got.v, want)
					}
				}
			}
		}
	})
}

// TestActKernelsDense tries arguments close together, so that every table cell and rounding is met.
func TestActKernelsDense(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		x, got, want := make([]float32, 4096), make([]float32, 4096), make([]float32, 4096)
		for range 50 {
			for i := range x {
				x[i] = float32(rng.Float64()*90 - 45)
			}
			for _, kind := range []ActKind{SiLU, GELUTanh, GELU, ReLU} {
				k.act(kind, got, x, nil)
				actGeneric(kind, want, x, nil)
				sameBits(t, "act", got, want)
			}
		}
	})
}

func TestScoreKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		hi, lo, exps := make([]int32, 2*panelRows), make([]int32, 2*panelRows), make([]int16, panelRows)
		for range 2000 {
			for i := range hi {
				hi[i], lo[i] = int32(rng.Uint32())>>(4+rng.IntN(28)), int32(rng.Uint32())>>(4+rng.IntN(28))
			}
			for i := range exps {
				exps[i] = int16(rng.IntN(60) - 80)
			}
			got, want := newGuarded[float32](panelRows, 5), make([]float32, panelRows)
			e, scale := pow2(rng.IntN(60)-80), float32(rng.Float64())
			k.scores(got.v, hi, lo, e, exps, scale)
			scoresGeneric(want, hi, lo, e, exps, scale)
			sameBits(t, "scores", got.v, want)
			got.check(t, "scores")
		}
	})
}

func TestSoftmaxKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for round := range 30 {
			for n := 1; n <= blockPositions; n++ {
				x := values(rng, n, -10, 5)
				m := highestGeneric(x.v)
				if got := k.highest(x.v); got != m {
					t.Fatalf("highest of %d: %v, want %v", n, got, m)
				}
				if round%3 == 0 {
					m += 20 + 3*rng.Float32() // near the smallest weights that count
				}
				exps := newGuarded[int16](n, 99)
				for i := range exps.v {
					exps.v[i] = int16(rng.IntN(194) - 80)
				}
				want := slices.Clone(x.v)
				ws, wt := weighGeneric(want, m, exps.v)
				s, top := k.weigh(x.v, m, exps.v)
				if s != ws || top != wt {
					t.Fatalf("weigh of %d: sum %d, top %x, want %d, %x", n, s, top, ws, wt)
				}
				sameBits(t, "weigh", x.v, want)
				x.check(t, "weigh")
			}
		}
		long := make([]float32, 777)
		for i := range long {
			long[i] = -float32(i%500) - 1
		}
		if got := k.highest(long); got != -1 {
			t.Errorf("highest of 777: %v", got)
		}
	})
}

func TestAccumulateKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		u, u2 := make([]int32, 3*panelRows), make([]int32, 3*panelRows)
		for range 200 {
			for i := range u {
				u[i], u2[i] = int32(rng.IntN(1<<21))-1<<20, int32(rng.IntN(1<<21))-1<<20
			}
			for n := -62; n <= 12; n++ {
				for limbs := 2; limbs <= 3; limbs++ {
					got, want := newGuarded[int64](panelRows, 5), make([]int64, panelRows)
					for i := range want {
						want[i] = int64(rng.Uint64()) >> 5
						got.v[i] = want[i]
					}
					k.accumulate(got.v, u, u2, limbs, n)
					accumulateGeneric(want, u, u2, limbs, n)
					if !slices.Equal(got.v, want) {
						t.Fatalf("accumulate, %d limbs, shift %d: %v, want %v", limbs, n, got.v, want)
					}
					got.check(t, "accumulate")
				}
			}
		}
	})
}
