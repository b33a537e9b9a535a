package units

import (
	"fmt"
	"strings"
)

// panelRows is the number of output rows of a panel: weights (and the KV cache) lie in panels, so that one vector
// register holds the sums of a whole panel and no sum crosses lanes.
//
// A panel of K inputs, K padded to a multiple of padK, is [K/4][16 rows][4 inputs] bytes, each the int8 value + 128.
// An activation tile of T limb rows is [K/4][T][4] int8, zero in the padding, so the padding of a panel never counts.
// A block tile, for kernel sets with a matrix unit, is [K/64][T][64], T even and up to blockTile, K padded to 64.
const (
	panelRows   = 16
	padK        = 16
	groupK      = 4
	maxTile     = 24
	blockTile   = 32
	blockPanels = 2
	blockGroups = 64 / groupK
)

// blockSums is how many block tiles are multiplied at a time.
const blockSums = 4

// unitSums are those of one tile with two panels.
type unitSums [blockPanels][blockTile * panelRows]int32

// tileSizes are the numbers of limb rows a panel kernel handles.
var tileSizes = [...]int{2, 4, 8, 16, 24}

// tileSize is the smallest tile of at least n limb rows, n <= maxTile.
func tileSize(n int) int {
	for _, t := range tileSizes {
		if t >= n {
			return t
		}
	}
	panic("units: more limb rows than a tile holds")
}

// padded rounds up to a multiple of m.
func padded(n, m int) int { return (n + m - 1) / m * m }

// kernels is the table of inner loops. Every table gives the bits of the generic one.
type kernels struct {
	name string

	// panel multiplies a tile with a panel:
	//
	//	dst[t*16+n] = init[t] + sum over g, i of a[g][t][i] * w[g][n][i]   (mod 2^32)
	//
	// with t < tile, n < 16, g < groups, i < 4. groups is a multiple of 4, w holds groups*64 bytes (value + 128), a holds
	// groups*tile*4. With init[t] = -128 * sum(a[t]) the result is the unit sum of section 4.
	panel func(dst, init []int32, w []uint8, a []int8, tile, groups int)

	// block, nil in sets without a matrix unit, is panel for consecutive block tiles and one or two panels:
	//
	//	dst[b][p][t*16+n] = init[b][t][n] + sum over g, i of a[b][g/16][t][4*(g%16)+i] * w[p][g][n][i]   (mod 2^32)
	//
	// with b < len(dst), p < panels, t < rows. What dst holds beyond these panels and rows is undefined afterwards.
	block func(dst []unitSums, init []int32, w []uint8, panels int, a []int8, rows, groups int)

	// pairs, nil where block is, is block for one tile and consecutive pairs of panels; groups is a multiple of blockGroups:
	//
	//	dst[b][p][t*16+n] = init[t][n] + sum over g, i of a[g/16][t][4*(g%16)+i] * w[2*b+p][g][n][i]   (mod 2^32)
	pairs func(dst []unitSums, init []int32, w []uint8, a []int8, rows, groups int)

	// absMax is the largest magnitude of x, as bits; at least infBits if a value is not finite.
	absMax func(x []float32) uint32

	// split2 writes the limbs of q = RNE(x * scale), |q| <= 32639, and returns the largest and the sum of |q|>>1 and the
	// sums of the limbs.
	split2 func(hi, lo []int8, x []float32, scale float32) (largest, sum uint32, sumHi, sumLo int32)

	// split3 writes the limbs of q = RNE(x * scale) clamped to +-8355711 and returns their sums.
	split3 func(h2, h1, h0 []int8, x []float32, scale float32) [3]int32

	// combine is the float part of section 4 for consecutive activation rows and one panel: outputs of row r begin at
	// dst[r*stride], up to 16, as many as scale and bias (nil for none) have values. u holds the unit sums with the first
	// weight limb, [limbs][16] of each row one after another, u2 those with the second (nil for int8).
	combine func(dst []float32, stride int, u, u2 []int32, rows []quantised, scale, bias []float32)

	// moments are the sums of g and g^2, g = RNE(x * scale), |g| <= 2^21 (section 5).
	moments func(x []float32, scale float32) (sum, squares int64)

	// normalise computes y = flush(flush(x * r) * w + b); b may be nil, y may be x.
	normalise func(y, x []float32, r float32, w, b []float32)

	// act computes y = act(x), or flush(act(x) * up) if up is not nil; y may be x or up.
	act func(kind ActKind, y, x, up []float32)

	// scores joins the unit sums of queries, two limb rows each, with the keys of consecutive panels into s_j (section 8): u[p][b]
	// are those with limb b of the keys of panel p, exps the keys' exponents.
	//
	//	dst[i*64+p*16:][:16] of query i < len(exp2q) and panel p < len(u)
	scores func(dst []float32, u []unitSums, exp2q []float32, exps []int16, scale float32)

	// highest raises best[i] to the largest of x[i*64:][:64], which hold no NaN and no -0.
	highest func(best, x []float32)

	// weigh turns scores into weights w_j, given their maximum and the values' exponents; it returns the sum of
	// RNE(p_j * 2^36) and the bits of the largest weight.
	weigh func(w []float32, m float32, exps []int16) (sum int64, top uint32)

	// weighTile, nil in sets that leave it to weigh and quantiseRow, turns the scores [queries][64] of a block, -Inf where a
	// position is not seen, given the maximum of each query and the values' exponents, into the limbs of the weights: in the place
	// of the scores, rows [queries][2 limbs][64] of int8; in low [queries][64] the third limbs of those that have one. It fills
	// parts in, seen excepted, and adds to sums.
	weighTile func(x []float32, low []int8, parts []blockWeights, m []float32, exps []int16, sums []weightSums)

	// accumulate adds shift(B, n) of the channels of consecutive panels for each query, to total[i*stride+p*16:][:16]: u[p][b]
	// are the unit sums of its first two limbs, two rows each, with limb b of the values, low[p][b] those of its third limb, one
	// row each; low is empty if no query has one. n is exp - top + 12.
	accumulate func(total []int64, stride int, u, low []unitSums, parts []blockWeights, tops []int32)

	// headScores, headValues and settle, nil where block is, are panel, scores and accumulate for queries that fill a block tile:
	// headScores for the scores, headValues for the sums with two limbs, which it collects or shifts into the totals, and settle for
	// what is collected: it adds (B - offset) << collectFrom.
	headScores func(h *headScores)
	headValues func(h *headSums, blocks []headValues)
	settle     func(h *headSums)

	// sum adds words, for MemoryBandwidth.
	sum func(x []uint64) uint64
}

// kernelSets lists the tables this processor can run, best first; the generic one is last.
func kernelSets() []*kernels { return append(archKernels(), &genericKernels) }

// kernelNames are the accepted values of the environment variable DCHAIN_CPU.
var kernelNames = []string{"generic", "avx2", "avxvnni", "avx512vnni", "amx", "neon", "sdot"}

// selectKernels picks the table by name, or the best one for the empty name.
func selectKernels(name string) (*kernels, error) {
	sets := kernelSets()
	if name == "" {
		return sets[0], nil
	}
	for _, s := range sets {
		if s.name == name {
			return s, nil
		}
	}
	for _, known := range kernelNames {
		if known == name {
			return nil, fmt.Errorf("DCHAIN_CPU=%s: this processor or build cannot run it", name)
		}
	}
	return nil, fmt.Errorf("DCHAIN_CPU=%s: unknown (use %s)", name, strings.Join(kernelNames, ", "))
}
