package inspect

import "fmt"

// smolLM3 is SmolLM3: Llama without rotary positions in every fourth layer.
var smolLM3 = &family{
	name:         "smollm3",
	models:       "SmolLM3",
	architecture: "SmolLM3ForCausalLM",
	eos:          []int{128001},
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.MaxPos, s.RopeTheta, s.Tie = 4, 32768, 2e6, true
	}),
	keys: keyTable(llamaKeys, windowKeys, map[string]key{
		"no_rope_layers":         flagsKey, // 1 where there are rotary positions
		"no_rope_layer_interval": intKey(1, maxLayers, func(d *draft) *int { return &d.period }),
	}),
	windows: func(d *draft, layer int) bool { return smolLM3NoRope(d, layer) },
	noRope:  smolLM3NoRope,
	complete: func(d *draft) error {
		if d.flags != nil && len(d.flags) != d.Layers {
			return fmt.Errorf("config key \"no_rope_layers\": %d layers are listed, the model has %d", len(d.flags), d.Layers)
		}
		return qwenWindow(d)
	},
	prefix: "model.",
	names:  llamaNames,
}

func smolLM3NoRope(d *draft, layer int) bool {
	if d.flags != nil {
		return d.flags[layer] == 0
	}
	period := d.period
	if period == 0 {
		period = 4
	}
	return (layer+1)%period == 0
}
