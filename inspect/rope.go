package inspect

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

const (
	ropeNone   = "none"
	ropeLlama3 = "llama3"
)

// ropeParams is what a config says about rotary positions beside the head dimension.
type ropeParams struct {
	scaling           string
	theta             float64 // 0: not said
	factor, low, high float64
	original          int
}

// ropeThetaKey is the top-level rope_theta of the older dialect. Keys are read in the order of the alphabet, so
// rope_parameters comes before it.
var ropeThetaKey = key{read: func(d *draft, v json.RawMessage) error {
	var theta float64
	if err := readFloat(v, 1, 1e12, &theta); err != nil {
		return err
	}
	if d.rope != nil && d.rope.theta != 0 && d.rope.theta != theta {
		return fmt.Errorf("%g contradicts the %g of rope_parameters", theta, d.rope.theta)
	}
	d.RopeTheta = theta
	return nil
}}

// ropeKey reads rope_scaling of the older dialect (beside a top-level rope_theta) and rope_parameters of the newer one,
// in which rope_theta is one of the parameters.
var ropeKey = key{read: func(d *draft, v json.RawMessage) error {
	p, err := readRope(v)
	if err != nil {
		return err
	}
	if q := d.rope; q != nil {
		if p.theta == 0 {
			p.theta = q.theta
		}
		if *q != p {
			return fmt.Errorf("rope_parameters and rope_scaling contradict each other")
		}
	}
	d.rope = &p
	if p.theta != 0 {
		d.RopeTheta = p.theta
	}
	d.RopeScaling, d.RopeFactor, d.RopeOriginal = p.scaling, p.factor, p.original
	d.RopeLowFreq, d.RopeHighFreq = p.low, p.high
	return nil
}}

func readRope(v json.RawMessage) (ropeParams, error) {
	p := ropeParams{scaling: ropeNone}
	values, err := parseObject(v)
	if err != nil {
		return p, fmt.Errorf("want an object, have %s", clip(v))
	}
	kind := "default"
	for _, name := range []string{"type", "rope_type"} { // the second is the newer name and wins
		if v, ok := values[name]; ok {
			if err := json.Unmarshal(v, &kind); err != nil {
				return p, fmt.Errorf("%q: want a name, have %s", name, clip(v))
			}
			delete(values, name)
		}
	}
	var original float64
	fields := map[string]*float64{"rope_theta": &p.theta}
	var needed []string
	switch kind {
	case "default":
	case ropeLlama3:
		p.scaling = ropeLlama3
		fields["factor"], fields["original_max_position_embeddings"] = &p.factor, &original
		fields["low_freq_factor"], fields["high_freq_factor"] = &p.low, &p.high
		needed = []string{"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
	default:
		return p, fmt.Errorf("rope type %q is not supported; supported are default, llama3", kind)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		dst, ok := fields[name]
		if name == "partial_rotary_factor" {
			dst, ok = new(float64), true
		}
		if !ok {
			return p, fmt.Errorf("%q is not understood for rope type %q, refusing to guess", name, kind)
		}
		if err := readFloat(values[name], 1e-6, 1e12, dst); err != nil {
			return p, fmt.Errorf("%q: %w", name, err)
		}
		if name == "partial_rotary_factor" && *dst != 1 {
			return p, fmt.Errorf("%q: value %g is not supported, only 1", name, *dst)
		}
	}
	for _, name := range needed {
		if *fields[name] == 0 {
			return p, fmt.Errorf("rope type %q needs %q", kind, name)
		}
	}
	if p.theta != 0 && p.theta < 1 {
		return p, fmt.Errorf("\"rope_theta\": %g is below 1", p.theta)
	}
	if kind == ropeLlama3 {
		if original < 1 || original > maxPositions || original != math.Trunc(original) {
			return p, fmt.Errorf("\"original_max_position_embeddings\": %g is not a context length", original)
		}
		if p.high <= p.low {
			return p, fmt.Errorf("high_freq_factor %g must exceed low_freq_factor %g", p.high, p.low)
		}
		p.original = int(original)
	}
	return p, nil
}

// InvFreq returns the RotaryDim/2 inverse frequencies of rotary positions: pair i turns by position * InvFreq()[i]
// radians. They are what Hugging Face computes in float32, step by step, and the same bits on every machine. It is nil
// for a model without rotary positions.
func (s *Spec) InvFreq() []float32 {
	if !s.Rope {
		return nil
	}
	inv := make([]float32, s.RotaryDim/2)
	for i := range inv {
		exponent := float32(2*i) / float32(s.RotaryDim)
		inv[i] = 1 / float32(pow(float64(float32(s.RopeTheta)), float64(exponent)))
	}
	if s.RopeScaling == ropeLlama3 {
		s.scaleLlama3(inv)
	}
	return inv
}

// scaleLlama3 divides low frequencies by the factor, leaves high ones, and blends between the two in the middle.
func (s *Spec) scaleLlama3(inv []float32) {
	factor, low := float32(s.RopeFactor), float32(s.RopeLowFreq)
	original := float32(s.RopeOriginal)
	longest := float32(float64(s.RopeOriginal) / s.RopeLowFreq)
	shortest := float32(float64(s.RopeOriginal) / s.RopeHighFreq)
	for i, f := range inv {
		wavelen := float32(float32(1/f) * float32(2*math.Pi))
		switch {
		case wavelen > longest:
			inv[i] = f / factor
		case wavelen >= shortest:
			smooth := (float32(float32(1/wavelen)*original) - low) / float32(s.RopeHighFreq-s.RopeLowFreq)
			inv[i] = float32(float32((1-smooth)*f)/factor) + float32(smooth*f)
		}
	}
}

// pow returns x^y for x >= 1 and 0 <= y < 1 to about 1e-15. The library's version differs between architectures; this
// one uses only + - * / , each rounded by itself.
func pow(x, y float64) float64 {
	// x = m * 2^e with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh((m-1)/(m+1)).
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
	log := float64(2*float64(t*sum)) + float64(float64(e)*math.Ln2)

	// exp(z) = 2^k * exp(r), |r| <= ln2/2.
	z := float64(y * log)
	k := math.Floor(z/math.Ln2 + 0.5)
	r := z - float64(k*math.Ln2)
	sum = 1.0
	for n := 20; n >= 1; n-- {
		sum = float64(float64(sum*r)/float64(n)) + 1
	}
	return math.Ldexp(sum, int(k))
}
