//go:build amd64 && !purego

package units

import "dchain/luts"

//go:noescape
func siluAVX512(y, x, up *float32, n int, exp2, recip *float32)

//go:noescape
func geluAVX512(y, x, up *float32, n int, exp2, recip *float32)

//go:noescape
func scoresAVX512(dst *float32, hi, lo *int32, exp2q float32, exps *int16, scale float32)

//go:noescape
func highestAVX512(x *float32, blocks int) float32

//go:noescape
func weighAVX512(w *float32, n int, m float32, exps *int16, exp2 *float32) (sum int64, top uint32)

//go:noescape
func accumulateAVX512(total *int64, u, u2 *int32, limbs, n int)

//go:noescape
func momentsAVX512(x *float32, n int, scale float32) (sum, squares int64)

//go:noescape
func normaliseAVX512(y, x *float32, n int, r float32, w, b *float32)

func actVector512(kind ActKind, y, x, up []float32) {
	if kind > GELUTanh {
		actGeneric(kind, y, x, up)
		return
	}
	if len(x) == 0 {
		return
	}
	_ = y[len(x)-1]
	var u *float32
	if up != nil {
		u = &up[:len(x)][0]
	}
	f := siluAVX512
	if kind == GELUTanh {
		f = geluAVX512
	}
	f(&y[0], &x[0], u, len(x), &luts.Exp2[0], &luts.Recip[0])
}

func scoresVector512(dst []float32, hi, lo []int32, exp2q float32, exps []int16, scale float32) {
	_, _, _, _ = dst[panelRows-1], hi[2*panelRows-1], lo[2*panelRows-1], exps[panelRows-1]
	scoresAVX512(&dst[0], &hi[0], &lo[0], exp2q, &exps[0], scale)
}

func highestVector512(x []float32) float32 {
	n := len(x) &^ 15
	m := x[0]
	if n < len(x) {
		m = highestGeneric(x[n:])
	}
	if n > 0 {
		m = max(m, highestAVX512(&x[0], n/16))
	}
	return m
}

func weighVector512(w []float32, m float32, exps []int16) (sum int64, top uint32) {
	if len(w) == 0 {
		return
	}
	_ = exps[len(w)-1]
	return weighAVX512(&w[0], len(w), m, &exps[0], &luts.Exp2[0])
}

func accumulateVector512(total []int64, u, u2 []int32, limbs, n int) {
	_, _, _ = total[panelRows-1], u[limbs*panelRows-1], u2[limbs*panelRows-1]
	if limbs < 2 || limbs > 3 || n < -62 || n > 63 {
		panic("units: accumulate of a shape that is no block")
	}
	accumulateAVX512(&total[0], &u[0], &u2[0], limbs, n)
}

func momentsVector512(x []float32, scale float32) (sum, squares int64) {
	if len(x) == 0 {
		return
	}
	return momentsAVX512(&x[0], len(x), scale)
}

func normaliseVector512(y, x []float32, r float32, w, b []float32) {
	if len(x) == 0 {
		return
	}
	_, _ = y[len(x)-1], w[len(x)-1]
	var bias *float32
	if b != nil {
		bias = &b[:len(x)][0]
	}
	normaliseAVX512(&y[0], &x[0], len(x), r, &w[0], bias)
}
