package units

import (
	"fmt"
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
		u, exps := randomSums(rng, 31), make([]int16, blockPositions)
		for range 500 {
			n, panels := 1+rng.IntN(k.attendQueries(64)), 1+rng.IntN(blockPositions/panelRows)
			for p := range panels {
				for range 64 { // sums of every size
					u[p][rng.IntN(2)][rng.IntN(2*n*panelRows)] = int32(rng.Uint32()) >> (4 + rng.IntN(28))
				}
			}
			for i := range exps {
				exps[i] = int16(rng.IntN(60) - 80)
			}
			exp2, scale := make([]float32, n), float32(rng.Float64())
			for i := range exp2 {
				exp2[i] = pow2(rng.IntN(60) - 80)
			}
			size := (n-1)*blockPositions + panels*panelRows
			got, want := newGuarded[float32](size, 5), slices.Repeat([]float32{5}, size)
			k.scores(got.v, u[:panels], exp2, exps, scale)
			scoresGeneric(want, u[:panels], exp2, exps, scale)
			sameBits(t, fmt.Sprintf("scores of %d queries", n), got.v, want)
			got.check(t, "scores")
		}
	})
}

// randomSums are unit sums of up to so many bits.
func randomSums(rng *rand.Rand, bits int) []unitSums {
	u := make([]unitSums, blockSums)
	for p := range u {
		for b := range u[p] {
			for i := range u[p][b] {
				u[p][b][i] = int32(rng.Uint32()) >> (32 - bits)
			}
		}
	}
	return u
}

func TestHighestKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for round := range 200 {
			n := 1 + round%16
			x := values(rng, n*blockPositions, -10, 5)
			for range round % 80 {
				x.v[rng.IntN(len(x.v))] = float32(math.Inf(-1))
			}
			best := newGuarded[float32](n, 5)
			for i := range best.v {
				best.v[i] = []float32{float32(math.Inf(-1)), -1, 70}[rng.IntN(3)]
			}
			want := slices.Clone(best.v)
			highestGeneric(want, x.v)
			k.highest(best.v, x.v)
			sameBits(t, "highest", best.v, want)
			best.check(t, "highest")
		}
	})
}

func TestWeighKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for round := range 30 {
			for n := 1; n <= blockPositions; n++ {
				x := values(rng, n, -10, 5)
				m := slices.Max(x.v)
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
	})
}

// weighInputs are the scores of a block of one query, whose largest is not above m: a kind of distribution each.
func weighInputs(rng *rand.Rand, kind int, m float32) (x []float32, exps []int16) {
	x, exps = make([]float32, blockPositions), make([]int16, blockPositions)
	base := rng.IntN(193) - 80
	for i := range x {
		exps[i] = int16(min(max(base+rng.IntN(5), -80), 113))
		switch kind {
		case 0: // flat
			x[i] = m - 2*rng.Float32()
		case 1: // one that outweighs the others, more or less
			x[i] = m - 3 - 4*rng.Float32()
		case 2: // around the smallest weight
			x[i] = m - 27.7258872 - rng.Float32()*float32(math.Ldexp(1, -rng.IntN(24)))
		case 3: // all sizes
			x[i], exps[i] = m-40*rng.Float32(), int16(rng.IntN(194)-80)
		case 4: // none
			x[i] = m - 28 - float32(math.Ldexp(rng.Float64(), rng.IntN(120)))
		case 5: // exponents at the lower end
			x[i], exps[i] = m-30*rng.Float32(), -80
		case 6: // largest weights that round up to the next exponent
			x[i], exps[i] = m-float32(math.Ldexp(rng.Float64(), -rng.IntN(20))), 3
		case 7: // equal
			x[i] = m
		}
	}
	if kind == 1 {
		x[rng.IntN(len(x))] = m - rng.Float32()
	}
	return
}

// TestWeighTileKernels holds the kernels of whole tiles against those of rows.
func TestWeighTileKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		if k.weighTile == nil {
			t.Skip("leaves it to weigh")
		}
		var s scratch
		kinds := [4]int{}
		for round := range 4000 {
			n := 1 + round%16
			x, low := newGuarded[float32](n*blockPositions, 7e30), newGuarded[int8](n*blockPositions, 77)
			parts, m := newGuarded[blockWeights](n, blockWeights{exp: 1}), newGuarded[float32](n, 5)
			sums := newGuarded[weightSums](n, weightSums{{1}, {2}})
			wantLimbs, wantLow := make([]int8, 2*n*blockPositions), make([]int8, n*blockPositions)
			want, d := make([]blockWeights, n), make([]int64, n)
			_, exps := weighInputs(rng, rng.IntN(8), 1)
			for i := range n {
				m.v[i] = float32(rng.NormFloat64() * math.Ldexp(1, rng.IntN(8)))
				row, e := weighInputs(rng, rng.IntN(8), m.v[i])
				if i == 0 {
					exps = e
				}
				lo, hi := 0, blockPositions
				if rng.IntN(3) == 0 {
					lo = rng.IntN(blockPositions)
					hi = lo + rng.IntN(blockPositions-lo+1)
				}
				hide(row[:lo])
				hide(row[hi:])
				copy(x.v[i*blockPositions:], row)
				parts.v[i], sums.v[i] = blockWeights{seen: int32(hi - lo)}, weightSums{{int32(i)}, {0, 9}}
				want[i].seen = int32(hi - lo)
				one, oneLow := slices.Clone(row), make([]int8, blockPositions)
				s.highest = m.v[i:]
				d[i] = s.weighRow(&genericKernels, 0, one, oneLow, &want[i], lo, hi, exps)
				copy(wantLimbs[2*i*blockPositions:], limbsOf(one)[:2*blockPositions])
				copy(wantLow[i*blockPositions:], oneLow)
			}
			k.weighTile(x.v, low.v, parts.v, m.v, exps, sums.v)
			for i := range n {
				got, w := parts.v[i], want[i]
				kinds[w.limbs]++
				sum := int32(0)
				for _, v := range w.sums[:w.limbs] {
					sum = sum<<8 + v
				}
				if got.limbs != w.limbs || got.seen != w.seen || w.limbs != 0 && (got.exp != w.exp || got.sum != sum || got.sums != [3]int32{}) {
					t.Fatalf("query %d of %d: %+v, want %+v of sum %d", i, n, got, w, sum)
				}
				rows := limbsOf(x.v)[2*i*blockPositions:][:2*blockPositions]
				if !slices.Equal(rows, wantLimbs[2*i*blockPositions:][:2*blockPositions]) {
					t.Fatalf("query %d of %d, %+v: limbs differ", i, n, w)
				}
				if w.limbs == 3 && !slices.Equal(low.v[i*blockPositions:][:blockPositions], wantLow[i*blockPositions:][:blockPositions]) {
					t.Fatalf("query %d of %d: third limbs differ", i, n)
				}
				part := scratch{sums: []int64{-int64(i)<<18 - 9}, lanes: sums.v[i : i+1 : i+1]}
				if part.fold(); part.sums[0] != d[i] {
					t.Fatalf("query %d of %d: D grows by %d, want %d", i, n, part.sums[0], d[i])
				}
			}
			sums.check(t, "weighTile")
			x.check(t, "weighTile")
			low.check(t, "weighTile")
			parts.check(t, "weighTile")
			m.check(t, "weighTile")
		}
		if kinds[0] == 0 || kinds[2] == 0 || kinds[3] == 0 {
			t.Errorf("numbers of limbs met: %v", kinds)
		}
	})
}

func TestAccumulateKernels(t *testing.T) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		u, low := randomSums(rng, 22), randomSums(rng, 22)
		for round := range 3000 {
			n, panels := 1+rng.IntN(k.attendQueries(64)), 1+rng.IntN(blockSums)
			parts, tops := make([]blockWeights, n), make([]int32, n)
			for i := range parts {
				tops[i] = int32(rng.IntN(190) - 80)
				parts[i] = blockWeights{exp: tops[i] - int32(rng.IntN(80)), limbs: int32([]int{0, 2, 2, 3}[rng.IntN(4)]), seen: 64}
				if k.weighTile != nil {
					parts[i].sum = int32(rng.Uint32()) & (1<<21 - 1) << (4 * (parts[i].limbs & 1))
				}
			}
			if round == 0 {
				u[0][0][0], u[0][1][0] = math.MaxInt32>>10, math.MinInt32>>10
			}
			third := low[:panels]
			if !slices.ContainsFunc(parts, func(p blockWeights) bool { return p.limbs == 3 }) {
				third = nil
			}
			stride := panels*panelRows + rng.IntN(3)*panelRows
			got, want := newGuarded[int64]((n-1)*stride+panels*panelRows, 5), make([]int64, (n-1)*stride+panels*panelRows)
			for i := range want {
				want[i] = int64(rng.Uint64()) >> 8
				got.v[i] = want[i]
			}
			k.accumulate(got.v, stride, u[:panels], third, parts, tops)
			accumulateGeneric(want, stride, u[:panels], third, parts, tops)
			if !slices.Equal(got.v, want) {
				t.Fatalf("accumulate of %d queries, %d panels: differs", n, panels)
			}
			got.check(t, "accumulate")
		}
	})
}
