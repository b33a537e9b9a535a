package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
)

// Rope types, as RopeScaling names them.
const (
	ropeNone   = "none"
	ropeLinear = "linear"
	ropeLlama3 = "llama3"
	ropeYarn   = "yarn"
	ropeLong   = "longrope"
)

// Layer types of configs.
const (
	layerFull    = "full_attention"
	layerSliding = "sliding_attention"
)

// ropeParams is what a config says about rotary positions beside the head dimension. Of RopeSpec a theta of 0 and an
// original context of 0 mean that nothing is said.
type ropeParams struct {
	RopeSpec
	partial             float64
	mscale, mscaleAll   float64 // yarn: the attention factor is a ratio of two
	alpha               float64 // theta is multiplied by alpha^(d/(d-2)), d the values of a head that are rotated
	unscaledBeyondLimit bool    // "dynamic": frequencies change only beyond the context that the config states
}

// ropeThetaKey is the top-level rope_theta of the older dialect. Keys are read in the order of the alphabet, so
// rope_parameters comes before it.
var ropeThetaKey = key{read: func(d *draft, v json.RawMessage) error {
	if err := readFloat(v, 1, 1e12, &d.theta); err != nil {
		return err
	}
	if p, ok := d.ropes[""]; ok && p.RopeTheta != 0 && p.RopeTheta != d.theta {
		return fmt.Errorf("%g contradicts the %g of rope_parameters", d.theta, p.RopeTheta)
	}
	return nil
}}

// ropeKey reads rope_scaling of the older dialect (beside a top-level rope_theta) and rope_parameters of the newer one,
// in which rope_theta is one of the parameters, and which may hold a set of parameters for each layer type.
var ropeKey = key{read: func(d *draft, v json.RawMessage) error {
	values, err := parseObject(v)
	if err != nil {
		return fmt.Errorf("want an object, have %s", clip(v))
	}
	full, hasFull := values[layerFull]
	sliding, hasSliding := values[layerSliding]
	if !hasFull && !hasSliding {
		return d.addRope("", values)
	}
	for _, part := range []struct {
		layers string
		v      json.RawMessage
	}{{layerFull, full}, {layerSliding, sliding}} {
		if part.v == nil || isNull(part.v) {
			continue
		}
		inner, err := parseObject(part.v)
		if err == nil {
			err = d.addRope(part.layers, inner)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", part.layers, err)
		}
		delete(values, part.layers)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !isNull(values[name]) {
			return fmt.Errorf("%q is not understood beside parameters for each layer type, refusing to guess", name)
		}
	}
	return nil
}}

func (d *draft) addRope(layers string, values map[string]json.RawMessage) error {
	p, err := readRope(values)
	if err != nil {
		return err
	}
	if p.alpha != 0 && !d.fam.ropeAlpha {
		return fmt.Errorf("\"alpha\" is not understood for %s, refusing to guess", d.fam.name)
	}
	if q, ok := d.ropes[layers]; ok {
		if p.RopeTheta == 0 {
			p.RopeTheta = q.RopeTheta
		}
		if !reflect.DeepEqual(p, q) {
			return errors.New("rope_parameters and rope_scaling contradict each other")
		}
	}
	d.ropes[layers] = p
	return nil
}

// readRope reads one set of parameters.
func readRope(values map[string]json.RawMessage) (ropeParams, error) {
	p := ropeParams{RopeSpec: RopeSpec{RopeScaling: ropeNone}}
	values = maps.Clone(values)
	maps.DeleteFunc(values, func(_ string, v json.RawMessage) bool { return isNull(v) })
	kind := "default"
	for _, name := range []string{"type", "rope_type"} { // the second is the newer name and wins
		if v, ok := values[name]; ok {
			if err := json.Unmarshal(v, &kind); err != nil {
				return p, fmt.Errorf("%q: want a name, have %s", name, clip(v))
			}
			delete(values, name)
		}
	}
	if _, ok := values["short_factor"]; ok && (kind == "su" || kind == ropeYarn) { // early names of longrope
		kind = ropeLong
	}
	var original float64
	fields := map[string]*float64{"rope_theta": &p.RopeTheta, "partial_rotary_factor": &p.partial}
	lists := map[string]*[]float64{}
	var needed []string
	p.RopeScaling = kind
	switch kind {
	case "default":
		p.RopeScaling = ropeNone
	case ropeLinear:
		fields["factor"] = &p.RopeFactor
		needed = []string{"factor"}
	case "dynamic":
		p.RopeScaling, p.unscaledBeyondLimit = ropeNone, true
		fields["factor"], fields["alpha"] = new(float64), &p.alpha
		if _, ok := values["alpha"]; ok { // written along, without effect
			for _, name := range []string{"beta_fast", "beta_slow", "mscale", "mscale_all_dim"} {
				fields[name] = new(float64)
			}
		}
	case ropeLlama3:
		fields["factor"], fields["original_max_position_embeddings"] = &p.RopeFactor, &original
		fields["low_freq_factor"], fields["high_freq_factor"] = &p.RopeLowFreq, &p.RopeHighFreq
		needed = []string{"factor", "low_freq_factor", "high_freq_factor"}
	case ropeYarn:
		fields["factor"], fields["original_max_position_embeddings"] = &p.RopeFactor, &original
		fields["attention_factor"], fields["beta_fast"], fields["beta_slow"] = &p.RopeAttention, &p.RopeBetaFast, &p.RopeBetaSlow
		fields["mscale"], fields["mscale_all_dim"] = &p.mscale, &p.mscaleAll
		fields["llama_4_scaling_beta"] = &p.RopeQueryGrowth
		fields["max_position_embeddings"] = new(float64) // stated again
		needed = []string{"factor"}
	case ropeLong:
		fields["factor"], fields["original_max_position_embeddings"] = &p.RopeFactor, &original
		fields["attention_factor"] = &p.RopeAttention
		lists["short_factor"], lists["long_factor"] = &p.RopeShort, &p.RopeLong
	default:
		return p, fmt.Errorf("rope type %q is not supported; supported are default, linear, dynamic, yarn, longrope, llama3", kind)
	}
	if v, ok := values["truncate"]; ok && kind == ropeYarn {
		truncate := true
		if err := json.Unmarshal(v, &truncate); err != nil {
			return p, fmt.Errorf("\"truncate\": want true or false, have %s", clip(v))
		}
		p.RopeUntruncated = !truncate
		delete(values, "truncate")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if list := lists[name]; list != nil {
			if err := json.Unmarshal(values[name], list); err != nil {
				return p, fmt.Errorf("%q: want a list of numbers, have %s", name, clip(values[name]))
			}
			continue
		}
		dst, ok := fields[name]
		if !ok {
			return p, fmt.Errorf("%q is not understood for rope type %q, refusing to guess", name, kind)
		}
		if err := readFloat(values[name], 1e-6, 1e12, dst); err != nil {
			return p, fmt.Errorf("%q: %w", name, err)
		}
	}
	for _, name := range needed {
		if *fields[name] == 0 {
			return p, fmt.Errorf("rope type %q needs %q", kind, name)
		}
	}
	if p.RopeTheta != 0 && p.RopeTheta < 1 {
		return p, fmt.Errorf("\"rope_theta\": %g is below 1", p.RopeTheta)
	}
	if original != 0 {
		if original < 2 || original > maxPositions || original != math.Trunc(original) {
			return p, fmt.Errorf("\"original_max_position_embeddings\": %g is not a context length", original)
		}
		p.RopeOriginal = int(original)
	}
	if kind == ropeLlama3 && p.RopeHighFreq <= p.RopeLowFreq {
		return p, fmt.Errorf("high_freq_factor %g must exceed low_freq_factor %g", p.RopeHighFreq, p.RopeLowFreq)
	}
	return p, nil
}

// finishRope settles the rotary positions of full and windowed layers.
func (d *draft) finishRope() error {
	s := &d.Spec
	if !s.Rope {
		s.RopeSpec, s.LocalRope = RopeSpec{RopeScaling: ropeNone}, nil
		return nil
	}
	if p := d.fam.rope; p != nil && len(d.ropes) == 0 {
		if d.theta != 0 && d.theta != p.RopeTheta {
			return fmt.Errorf("config key \"rope_theta\": %g without rope parameters, whose default for %s has %g", d.theta, d.fam.name, p.RopeTheta)
		}
		d.ropes[""] = *p
	}
	main, local := d.ropes[""], d.ropes[""]
	if p, ok := d.ropes[layerFull]; ok {
		main = p
	}
	p, byType := d.ropes[layerSliding]
	switch {
	case byType:
		local = p
	case d.localTheta != 0: // the scaling is of the layers that see everything
		local = ropeParams{RopeSpec: RopeSpec{RopeTheta: d.localTheta}}
	}
	for layer := range s.Layers {
		if d.fam.noRope != nil && d.fam.noRope(d, layer) {
			s.NoRope = append(s.NoRope, layer)
		}
	}
	var err error
	base := s.RopeTheta
	if s.RopeSpec, err = d.rope(main, base); err != nil {
		return err
	}
	if s.Window == 0 {
		return nil
	}
	spec, err := d.rope(local, base)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(spec, s.RopeSpec) {
		s.LocalRope = &spec
	}
	return nil
}

// rope makes the RopeSpec of some layers from what config says of them and of all.
func (d *draft) rope(p ropeParams, theta float64) (RopeSpec, error) {
	r := p.RopeSpec
	if r.RopeScaling == "" {
		r.RopeScaling = ropeNone
	}
	for _, t := range []float64{d.theta, theta} {
		if r.RopeTheta == 0 {
			r.RopeTheta = t
		}
	}
	partial := 1.0
	for _, f := range []float64{d.fam.partial, d.partial, p.partial} {
		if f != 0 {
			partial = f
		}
	}
	if partial != 1 && d.fam.partial == 0 || partial > 1 {
		return r, fmt.Errorf("config key \"partial_rotary_factor\": value %g is not supported for %s, only 1", partial, d.fam.name)
	}
	if d.RotaryDim != 0 {
		r.RotaryDim = d.RotaryDim
	} else {
		r.RotaryDim = int(float64(d.HeadDim) * partial)
	}
	if r.RotaryDim%2 != 0 || r.RotaryDim < 2 {
		return r, fmt.Errorf("head dimension %d (%q over %q) has %d values to rotate, rotary positions need an even number",
			d.HeadDim, d.keyOf(&d.Hidden), d.keyOf(&d.Heads), r.RotaryDim)
	}
	if r.RotaryDim > d.HeadDim {
		return r, fmt.Errorf("%d values of a head of %d are to be rotated", r.RotaryDim, d.HeadDim)
	}
	if p.alpha != 0 {
		if r.RotaryDim < 4 {
			return r, fmt.Errorf("rope parameter \"alpha\" with %d values to rotate", r.RotaryDim)
		}
		r.RopeTheta *= pow(p.alpha, float64(r.RotaryDim)/float64(r.RotaryDim-2))
	}
	switch r.RopeScaling {
	case ropeNone, ropeLinear:
		return r, nil
	}
	if r.RopeQueryGrowth != 0 && r.RotaryDim != d.HeadDim {
		return r, errors.New("rope parameter \"llama_4_scaling_beta\" is supported only where whole heads are rotated")
	}
	if d.original != 0 {
		r.RopeOriginal = d.original
	}
	for _, n := range []int{d.fam.original, d.MaxPos} {
		if r.RopeOriginal == 0 {
			r.RopeOriginal = n
		}
	}
	return r, d.ropeFactors(&r, p)
}

// ropeFactors fills in what the scalings that know an original context derive from it.
func (d *draft) ropeFactors(r *RopeSpec, p ropeParams) error {
	mscale := func(by float64) float64 {
		if r.RopeFactor <= 1 {
			return 1
		}
		return float64(0.1*by*ln(r.RopeFactor)) + 1
	}
	switch r.RopeScaling {
	case ropeYarn:
		if r.RopeBetaFast == 0 {
			r.RopeBetaFast = 32
		}
		if r.RopeBetaSlow == 0 {
			r.RopeBetaSlow = 1
		}
		switch {
		case r.RopeAttention != 0:
		case p.mscale != 0 && p.mscaleAll != 0:
			r.RopeAttention = mscale(p.mscale) / mscale(p.mscaleAll)
		default:
			r.RopeAttention = mscale(1)
		}
	case ropeLong:
		for name, list := range map[string][]float64{"short_factor": r.RopeShort, "long_factor": r.RopeLong} {
			if len(list) != r.RotaryDim/2 {
				return fmt.Errorf("rope parameter %q has %d factors, want %d", name, len(list), r.RotaryDim/2)
			}
			for _, f := range list {
				if !(f > 0 && f < 1e12) {
					return fmt.Errorf("rope parameter %q: %g is not a factor", name, f)
				}
			}
		}
		if r.RopeFactor == 0 {
			r.RopeFactor = float64(d.MaxPos) / float64(r.RopeOriginal)
		}
		if r.RopeAttention == 0 {
			r.RopeAttention = 1
			if r.RopeFactor > 1 {
				r.RopeAttention = math.Sqrt(1 + ln(r.RopeFactor)/ln(float64(r.RopeOriginal)))
			}
		}
	}
	return nil
}
