//go:build (amd64 || arm64) && !purego

package units

import "dchain/luts"

// The kernels of short vectors: AVX2 and the NEON of arm64. The assembly takes whole blocks of 8 values (X8, X16: 16), the
// generic kernels do the rest. The checks of arguments serve every set in assembly.

// checkPanel panics where the slices are too short for a panel of this shape.
func checkPanel(dst, init []int32, w []uint8, a []int8, tile, groups int) {
	if groups < 4 || groups%4 != 0 {
		panic("units: panel of a width that is not padded")
	}
	_, _, _, _ = dst[tile*panelRows-1], init[tile-1], w[groups*panelRows*groupK-1], a[groups*tile*groupK-1]
}

// checkBlock panics where the slices are too short for a block of this shape.
func checkBlock(dst []unitSums, init []int32, w []uint8, panels int, a []int8, rows, groups int) {
	if len(dst) == 0 || panels < 1 || panels > blockPanels || rows < 2 || rows > blockTile || rows%2 != 0 || groups < 4 || groups%4 != 0 {
		panic("units: no block kernel for this shape")
	}
	_, _ = init[len(dst)*rows*panelRows-1], w[panels*groups*panelRows*groupK-1]
	_ = a[len(dst)*padded(groups, blockGroups)*rows*groupK-1]
}

// checkPairs panics where the slices are too short for pairs of panels of this shape.
func checkPairs(dst []unitSums, init []int32, w []uint8, a []int8, rows, groups int) {
	if len(dst) == 0 || rows < 2 || rows > blockTile || rows%2 != 0 || groups < blockGroups || groups%blockGroups != 0 {
		panic("units: no kernel for pairs of panels of this shape")
	}
	_, _, _ = init[rows*panelRows-1], w[len(dst)*blockPanels*groups*panelRows*groupK-1], a[groups*rows*groupK-1]
}

//go:noescape
func absMaxX8(x *float32, blocks int) uint32

//go:noescape
func split2X8(hi, lo *int8, x *float32, blocks int, scale float32, out *[4]int32)

//go:noescape
func split3X8(h2, h1, h0 *int8, x *float32, blocks int, scale float32, out *[3]int32)

//go:noescape
func combineX16(dst *float32, u, u2 *int32, limbs int, exp2e float32, scale, bias *float32)

//go:noescape
func sumX16(x *uint64, blocks int) uint64

//go:noescape
func siluX8(y, x, up *float32, blocks int, exp2, recip *float32)

//go:noescape
func geluX8(y, x, up *float32, blocks int, exp2, recip *float32)

//go:noescape
func scoresX16(dst *float32, hi, lo *int32, exp2q float32, exps *int16, scale float32)

//go:noescape
func weighX8(w *float32, blocks int, m float32, exps *int16, exp2 *float32) (sum int64, top uint32)

//go:noescape
func momentsX8(x *float32, blocks int, scale float32) (sum, squares int64)

//go:noescape
func normaliseX8(y, x *float32, blocks int, r float32, w, b *float32)

func absMaxVector(x []float32) uint32 {
	n := len(x) &^ 7
	top := absMaxGeneric(x[n:])
	if n > 0 {
		top = max(top, absMaxX8(&x[0], n/8))
	}
	return top
}

func split2Vector(hi, lo []int8, x []float32, scale float32) (largest, sum uint32, sumHi, sumLo int32) {
	hi, lo = hi[:len(x)], lo[:len(x)]
	n := len(x) &^ 7
	largest, sum, sumHi, sumLo = split2Generic(hi[n:], lo[n:], x[n:], scale)
	if n > 0 {
		var out [4]int32
		split2X8(&hi[0], &lo[0], &x[0], n/8, scale, &out)
		largest = max(largest, uint32(out[0]))
		sum += uint32(out[1])
		sumHi += out[2]
		sumLo += out[3]
	}
	return
}

func split3Vector(h2, h1, h0 []int8, x []float32, scale float32) [3]int32 {
	h2, h1, h0 = h2[:len(x)], h1[:len(x)], h0[:len(x)]
	n := len(x) &^ 7
	sums := split3Generic(h2[n:], h1[n:], h0[n:], x[n:], scale)
	if n > 0 {
		var out [3]int32
		split3X8(&h2[0], &h1[0], &h0[0], &x[0], n/8, scale, &out)
		for i := range sums {
			sums[i] += out[i]
		}
	}
	return sums
}

func combineVector(dst []float32, stride int, u, u2 []int32, rows []quantised, scale, bias []float32) {
	if len(scale) != panelRows {
		combineGeneric(dst, stride, u, u2, rows, scale, bias)
		return
	}
	var b *float32
	if bias != nil {
		b = &bias[:panelRows][0]
	}
	at := 0
	for r := range rows {
		q, end := &rows[r], at+rows[r].limbs*panelRows
		var second *int32
		if u2 != nil {
			second = &u2[at:end][0]
		}
		combineX16(&dst[r*stride:][:panelRows][0], &u[at:end][0], second, q.limbs, pow2(q.exp), &scale[0], b)
		at = end
	}
}

func sumVector(x []uint64) uint64 {
	n := len(x) &^ 15
	total := sumGeneric(x[n:])
	if n > 0 {
		total += sumX16(&x[0], n/16)
	}
	return total
}

func actVector(kind ActKind, y, x, up []float32) {
	if kind > GELUTanh {
		actGeneric(kind, y, x, up)
		return
	}
	y = y[:len(x)]
	n := len(x) &^ 7
	var rest []float32
	if up != nil {
		rest = up[n:len(x)]
	}
	if n > 0 {
		var u *float32
		if up != nil {
			u = &up[0]
		}
		f := siluX8
		if kind == GELUTanh {
			f = geluX8
		}
		f(&y[0], &x[0], u, n/8, &luts.Exp2[0], &luts.Recip[0])
	}
	actGeneric(kind, y[n:], x[n:], rest)
}

func scoresVector(dst []float32, u []unitSums, exp2q []float32, exps []int16, scale float32) {
	for p := range u {
		e := exps[p*panelRows:][:panelRows]
		for i, q := range exp2q {
			hi, lo := u[p][0][2*i*panelRows:][:2*panelRows], u[p][1][2*i*panelRows:][:2*panelRows]
			scoresX16(&dst[i*blockPositions+p*panelRows:][:panelRows][0], &hi[0], &lo[0], q, &e[0], scale)
		}
	}
}

func weighVector(w []float32, m float32, exps []int16) (sum int64, top uint32) {
	exps = exps[:len(w)]
	n := len(w) &^ 7
	sum, top = weighGeneric(w[n:], m, exps[n:])
	if n > 0 {
		s, t := weighX8(&w[0], n/8, m, &exps[0], &luts.Exp2[0])
		sum, top = sum+s, max(top, t)
	}
	return
}

func momentsVector(x []float32, scale float32) (sum, squares int64) {
	n := len(x) &^ 7
	sum, squares = momentsGeneric(x[n:], scale)
	if n > 0 {
		s, q := momentsX8(&x[0], n/8, scale)
		sum, squares = sum+s, squares+q
	}
	return
}

func normaliseVector(y, x []float32, r float32, w, b []float32) {
	y, w = y[:len(x)], w[:len(x)]
	n := len(x) &^ 7
	var bias *float32
	var rest []float32
	if b != nil {
		bias, rest = &b[0], b[n:len(x)]
	}
	if n > 0 {
		normaliseX8(&y[0], &x[0], n/8, r, &w[0], bias)
	}
	normaliseGeneric(y[n:], x[n:], r, w[n:], rest)
}
