package units

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// eachSet runs f for every assembly table of this processor.
func eachSet(t *testing.T, f func(t *testing.T, k *kernels, rng *rand.Rand)) {
	for i, k := range kernelSets() {
		t.Run(k.name, func(t *testing.T) { f(t, k, rand.New(rand.NewPCG(uint64(i), 9))) })
	}
}

const guard = 37 // odd, so that what follows is not aligned either

// guarded is n values between two bands; check fails when the bands changed.
type guarded[T comparable] struct {
	all []T
	v   []T
}

func newGuarded[T comparable](n int, band T) guarded[T] {
	all := make([]T, n+2*guard)
	for i := range all {
		all[i] = band
	}
	return guarded[T]{all, all[guard : guard+n : guard+n]}
}

func (g guarded[T]) check(t *testing.T, what string) {
	t.Helper()
	band := g.all[0]
	for i := range guard {
		if g.all[i] != band || g.all[len(g.all)-1-i] != band {
			t.Fatalf("%s: wrote outside its slice", what)
		}
	}
}

func TestPanelKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for _, tile := range tileSizes {
			for _, groups := range []int{4, 8, 12, 16, 60, 64, 68, 224, 1000} {
				for _, fill := range []string{"random", "low", "high", "mixed", "edges"} {
					w, a := newGuarded[uint8](groups*64, 77), newGuarded[int8](groups*tile*4, 77)
					init := newGuarded[int32](tile, 99)
					for i := range w.v {
						w.v[i] = fillByte(fill, i, rng) ^ 0x80
					}
					for i := range a.v {
						a.v[i] = int8(fillByte(fill, i/3, rng))
					}
					for i := range init.v {
						init.v[i] = int32(rng.Uint32())
					}
					got, want := newGuarded[int32](tile*panelRows, 55), make([]int32, tile*panelRows)
					k.panel(got.v, init.v, w.v, a.v, tile, groups)
					for tt := range tile {
						for n := range panelRows {
							s := init.v[tt]
							for g := range groups {
								for i := range 4 {
									s += int32(a.v[(g*tile+tt)*4+i]) * int32(w.v[g*64+n*4+i])
								}
							}
							want[tt*panelRows+n] = s
						}
					}
					if !slices.Equal(got.v, want) {
						t.Fatalf("tile %d, %d groups, %s: wrong sums", tile, groups, fill)
					}
					got.check(t, "panel")
				}
			}
		}
	})
}

// fillByte draws value i of a kind, a weight or a limb, as the bits of an int8.
func fillByte(kind string, i int, rng *rand.Rand) uint8 {
	switch kind {
	case "low":
		return 0x80
	case "high":
		return 0x7f
	case "mixed":
		return []uint8{0x80, 0x7f, 0, 0xff}[i%4]
	case "edges":
		return []uint8{0x80, 0x7f}[rng.IntN(2)]
	}
	return uint8(rng.Uint32())
}

// TestPanelWide holds the sums at the largest K with all limbs -128, where the sums with the weights' offset exceed 32 bits.
func TestPanelWide(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, _ *rand.Rand) {
		groups := padded(maxK, padK) / groupK
		w, a := make([]uint8, groups*64), make([]int8, groups*2*4)
		for i := range a {
			if i/8*4+i%4 < maxK {
				a[i] = -128
			}
		}
		got := make([]int32, 2*panelRows)
		init := []int32{128 * 128 * maxK, 128 * 128 * maxK}
		k.panel(got, init, w, a, 2, groups) // weights of -128
		for i, v := range got {
			if v != 128*128*maxK {
				t.Fatalf("sum %d is %d, want %d", i, v, 128*128*maxK)
			}
		}
	})
}

// rowLengths cover every tail of a vector and more than one round of the widest loop.
func rowLengths() []int {
	var n []int
	for i := 1; i <= 70; i++ {
		n = append(n, i)
	}
	return append(n, 96, 127, 128, 129, 500)
}

func TestRowKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for _, n := range rowLengths() {
			for _, size := range []float64{1, 200, 32639.5} {
				x := newGuarded[float32](n, 7e30)
				for i := range x.v {
					x.v[i] = float32((2*rng.Float64() - 1) * size)
					if rng.IntN(3) == 0 {
						x.v[i] = float32(math.RoundToEven(float64(x.v[i]))) + 0.5
					}
					x.v[i] = min(max(x.v[i], -32639.498), 32639.498)
				}
				if got, want := k.absMax(x.v), absMaxGeneric(x.v); got != want {
					t.Fatalf("absMax of %d values: %x, want %x", n, got, want)
				}
				var got, want [3]guarded[int8]
				for i := range got {
					got[i], want[i] = newGuarded[int8](n, 3), newGuarded[int8](n, 3)
				}
				a, b, c, d := k.split2(got[0].v, got[1].v, x.v, 1)
				e, f, g, h := split2Generic(want[0].v, want[1].v, x.v, 1)
				if a != e || b != f || c != g || d != h {
					t.Fatalf("split2 of %d values: %d %d %d %d, want %d %d %d %d", n, a, b, c, d, e, f, g, h)
				}
				sameLimbs(t, "split2", got, want)
				if got, want := k.split3(got[0].v, got[1].v, got[2].v, x.v, 256), split3Generic(want[0].v, want[1].v, want[2].v, x.v, 256); got != want {
					t.Fatalf("split3 of %d values: sums %v, want %v", n, got, want)
				}
				sameLimbs(t, "split3", got, want)
			}
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for n := 1; n < 40; n++ {
				x := make([]float32, n)
				x[rng.IntN(n)] = float32(bad)
				if k.absMax(x) < infBits {
					t.Fatalf("absMax does not see %v among %d", bad, n)
				}
			}
		}
	})
}

func sameLimbs(t *testing.T, what string, got, want [3]guarded[int8]) {
	t.Helper()
	for i := range got {
		if !slices.Equal(got[i].v, want[i].v) {
			t.Fatalf("%s of %d values: limb %d differs", what, len(got[i].v), i)
		}
		got[i].check(t, what)
	}
}

func TestCombineKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		u, u2 := make([]int32, 3*panelRows), make([]int32, 3*panelRows)
		for round := range 300 {
			for i := range u {
				u[i], u2[i] = int32(rng.Uint32())>>rng.IntN(32), int32(rng.Uint32())>>rng.IntN(32)
			}
			for n := 1; n <= panelRows; n++ {
				scale, bias := newGuarded[float32](n, 1e30), newGuarded[float32](n, 1e30)
				for i := range scale.v {
					scale.v[i] = float32(math.Ldexp(rng.Float64(), -rng.IntN(60)))
					bias.v[i] = float32(math.Ldexp(rng.NormFloat64(), -rng.IntN(60)))
				}
				second, b := u2, bias.v
				if round&1 == 0 {
					second = nil
				}
				if round&2 == 0 {
					b = nil
				}
				limbs, p := 2+rng.IntN(2), pow2(rng.IntN(190)-88)
				got, want := newGuarded[float32](n, 5), make([]float32, n)
				k.combine(got.v, u, second, limbs, p, scale.v, b)
				combineGeneric(want, u, second, limbs, p, scale.v, b)
				for i := range want {
					if math.Float32bits(got.v[i]) != math.Float32bits(want[i]) {
						t.Fatalf("combine of %d, %d limbs: %v, want %v", n, limbs, got.v[i], want[i])
					}
				}
				got.check(t, "combine")
			}
		}
	})
}

func TestSelectKernels(t *testing.T) {
	for _, c := range []struct{ name, err string }{
		{"generic", ""}, {"", ""}, {"sse2", "unknown"}, {"Generic", "unknown"},
	} {
		k, err := selectKernels(c.name)
		if c.err == "" {
			if err != nil || k == nil || (c.name != "" && k.name != c.name) {
				t.Errorf("%q: %v, %v", c.name, k, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: error %v, want %q", c.name, err, c.err)
		}
	}
	have := map[string]bool{}
	for _, k := range kernelSets() {
		have[k.name] = true
	}
	for _, name := range kernelNames {
		if _, err := selectKernels(name); (err == nil) != have[name] {
			t.Errorf("%q: error %v, available %v", name, err, have[name])
		}
	}
	t.Setenv("DCHAIN_CPU", "mmx")
	if _, err := NewCPU(CPUOptions{}); err == nil || !strings.Contains(err.Error(), os.Getenv("DCHAIN_CPU")) {
		t.Errorf("DCHAIN_CPU=mmx: %v", err)
	}
	for _, o := range []CPUOptions{{Threads: -1}, {Threads: 1 << 20}, {AuditEvery: -1}} {
		t.Setenv("DCHAIN_CPU", "")
		if _, err := NewCPU(o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

func BenchmarkPanel(b *testing.B) {
	for _, k := range kernelSets() {
		for _, tile := range tileSizes {
			const groups = 224
			w, a, init, dst := make([]uint8, groups*64), make([]int8, groups*tile*4), make([]int32, tile), make([]int32, tile*panelRows)
			b.Run(fmt.Sprintf("%s/%d", k.name, tile), func(b *testing.B) {
				b.SetBytes(groups * 64)
				for b.Loop() {
					k.panel(dst, init, w, a, tile, groups)
				}
				b.ReportMetric(float64(groups*64*tile)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
			})
		}
	}
}

func BenchmarkSplit(b *testing.B) {
	x, hi, lo := make([]float32, 4864), make([]int8, 4864), make([]int8, 4864)
	for i := range x {
		x[i] = float32(i)
	}
	for _, k := range kernelSets() {
		b.Run(k.name, func(b *testing.B) {
			for b.Loop() {
				k.absMax(x)
				k.split2(hi, lo, x, 1)
			}
		})
	}
}
