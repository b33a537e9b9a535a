//go:build amd64 && !purego

package units

var avx512Kernels = kernels{
	name:    "avx512vnni",
	panel:   panelVNNI,
	absMax:  absMaxVector512,
	split2:  split2Vector512,
	split3:  split3Vector512,
	combine: combineVector512,

	moments:    momentsVector512,
	normalise:  normaliseVector512,
	act:        actVector512,
	scores:     scoresVector512,
	highest:    highestVector512,
	weigh:      weighVector,
	weighTile:  weighTile512,
	accumulate: accumulateVector512,

	sum: sumVector512,
}

// The assembly reads and writes exactly what its arguments cover; the wrappers check that the slices hold it.

//go:noescape
func panelVNNI2(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func panelVNNI4(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func panelVNNI8(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func panelVNNI16(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func panelVNNI24(dst, init *int32, w *uint8, a *int8, groups int)

//go:noescape
func absMaxAVX512(x *float32, n int) uint32

//go:noescape
func split2AVX512(hi, lo *int8, x *float32, n int, scale float32, out *[4]int32)

//go:noescape
func split3AVX512(h2, h1, h0 *int8, x *float32, n int, scale float32, out *[3]int32)

//go:noescape
func combineAVX512(dst *float32, n, stride int, u, u2 *int32, rows *quantised, count int, scale, bias *float32)

//go:noescape
func sumAVX512(x *uint64, blocks int) uint64

func sumVector512(x []uint64) uint64 {
	n := len(x) &^ 31
	total := sumGeneric(x[n:])
	if n > 0 {
		total += sumAVX512(&x[0], n/32)
	}
	return total
}

func panelVNNI(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	checkPanel(dst, init, w, a, tile, groups)
	switch tile {
	case 2:
		panelVNNI2(&dst[0], &init[0], &w[0], &a[0], groups)
	case 4:
		panelVNNI4(&dst[0], &init[0], &w[0], &a[0], groups)
	case 8:
		panelVNNI8(&dst[0], &init[0], &w[0], &a[0], groups)
	case 16:
		panelVNNI16(&dst[0], &init[0], &w[0], &a[0], groups)
	case 24:
		panelVNNI24(&dst[0], &init[0], &w[0], &a[0], groups)
	default:
		panic("units: no panel kernel for this tile")
	}
}

func absMaxVector512(x []float32) uint32 {
	if len(x) == 0 {
		return 0
	}
	return absMaxAVX512(&x[0], len(x))
}

func split2Vector512(hi, lo []int8, x []float32, scale float32) (largest, sum uint32, sumHi, sumLo int32) {
	if len(x) == 0 {
		return
	}
	_, _ = hi[len(x)-1], lo[len(x)-1]
	var out [4]int32
	split2AVX512(&hi[0], &lo[0], &x[0], len(x), scale, &out)
	return uint32(out[0]), uint32(out[1]), out[2], out[3]
}

func split3Vector512(h2, h1, h0 []int8, x []float32, scale float32) (sums [3]int32) {
	if len(x) == 0 {
		return
	}
	_, _, _ = h2[len(x)-1], h1[len(x)-1], h0[len(x)-1]
	split3AVX512(&h2[0], &h1[0], &h0[0], &x[0], len(x), scale, &sums)
	return
}

func combineVector512(dst []float32, stride int, u, u2 []int32, rows []quantised, scale, bias []float32) {
	n, count := len(scale), len(rows)
	if n < 1 || n > panelRows || count < 1 {
		panic("units: combine of a shape that is no panel")
	}
	used := 0
	for i := range rows {
		used += rows[i].limbs
	}
	_, _ = dst[(count-1)*stride+n-1], u[used*panelRows-1]
	var second *int32
	if u2 != nil {
		second = &u2[:used*panelRows][0]
	}
	var b *float32
	if bias != nil {
		b = &bias[:n][0]
	}
	combineAVX512(&dst[0], n, stride, &u[0], second, &rows[0], count, &scale[0], b)
}
