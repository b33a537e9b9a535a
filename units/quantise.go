package units

import "math"

// Section 2 and 3 of NUMERICS.md: rows of float32 to int8 limbs.

const (
	zeroExponent = -80     // exponent of a zero row, and the smallest of any
	maxTwoLimbs  = 32639   // 127*256 + 127
	maxThree     = 8355711 // the same with a third limb
	wideRatio    = 48      // a row whose largest value exceeds this many times the mean takes a third limb
	maxK         = 131071  // 128*128*K stays below 2^31
	scaleBelow   = 1.0 / (1 << 50)
)

// rowExponent is the exponent of a row whose largest magnitude has these bits (finite).
func rowExponent(maxBits uint32) int {
	if maxBits == 0 {
		return zeroExponent
	}
	e := max(exponent(maxBits)-14, zeroExponent)
	if round(math.Float32frombits(maxBits)*pow2(-e)) > maxTwoLimbs {
		e++
	}
	return e
}

// limbs2 cuts |q| <= 32639 into q = 256*hi + lo.
func limbs2(q int32) (hi, lo int8) {
	h := (q + 128) >> 8
	return int8(h), int8(q - h<<8)
}

// limbs3 cuts |q| <= 8355711 into q = 65536*h2 + 256*h1 + h0.
func limbs3(q int32) (h2, h1, h0 int8) {
	a := (q + 32896) >> 16
	r := q - a<<16
	b := (r + 128) >> 8
	return int8(a), int8(b), int8(r - b<<8)
}

// isWide is rule 4 for a row of k values, given the largest and the sum of |q|>>1.
func isWide(largest, sum uint32, k int) bool {
	return largest > wideRatio*((sum-largest)/uint32(k))
}

// quantised describes a row cut into limbs.
type quantised struct {
	exp   int // of the last limb: e, or e-8 for a wide row
	limbs int // 2 or 3
	// sums are those of each limb over the row, most significant first.
	sums [3]int32
}

// quantiseRow cuts x into limb rows, most significant first; each of dst has at least len(x) entries and the third
// is used only by a wide row, which wide=false rules out. ok is false if a value is not finite.
func quantiseRow(kern *kernels, dst *[3][]int8, x []float32, wide bool) (q quantised, ok bool) {
	top := kern.absMax(x)
	if top >= infBits {
		return q, false
	}
	e := rowExponent(top)
	largest, sum, s1, s0 := kern.split2(dst[0], dst[1], x, pow2(-e))
	if wide && isWide(largest, sum, len(x)) {
		sums := kern.split3(dst[0], dst[1], dst[2], x, pow2(8-e))
		return quantised{exp: e - 8, limbs: 3, sums: sums}, true
	}
	return quantised{exp: e, limbs: 2, sums: [3]int32{s1, s0}}, true
}

// weightScale gives the scale s and the multiplier of a weight row of this largest magnitude; both 0 for a zero row.
func weightScale(maxBits uint32, mode WeightMode) (s, inv float32) {
	m := math.Float32frombits(maxBits)
	if m < scaleBelow {
		return 0, 0
	}
	top := float32(127)
	if mode == Int8x2 {
		top = maxTwoLimbs
	}
	return flush(m / top), top / m
}
