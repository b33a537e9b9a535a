//go:build amd64 && !purego

package units

import "dchain/luts"

//go:noescape
func siluAVX2(y, x, up *float32, blocks int, exp2, recip *float32)

//go:noescape
func geluAVX2(y, x, up *float32, blocks int, exp2, recip *float32)

//go:noescape
func scoresAVX2(dst *float32, hi, lo *int32, exp2q float32, exps *int16, scale float32)

//go:noescape
func weighAVX2(w *float32, blocks int, m float32, exps *int16, exp2 *float32) (sum int64, top uint32)

//go:noescape
func momentsAVX2(x *float32, blocks int, scale float32) (sum, squares int64)

//go:noescape
func normaliseAVX2(y, x *float32, blocks int, r float32, w, b *float32)

func actVector256(kind ActKind, y, x, up []float32) {
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
		f := siluAVX2
		if kind == GELUTanh {
			f = geluAVX2
		}
		f(&y[0], &x[0], u, n/8, &luts.Exp2[0], &luts.Recip[0])
	}
	actGeneric(kind, y[n:], x[n:], rest)
}

func scoresVector256(dst []float32, hi, lo []int32, exp2q float32, exps []int16, scale float32) {
	_, _, _, _ = dst[panelRows-1], hi[2*panelRows-1], lo[2*panelRows-1], exps[panelRows-1]
	scoresAVX2(&dst[0], &hi[0], &lo[0], exp2q, &exps[0], scale)
}

func weighVector256(w []float32, m float32, exps []int16) (sum int64, top uint32) {
	exps = exps[:len(w)]
	n := len(w) &^ 7
	sum, top = weighGeneric(w[n:], m, exps[n:])
	if n > 0 {
		s, t := weighAVX2(&w[0], n/8, m, &exps[0], &luts.Exp2[0])
		sum, top = sum+s, max(top, t)
	}
	return
}

func momentsVector256(x []float32, scale float32) (sum, squares int64) {
	n := len(x) &^ 7
	sum, squares = momentsGeneric(x[n:], scale)
	if n > 0 {
		s, q := momentsAVX2(&x[0], n/8, scale)
		sum, squares = sum+s, squares+q
	}
	return
}

func normaliseVector256(y, x []float32, r float32, w, b []float32) {
	y, w = y[:len(x)], w[:len(x)]
	n := len(x) &^ 7
	var bias *float32
	var rest []float32
	if b != nil {
		bias, rest = &b[0], b[n:len(x)]
	}
	if n > 0 {
		normaliseAVX2(&y[0], &x[0], n/8, r, &w[0], bias)
	}
	normaliseGeneric(y[n:], x[n:], r, w[n:], rest)
}
