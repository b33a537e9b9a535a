package units

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// eachHeadSet runs f for the tables that have kernels of whole heads.
func eachHeadSet(t *testing.T, f func(t *testing.T, k *kernels, rng *rand.Rand)) {
	eachSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		if k.headScores == nil {
			t.Skip("no matrix unit")
		}
		f(t, k, rng)
	})
}

// TestHeadScores holds the kernel against the generic ones.
func TestHeadScores(t *testing.T) {
	eachHeadSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		for round := range 300 {
			n, blocks, steps := 1+round%16, 1+rng.IntN(5), []int{1, 1, 2, 4}[rng.IntN(4)]
			groups, fill := steps*blockGroups, panelFills[rng.IntN(len(panelFills))]
			size := 2 * groups * groupK * blockPositions // of a block's keys, and of its values
			w, a, _ := panelInputs(fill, 2*blocks*size, groups*2*n*groupK, 1, rng)
			h := headScores{tile: a.v, keys: w.v, n: n, panels: blocks * blockPositions / panelRows, steps: steps,
				step: 2 * n * blockGroups * groupK, gap: size, scale: rng.Float32(), exp2: make([]float32, n)}
			h.exps = make([]int16, 2*blocks*blockPositions)
			for i := range h.exps {
				h.exps[i] = int16(rng.IntN(60) - 80)
			}
			plain, init := make([]uint32, groups*2*n), make([]int32, 2*n)
			for i := range n {
				h.exp2[i] = pow2(rng.IntN(60) - 80)
				for limb := range 2 {
					sum := int32(0)
					for g := range groups {
						word := wordsOf(a.v)[(g/16*2*n+2*i+limb)*16+g%16]
						plain[g*2*n+2*i+limb] = word
						for _, v := range int8s([]uint32{word}) {
							sum += int32(v)
						}
					}
					h.addInit(i, limb, sum)
					init[2*i+limb] = -128 * sum
				}
			}
			got, want := newGuarded[float32](blocks*n*blockPositions, 5), make([]float32, blocks*n*blockPositions)
			h.dst = got.v
			k.headScores(&h)
			u := make([]unitSums, blockPositions/panelRows)
			for b := range blocks {
				for p := range 2 * len(u) {
					panelGeneric(u[p/2][p%2][:], init, w.v[2*b*size+p*size/8:][:size/8], int8s(plain), 2*n, groups)
				}
				scoresGeneric(want[b*n*blockPositions:], u, h.exp2, h.exps[2*b*blockPositions:], h.scale)
			}
			sameBits(t, "headScores", got.v, want)
			got.check(t, "headScores")
		}
	})
}

// TestHeadValues holds the kernels against the generic ones over more blocks than are collected at once.
func TestHeadValues(t *testing.T) {
	eachHeadSet(t, func(t *testing.T, k *kernels, rng *rand.Rand) {
		met := map[string]int{}
		for round := range 60 {
			n, panels := 1+round%16, []int{1, 2, 4, 5, 16}[rng.IntN(5)]
			channels := panels * panelRows
			got, want := newGuarded[int64](n*channels, 5), make([]int64, n*channels)
			tops := make([]int32, n)
			for i := range tops {
				tops[i] = int32(rng.IntN(100) - 60)
			}
			var h headSums
			clear(got.v)
			h.reset(n, channels, got.v)
			blocks := make([]headValues, 1+rng.IntN(valueBlocks))
			for count := 0; count < 45; {
				used := 0
				for i := range blocks {
					fill := []string{"random", "low", "high", "mixed", "edges"}[rng.IntN(5)]
					w, a, _ := panelInputs(fill, 2*panels*panelRows*blockPositions, 2*n*blockPositions, 1, rng)
					parts := make([]blockWeights, n)
					for q := range parts {
						parts[q] = blockWeights{exp: tops[q] - int32(rng.IntN(1+rng.IntN(90))), limbs: int32([]int{0, 2, 2, 2, 3}[rng.IntN(5)])}
						for p := range blockPositions { // high limbs of weights are not negative
							a.v[2*q*blockPositions+p] &= 0x7f
							parts[q].sum += int32(a.v[2*q*blockPositions+p])<<8 + int32(a.v[(2*q+1)*blockPositions+p])
						}
					}
					if !h.add(&blocks[i], parts, tops) {
						break
					}
					blocks[i].limbs, blocks[i].values = a.v, w.v
					addPlain(want, a.v, w.v, parts, tops, channels)
					met["near"] += blocks[i].nears
					met["far"] += blocks[i].fars
					used++
					if count++; h.blocks == collectBlocks {
						break
					}
				}
				if used > 0 {
					k.headValues(&h, blocks[:used])
				}
				if h.blocks == collectBlocks {
					met["settled"]++
					h.settle(k)
				}
			}
			h.settle(k)
			if !slices.Equal(got.v, want) {
				t.Fatalf("values of %d queries, %d panels: differ", n, panels)
			}
			got.check(t, "headValues")
		}
		for _, what := range []string{"near", "far", "settled"} {
			if met[what] == 0 {
				t.Errorf("no sums that are %s", what)
			}
		}
	})
}

// addPlain adds the sums of a block with two limbs to the totals, by the text of the numerics.
func addPlain(total []int64, limbs []int8, values []uint8, parts []blockWeights, tops []int32, channels int) {
	for i := range parts {
		n := parts[i].shift(tops[i])
		if parts[i].limbs != 2 || n < leastShift {
			continue
		}
		for d := range channels {
			sum := int64(0)
			for p := range blockPositions {
				at := d/panelRows*2*panelRows*blockPositions + inPanel(d%panelRows, p)
				v := 256*(int64(values[at])-128) + int64(values[at+panelRows*blockPositions]) - 128
				sum += (256*int64(limbs[2*i*blockPositions+p]) + int64(limbs[(2*i+1)*blockPositions+p])) * v
			}
			total[i*channels+d] += shift(sum, n)
		}
	}
}
