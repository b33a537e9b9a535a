package units

import "math"

// Rotary tables (NUMERICS.md section 7). They are computed once, in float64, from + - * / only: the library functions
// differ between architectures. Products are wrapped in float64() so that none is fused with a sum.

// InvFreq is the inverse frequency of each rotary pair, with the roundings of Hugging Face's float32 computation:
// f32(1 / f32(theta ^ f32(2i/rotaryDim))). It has rotaryDim/2 entries.
func InvFreq(rotaryDim int, theta float64) []float32 {
	inv := make([]float32, rotaryDim/2)
	logTheta := log64(theta)
	for i := range inv {
		exponent := float64(float32(2*i) / float32(rotaryDim))
		inv[i] = 1 / float32(exp64(exponent*logTheta))
	}
	return inv
}

// RopeTables gives cosine and sine of pos * inv_freq for every position below ctx, each [ctx][rotaryDim/2].
func RopeTables(ctx, rotaryDim int, theta float64) (cos, sin []float32) {
	return RopeTablesFrom(ctx, InvFreq(rotaryDim, theta), 1)
}

// RopeTablesFrom is RopeTables for given inverse frequencies, both tables multiplied by scale (1 for plain rotary
// positions, the attention factor of scalings that have one).
func RopeTablesFrom(ctx int, invFreq []float32, scale float32) (cos, sin []float32) {
	cos = make([]float32, ctx*len(invFreq))
	sin = make([]float32, ctx*len(invFreq))
	for pos := range ctx {
		row := pos * len(invFreq)
		for i, f := range invFreq {
			s, c := sincos64(float64(float32(pos) * f))
			cos[row+i] = flush(float32(c) * scale)
			sin[row+i] = flush(float32(s) * scale)
		}
	}
	return cos, sin
}

// ln2Hi has 33 significant bits, so that n * ln2Hi is exact for every exponent n.
const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
)

// log64 is the natural logarithm of a normal x > 0, to about 1e-16 of max(1, |log x|).
func log64(x float64) float64 {
	bits := math.Float64bits(x)
	n := int(bits>>52) - 1023
	m := math.Float64frombits(bits&(1<<52-1) | 1023<<52)
	if m > math.Sqrt2 {
		m *= 0.5
		n++
	}
	// log m = 2 atanh(s), |s| <= 0.1716: s^2 terms fall by 34 each.
	s := (m - 1) / (m + 1)
	s2 := s * s
	sum := 0.0
	for k := 23; k >= 3; k -= 2 {
		sum = float64(s2 * (1/float64(k) + sum))
	}
	logM := 2*s + float64(2*s*sum)
	return float64(float64(n)*ln2Hi) + (float64(float64(n)*ln2Lo) + logM)
}

// exp64 is e^x for |x| < 700, to about 1e-16.
func exp64(x float64) float64 {
	n := math.Float64bits(float64(x*math.Log2E)+roundMagic) - math.Float64bits(roundMagic)
	k := float64(int64(n))
	r := (x - float64(k*ln2Hi)) - float64(k*ln2Lo)
	sum := 0.0
	for i := 18; i >= 2; i-- {
		sum = float64(r/float64(i)) * (1 + sum)
	}
	e := 1 + (r + float64(r*sum))
	return e * math.Float64frombits(uint64(int64(n)+1023)<<52)
}

// pi/2 in three parts; the first two have at most 33 significant bits, so that n times each is exact for |n| < 2^20.
const (
	halfPi1 = 1.57079632673412561417e+00
	halfPi2 = 6.07710050630396597660e-11
	halfPi3 = 2.02226624879595063154e-21
)

// sincos64 is the sine and cosine of |x| < 10^6, to about 2e-16.
func sincos64(x float64) (sin, cos float64) {
	n := int64(math.Float64bits(float64(x*(2/math.Pi))+roundMagic)) - int64(math.Float64bits(roundMagic))
	k := float64(n)
	r := ((x - float64(k*halfPi1)) - float64(k*halfPi2)) - float64(k*halfPi3)
	r2 := r * r
	// Both series in Horner form: |r| <= pi/4, so the last terms are below 1e-17.
	s, c := 0.0, 0.0
	for i := 17; i >= 3; i -= 2 {
		s = float64(r2/float64(i*(i-1))) * (-1 - s)
	}
	for i := 18; i >= 2; i -= 2 {
		c = float64(r2/float64(i*(i-1))) * (-1 - c)
	}
	s = r + float64(r*s)
	c = 1 + c
	switch n & 3 {
	case 1:
		return c, -s
	case 2:
		return -s, -c
	case 3:
		return -c, s
	}
	return s, c
}
