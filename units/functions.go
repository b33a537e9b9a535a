package units

import (
	"math"

	"dchain/luts"
)

// The element-wise functions of NUMERICS.md section 6. Every product that feeds a sum is converted to float32 first, so
// that no compiler may fuse the two.

const (
	flushBelow = 1.0 / (1 << 63) // section 1: smaller magnitudes are stored as +0

	expBits = 0xff << 23
	absBits = 0x7fffffff
	infBits = 0x7f800000

	// roundMagic is 1.5 * 2^52: adding it to a float64 below 2^51 in magnitude rounds to the nearest integer, ties to
	// even, and leaves the integer in the low bits.
	roundMagic = 6755399441055744.0
)

// Constants that the text writes as f32(...).
var (
	log2E     = float32(math.Log2E)
	ln2Step   = float32(math.Ln2 / (1 << 24))
	geluCube  = float32(0.044715)
	geluScale = float32(1.5957691216057307117597842397375) // 2*sqrt(2/pi)
)

// flush is section 1: what every operation does to a value it stores. NaN passes.
func flush(x float32) float32 {
	if math.Float32bits(x)&absBits < math.Float32bits(flushBelow) {
		return 0
	}
	return x
}

// pow2 is the float32 2^e for -126 <= e <= 127.
func pow2(e int) float32 { return math.Float32frombits(uint32(e+127) << 23) }

// exponent is floor(log2 |x|) of a normal x given by its bits.
func exponent(bits uint32) int { return int(bits>>23&0xff) - 127 }

// round is RNE of |x| < 2^31 as an integer.
func round(x float32) int32 { return int32(math.Float64bits(float64(x) + roundMagic)) }

// round64 is RNE of |x| < 2^51 as an integer.
func round64(x float32) int64 {
	return int64(math.Float64bits(float64(x)+roundMagic)) - int64(math.Float64bits(roundMagic))
}

// exp2 is 2^t for t <= 0, and 0 below -60.
func exp2(t float32) float32 {
	if t < -60 {
		return 0
	}
	i := round(t * (1 << 24))
	z := float32(i&0xffff) * ln2Step
	p := float32((float32(z*0.5)+1)*z) + 1
	return float32(luts.Exp2[uint8(i>>16)]*p) * pow2(int(i>>24))
}

// Exp is e^x for x <= 0, to 3 ulps near 0 and 1e-6 relative anywhere; below 2^-60 it is 0. It gives the same
// bits on every machine.
func Exp(x float32) float32 { return exp2(x * log2E) }

// recip is 1/d for a normal d > 0.
func recip(d float32) float32 {
	bits := math.Float32bits(d)
	m := math.Float32frombits(bits&0x7fffff | 127<<23)
	y := luts.Recip[uint8(bits>>15)]
	y = y * (2 - float32(m*y))
	y = y * (2 - float32(m*y))
	return y * pow2(-exponent(bits))
}

// rsqrt is 1/sqrt(d) for a normal d > 0.
func rsqrt(d float32) float32 {
	bits := math.Float32bits(d)
	e := exponent(bits)
	odd := uint32(e & 1)
	m := math.Float32frombits(bits&0x7fffff | (127+odd)<<23)
	y := luts.Rsqrt[odd<<8|bits>>15&0xff]
	h := 0.5 * m
	y = y * (1.5 - float32(float32(h*y)*y))
	y = y * (1.5 - float32(float32(h*y)*y))
	return y * pow2(-(e >> 1))
}

// sigmoid is 1/(1+e^-x).
func sigmoid(x float32) float32 {
	e := Exp(-abs(x))
	r := recip(1 + e)
	if x >= 0 {
		return r
	}
	return e * r
}

func silu(x float32) float32 { return flush(x * sigmoid(x)) }

// geluTanh is x * sigmoid(2*sqrt(2/pi) * (x + 0.044715 x^3)), the tanh form of GELU.
func geluTanh(x float32) float32 {
	if x > 16 {
		return x
	}
	if x < -16 {
		return 0
	}
	cube := float32(float32(x*x) * x)
	u := (x + float32(cube*geluCube)) * geluScale
	return flush(x * sigmoid(u))
}

// gelu is x * Phi(x), the exact form of GELU, by the upper tail Q(|x|) of the normal distribution.
func gelu(x float32) float32 {
	a := abs(x)
	q := float32(0)
	if a < 6 {
		j := int(a * 32)
		h := a - float32((float32(j)+0.5)*(1.0/32))
		c := luts.Gauss[4*j : 4*j+4]
		q = float32(c[3]*h) + c[2]
		q = float32(q*h) + c[1]
		q = float32(q*h) + c[0]
	}
	if x < 0 {
		return flush(x * q)
	}
	return flush(x - float32(x*q))
}

// relu is max(x, 0).
func relu(x float32) float32 { return flush(max(x, 0)) }

// softcap is cap * tanh(x/cap) for finite x, inv = 1/cap.
func softcap(x, limit, inv float32) float32 {
	e := Exp(-2 * float32(abs(x)*inv))
	y := limit * float32((1-e)*recip(1+e))
	if x < 0 {
		y = -y
	}
	return flush(y)
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) & absBits) }
