package inspect

import (
	"encoding/json"
	"fmt"
	"strings"
)

// exaone4 is EXAONE 4: norms of the outputs of attention and feed-forward and of each head of Q and K; with windows, the
// layers that see everything have no rotary positions.
var exaone4 = &family{
	name:         "exaone4",
	models:       "EXAONE 4",
	architecture: "Exaone4ForCausalLM",
	eos:          []int{2},
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.NormEps, s.Window, s.QKNorm = 32, 1e-5, 4096, qkNormHead
	}),
	keys: keyTable(llamaKeys, windowKeys, map[string]key{
		"sliding_window_pattern":  exaonePatternKey,
		"reorder_and_upcast_attn": ignoredKey,
	}),
	windows: mostLayers,
	noRope:  func(d *draft, layer int) bool { return d.Window > 0 && !contains(d.Windowed, layer) },
	complete: func(d *draft) error {
		if d.period == 0 {
			d.period = 4
		}
		return nil
	},
	prefix: "model.",
	names:  llamaNames.with(qkNormNames).with(postNormNames),
}

// exaonePatternKey is a period of layers, or one letter a layer of it: "LLLG". Where it is written so, layer_types say
// the same. 0 is written where there is no window.
var exaonePatternKey = key{read: func(d *draft, v json.RawMessage) error {
	var pattern string
	if err := json.Unmarshal(v, &pattern); err == nil {
		if strings.Trim(pattern, "L") != "G" || !strings.HasSuffix(pattern, "G") {
			return fmt.Errorf("pattern %q is not supported, only such as \"LLLG\"", pattern)
		}
		d.period = len(pattern)
		return nil
	}
	return intKey(0, maxLayers, func(d *draft) *int { return &d.period }).read(d, v)
}}
