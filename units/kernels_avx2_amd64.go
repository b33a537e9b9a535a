//go:build amd64 && !purego

package units

var avx2Kernels = kernels{
	name:    "avx2",
	panel:   panelVector256,
	absMax:  absMaxVector256,
	split2:  split2Vector256,
	split3:  split3Vector256,
	combine: combineVector256,

	moments:    momentsVector256,
	normalise:  normaliseVector256,
	act:        actVector256,
	scores:     scoresVector256,
	highest:    highestGeneric,
	weigh:      weighVector256,
	accumulate: accumulateGeneric,

	sum: sumVector256,
}

//go:noescape
func panelAVX2(dst, init *int32, w *uint8, a *int8, stride, groups int)

//go:noescape
func absMaxAVX2(x *float32, blocks int) uint32

//go:noescape
func split2AVX2(hi, lo *int8, x *float32, blocks int, scale float32, out *[4]int32)

//go:noescape
func split3AVX2(h2, h1, h0 *int8, x *float32, blocks int, scale float32, out *[3]int32)

//go:noescape
func combineAVX2(dst *float32, u, u2 *int32, limbs int, exp2e float32, scale, bias *float32)

//go:noescape
func sumAVX2(x *uint64, blocks int) uint64

// panelVector256 takes two limb rows at a time, all that 16 registers hold.
func panelVector256(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	checkPanel(dst, init, w, a, tile, groups)
	for t := 0; t < tile; t += 2 {
		panelAVX2(&dst[t*panelRows], &init[t], &w[0], &a[t*groupK], tile*groupK, groups)
	}
}

// The row kernels take whole blocks of eight; the generic ones do the rest.

func absMaxVector256(x []float32) uint32 {
	n := len(x) &^ 7
	top := absMaxGeneric(x[n:])
	if n > 0 {
		top = max(top, absMaxAVX2(&x[0], n/8))
	}
	return top
}

func split2Vector256(hi, lo []int8, x []float32, scale float32) (largest, sum uint32, sumHi, sumLo int32) {
	hi, lo = hi[:len(x)], lo[:len(x)]
	n := len(x) &^ 7
	largest, sum, sumHi, sumLo = split2Generic(hi[n:], lo[n:], x[n:], scale)
	if n > 0 {
		var out [4]int32
		split2AVX2(&hi[0], &lo[0], &x[0], n/8, scale, &out)
		largest = max(largest, uint32(out[0]))
		sum += uint32(out[1])
		sumHi += out[2]
		sumLo += out[3]
	}
	return
}

func split3Vector256(h2, h1, h0 []int8, x []float32, scale float32) [3]int32 {
	h2, h1, h0 = h2[:len(x)], h1[:len(x)], h0[:len(x)]
	n := len(x) &^ 7
	sums := split3Generic(h2[n:], h1[n:], h0[n:], x[n:], scale)
	if n > 0 {
		var out [3]int32
		split3AVX2(&h2[0], &h1[0], &h0[0], &x[0], n/8, scale, &out)
		for i := range sums {
			sums[i] += out[i]
		}
	}
	return sums
}

func combineVector256(dst []float32, u, u2 []int32, limbs int, exp2e float32, scale, bias []float32) {
	if len(dst) != panelRows {
		combineGeneric(dst, u, u2, limbs, exp2e, scale, bias)
		return
	}
	_, _ = u[limbs*panelRows-1], scale[panelRows-1]
	var second *int32
	if u2 != nil {
		second = &u2[:limbs*panelRows][0]
	}
	var b *float32
	if bias != nil {
		b = &bias[:panelRows][0]
	}
	combineAVX2(&dst[0], &u[0], second, limbs, exp2e, &scale[0], b)
}

func sumVector256(x []uint64) uint64 {
	n := len(x) &^ 15
	total := sumGeneric(x[n:])
	if n > 0 {
		total += sumAVX2(&x[0], n/16)
	}
	return total
}
