//go:build amd64 && !purego

package units

import "dchain/luts"

//go:noescape
func siluAVX512(y, x, up *float32, n int, exp2, recip *float32)

//go:noescape
func geluAVX512(y, x, up *float32, n int, exp2, recip *float32)

//go:noescape
func scoresAVX512(dst *float32, u *unitSums, exp2q *float32, n, panels int, exps *int16, scale float32)

//go:noescape
func highestAVX512(best, x *float32, n int)

//go:noescape
func weighAVX512(x *float32, low *int8, parts *blockWeights, m *float32, exps *int16, sums *weightSums, n int, exp2 *float32)

//go:noescape
func accumulateAVX512(total *int64, stride int, u, low *unitSums, panels int, parts *blockWeights, tops *int32, n int)

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

func scoresVector512(dst []float32, u []unitSums, exp2q []float32, exps []int16, scale float32) {
	n, panels := len(exp2q), len(u)
	if n > blockTile/2 {
		panic("units: scores of more queries than a tile holds")
	}
	_, _ = dst[(n-1)*blockPositions+panels*panelRows-1], exps[panels*panelRows-1]
	scoresAVX512(&dst[0], &u[0], &exp2q[0], n, panels, &exps[0], scale)
}

func highestVector512(best, x []float32) {
	_ = x[len(best)*blockPositions-1]
	highestAVX512(&best[0], &x[0], len(best))
}

func weighTile512(x []float32, low []int8, parts []blockWeights, m []float32, exps []int16, sums []weightSums) {
	n := len(parts)
	_, _, _, _, _ = x[n*blockPositions-1], low[n*blockPositions-1], m[n-1], exps[blockPositions-1], sums[n-1]
	weighAVX512(&x[0], &low[0], &parts[0], &m[0], &exps[0], &sums[0], n, &luts.Exp2[0])
}

func accumulateVector512(total []int64, stride int, u, low []unitSums, parts []blockWeights, tops []int32) {
	n, panels := len(parts), len(u)
	if n > blockTile/2 {
		panic("units: accumulate of more queries than a tile holds")
	}
	_, _ = total[(n-1)*stride+panels*panelRows-1], tops[n-1]
	var third *unitSums
	if len(low) > 0 {
		third = &low[:panels][0]
	}
	accumulateAVX512(&total[0], stride, &u[0], third, panels, &parts[0], &tops[0], n)
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
