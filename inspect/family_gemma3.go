package inspect

// gemma3 is the text model of Gemma 3: windows in five layers of six, which have rotary positions of their own.
var gemma3 = &family{
	name:         "gemma3_text",
	architecture: "Gemma3ForCausalLM",
	base: gemmaBase.base(func(s *Spec) {
		s.KVHeads, s.MaxPos, s.Window, s.AttnScale = 4, 131072, 4096, 1.0/16
		s.RopeTheta, s.QKNorm = 1e6, qkNormHead
	}),
	keys: keyTable(gemmaKeys, windowKeys, gemmaScaleKeys, map[string]key{
		"rope_local_base_freq":    floatKey(func(d *draft) *float64 { return &d.localTheta }),
		"_sliding_window_pattern": intKey(1, maxLayers, func(d *draft) *int { return &d.period }),
	}),
	windows: func(d *draft, layer int) bool { return (layer+1)%d.period != 0 },
	complete: func(d *draft) error {
		if d.period == 0 {
			d.period = 6
		}
		if d.localTheta == 0 {
			d.localTheta = 10000
		}
		return gemmaScale(d)
	},
	prefix: "model.",
	names:  llamaNames.with(qkNormNames).with(sandwichNames),
}
