package inspect

import "math"

// RopeSpec describes the rotary positions of some layers.
type RopeSpec struct {
	RopeTheta   float64 `json:"ropeTheta"`
	RopeScaling string  `json:"ropeScaling"` // "none", "linear", "yarn", "longrope" or "llama3"
	// Parameters of the scalings, which InvFreq applies.
	RopeFactor      float64   `json:"ropeFactor,omitempty"`
	RopeLowFreq     float64   `json:"ropeLowFreq,omitempty"`
	RopeHighFreq    float64   `json:"ropeHighFreq,omitempty"`
	RopeBetaFast    float64   `json:"ropeBetaFast,omitempty"`
	RopeBetaSlow    float64   `json:"ropeBetaSlow,omitempty"`
	RopeUntruncated bool      `json:"ropeUntruncated,omitempty"`
	RopeOriginal    int       `json:"ropeOriginal,omitempty"` // context length before scaling, tokens
	RopeShort       []float64 `json:"ropeShort,omitempty"`    // a divisor for each pair, up to the original context
	RopeLong        []float64 `json:"ropeLong,omitempty"`     // the same beyond it
	RopeAttention   float64   `json:"ropeAttention,omitempty"`
	RopeQueryGrowth float64   `json:"ropeQueryGrowth,omitempty"`
	RotaryDim       int       `json:"rotaryDim,omitempty"` // leading values of a head that are rotated; even
}

// InvFreq returns the RotaryDim/2 inverse frequencies of rotary positions: pair i turns by position * InvFreq()[i]
// radians. They are what Hugging Face computes in float32, step by step, and the same bits on every machine. The
// context, in positions, matters to "longrope" only (Spec.LongContext).
func (r *RopeSpec) InvFreq(context int) []float32 {
	inv := make([]float32, r.RotaryDim/2)
	for i := range inv {
		exponent := float32(2*i) / float32(r.RotaryDim)
		inv[i] = float32(pow(float64(float32(r.RopeTheta)), float64(exponent)))
	}
	switch r.RopeScaling {
	case ropeLong:
		factors := r.RopeShort
		if context > r.RopeOriginal {
			factors = r.RopeLong
		}
		for i, f := range inv {
			inv[i] = 1 / float32(float32(factors[i])*f)
		}
	case ropeYarn:
		r.scaleYarn(inv)
	default:
		for i, f := range inv {
			inv[i] = 1 / f
			if r.RopeScaling == ropeLinear {
				inv[i] /= float32(r.RopeFactor)
			}
		}
	}
	if r.RopeScaling == ropeLlama3 {
		r.scaleLlama3(inv)
	}
	return inv
}

// Attention is the factor of the rotary cosines and sines: 1 for most.
func (r *RopeSpec) Attention() float32 {
	if r.RopeAttention == 0 {
		return 1
	}
	return float32(r.RopeAttention)
}

// QueryScale is the factor of rotated queries at a position: 1 for most models, else 1 plus a multiple of the logarithm
// of the number of original contexts up to there.
func (r *RopeSpec) QueryScale(pos int) float32 {
	if r.RopeQueryGrowth == 0 {
		return 1
	}
	return 1 + float32(float32(r.RopeQueryGrowth)*float32(ln(float64(1+pos/r.RopeOriginal))))
}

// scaleLlama3 divides low frequencies by the factor, leaves high ones, and blends between the two in the middle.
func (r *RopeSpec) scaleLlama3(inv []float32) {
	factor, low := float32(r.RopeFactor), float32(r.RopeLowFreq)
	original := float32(r.RopeOriginal)
	longest := float32(float64(r.RopeOriginal) / r.RopeLowFreq)
	shortest := float32(float64(r.RopeOriginal) / r.RopeHighFreq)
	for i, f := range inv {
		wavelen := float32(float32(1/f) * float32(2*math.Pi))
		switch {
		case wavelen > longest:
			inv[i] = f / factor
		case wavelen >= shortest:
			smooth := (float32(float32(1/wavelen)*original) - low) / float32(r.RopeHighFreq-r.RopeLowFreq)
			inv[i] = float32(float32((1-smooth)*f)/factor) + float32(smooth*f)
		}
	}
}

// scaleYarn turns wavelengths into inverse frequencies: pairs that turn often within the original context keep theirs,
// those that hardly turn have it divided by the factor, with a linear ramp between.
func (r *RopeSpec) scaleYarn(wavelen []float32) {
	dim := float64(r.RotaryDim)
	pairOf := func(turns float64) float64 { // the pair, as a fraction, that turns so often in the original context
		return float64(dim*ln(float64(r.RopeOriginal)/(turns*2*math.Pi))) / (2 * ln(r.RopeTheta))
	}
	first, last := pairOf(r.RopeBetaFast), pairOf(r.RopeBetaSlow)
	if !r.RopeUntruncated {
		first, last = math.Floor(first), math.Ceil(last)
	}
	first, last = max(first, 0), min(last, dim-1)
	if first == last {
		last += 0.001
	}
	for i, w := range wavelen {
		ramp := (float32(i) - float32(first)) / float32(last-first)
		keep := 1 - min(max(ramp, 0), 1)
		slow := 1 / float32(float32(r.RopeFactor)*w)
		wavelen[i] = float32(slow*(1-keep)) + float32(float32(1/w)*keep)
	}
}

// pow returns x^y for x > 0 to about 1e-15, if the result is of moderate size. The library's version differs between
// architectures; this one uses only + - * / , each rounded by itself.
func pow(x, y float64) float64 { return exp(float64(y * ln(x))) }

// ln returns the natural logarithm of x > 0, by x = m * 2^e with m in [sqrt(1/2), sqrt(2)) and ln m = 2 atanh((m-1)/(m+1)).
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	t := (m - 1) / (m + 1)
	t2 := float64(t * t)
	sum := 0.0
	for n := 41; n >= 1; n -= 2 {
		sum = float64(sum*t2) + 1/float64(n)
	}
	return float64(2*float64(t*sum)) + float64(float64(e)*math.Ln2)
}

// exp returns e^z for |z| < 700 as 2^k * e^r with |r| <= ln2/2.
func exp(z float64) float64 {
	k := math.Floor(z/math.Ln2 + 0.5)
	r := z - float64(k*math.Ln2)
	sum := 1.0
	for n := 20; n >= 1; n-- {
		sum = float64(float64(sum*r)/float64(n)) + 1
	}
	return math.Ldexp(sum, int(k))
}
