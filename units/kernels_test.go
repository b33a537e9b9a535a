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

var (
	panelGroups = []int{4, 8, 12, 16, 60, 64, 68, 224, 1000}
	panelFills  = []string{"random", "low", "high", "mixed", "edges"}
)

func TestPanelKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for _, tile := range tileSizes {
			for _, groups := range panelGroups {
				for _, fill := range panelFills {
					w, a, init := panelInputs(fill, groups*64, groups*tile*4, tile, rng)
					got, want := newGuarded[int32](tile*panelRows, 55), make([]int32, tile*panelRows)
					k.panel(got.v, init.v, w.v, a.v, tile, groups)
					for i := range want {
						row := i / panelRows
						want[i] = init.v[row] + unitSum(w.v, a.v, i%panelRows, groups, func(g int) int { return g*tile + row })
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

func TestBlockKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		if k.block == nil {
			t.Skip("no matrix unit")
		}
		for rows := 2; rows <= blockTile; rows += 2 {
			for _, groups := range panelGroups {
				fill, tiles, panels := panelFills[rng.IntN(len(panelFills))], 1+rng.IntN(blockSums), 1+rng.IntN(blockPanels)
				checkBlockSums(t, k, fill, tiles, panels, rows, groups, rng)
			}
		}
		for _, fill := range panelFills {
			checkBlockSums(t, k, fill, 2, 2, 32, 224, rng)
		}
	})
}

func checkBlockSums(t *testing.T, k *kernels, fill string, tiles, panels, rows, groups int, rng *rand.Rand) {
	t.Helper()
	words := padded(groups, blockGroups) * rows // of a tile
	w, a, init := panelInputs(fill, panels*groups*64, tiles*words*groupK, tiles*rows*panelRows, rng)
	for i := range a.v {
		if i/(64*rows)*64%(words*groupK/rows)+i%64 >= groups*groupK {
			a.v[i] = 0
		}
	}
	got := newGuarded[unitSums](tiles, unitSums{{1}, {2}})
	k.block(got.v, init.v, w.v, panels, a.v, rows, groups)
	for b := range tiles {
		for p := range panels {
			for i := range rows * panelRows {
				s, n := i/panelRows, i%panelRows
				want := init.v[b*rows*panelRows+i] + unitSum(w.v[p*groups*64:], a.v[b*words*groupK:], n, groups, func(g int) int { return (g/16*rows+s)*16 + g%16 })
				if v := got.v[b][p][i]; v != want {
					t.Fatalf("tile %d of %d, %d rows, %d groups, panel %d of %d, %s: sum of row %d, output %d is %d, want %d", b, tiles, rows,
						groups, p, panels, fill, s, n, v, want)
				}
			}
		}
	}
	got.check(t, "block")
}

func TestPairKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		if k.pairs == nil {
			t.Skip("no matrix unit")
		}
		for rows := 2; rows <= blockTile; rows += 2 {
			for _, groups := range []int{16, 32, 48, 128} {
				count := 1 + rng.IntN(blockSums)
				w, a, init := panelInputs(panelFills[rng.IntN(len(panelFills))], count*blockPanels*groups*64, groups*rows*groupK, rows*panelRows, rng)
				got := newGuarded[unitSums](count, unitSums{{1}, {2}})
				k.pairs(got.v, init.v, w.v, a.v, rows, groups)
				for p := range blockPanels * count {
					for i := range rows * panelRows {
						s, n := i/panelRows, i%panelRows
						want := init.v[i] + unitSum(w.v[p*groups*64:], a.v, n, groups, func(g int) int { return (g/16*rows+s)*16 + g%16 })
						if v := got.v[p/2][p%2][i]; v != want {
							t.Fatalf("%d rows, %d groups, panel %d of %d pairs: sum of row %d, output %d is %d, want %d", rows, groups, p, count, s, n, v, want)
						}
					}
				}
				got.check(t, "pairs")
			}
		}
	})
}

// panelInputs draws weights, limbs and initial sums of a kind.
func panelInputs(fill string, weights, limbs, inits int, rng *rand.Rand) (w guarded[uint8], a guarded[int8], init guarded[int32]) {
	w, a, init = newGuarded[uint8](weights, 77), newGuarded[int8](limbs, 77), newGuarded[int32](inits, 99)
	for i := range w.v {
		w.v[i] = fillByte(fill, i, rng) ^ 0x80
	}
	for i := range a.v {
		a.v[i] = int8(fillByte(fill, i/3, rng))
	}
	for i := range init.v {
		init.v[i] = int32(rng.Uint32())
	}
	return
}

// unitSum is the sum of the products of a limb row, whose groups lie at these words of a, and output n of a panel.
func unitSum(w []uint8, a []int8, n, groups int, word func(g int) int) (s int32) {
	for g := range groups {
		for i := range groupK {
			s += int32(a[word(g)*groupK+i]) * int32(w[(g*panelRows+n)*groupK+i])
		}
	}
	return s
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
		const most = blockTile / 2
		u, u2 := make([]int32, 3*most*panelRows), make([]int32, 3*most*panelRows)
		for round := range 300 {
			for i := range u {
				u[i], u2[i] = int32(rng.Uint32())>>rng.IntN(32), int32(rng.Uint32())>>rng.IntN(32)
			}
			rows := make([]quantised, 1+round%most)
			used := 0
			for i := range rows {
				rows[i] = quantised{exp: rng.IntN(190) - 88, limbs: 2 + rng.IntN(2)}
				used += rows[i].limbs * panelRows
			}
			for n := 1; n <= panelRows; n++ {
				scale, bias := newGuarded[float32](n, 1e30), newGuarded[float32](n, 1e30)
				for i := range scale.v {
					scale.v[i] = float32(math.Ldexp(rng.Float64(), -rng.IntN(60)))
					bias.v[i] = float32(math.Ldexp(rng.NormFloat64(), -rng.IntN(60)))
				}
				second, b := u2[:used], bias.v
				if round&1 == 0 {
					second = nil
				}
				if round&2 == 0 {
					b = nil
				}
				stride := n + rng.IntN(3)*5
				got, want := newGuarded[float32]((len(rows)-1)*stride+n, 5), make([]float32, (len(rows)-1)*stride+n)
				for i := range want {
					want[i] = 5
				}
				k.combine(got.v, stride, u[:used], second, rows, scale.v, b)
				combineGeneric(want, stride, u, second, rows, scale.v, b)
				sameBits(t, fmt.Sprintf("combine of %d outputs of %d rows", n, len(rows)), got.v, want)
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

func BenchmarkBlock(b *testing.B) {
	for _, k := range kernelSets() {
		if k.block == nil {
			continue
		}
		for _, groups := range []int{16, 224, 1216} {
			for _, rows := range []int{16, 24, 32} {
				w, a := slices.Repeat([]uint8{1}, blockPanels*groups*64), slices.Repeat([]int8{1}, blockSums*groups*rows*4)
				init, dst := make([]int32, blockSums*rows*panelRows), make([]unitSums, blockSums)
				b.Run(fmt.Sprintf("%s/%d/%d", k.name, groups*groupK, rows), func(b *testing.B) {
					for b.Loop() {
						k.block(dst, init, w, blockPanels, a, rows, groups)
					}
					b.ReportMetric(float64(blockSums*blockPanels*groups*64*rows)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
				})
			}
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
