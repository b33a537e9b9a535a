package inspect

// phi3 is Phi-3 and Phi-4: one matrix for Q, K and V and one for gate and up, "longrope" in the long variants.
var phi3 = &family{
	name:         "phi3",
	models:       "Phi-3, Phi-3.5, Phi-4",
	architecture: "Phi3ForCausalLM",
	eos:          []int{32000},
	base:         llamaBase.base(func(s *Spec) { s.MaxPos, s.NormEps = 4096, 1e-5 }),
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"rms_norm_eps":                     epsKey,
		"sliding_window":                   windowKey("sliding_window"),
		"original_max_position_embeddings": intKey(2, maxPositions, func(d *draft) *int { return &d.original }),
		"attention_bias":                   onlyKey("false"),
		"mlp_bias":                         onlyKey("false"),
		"lm_head_bias":                     onlyKey("false"),
		"full_attn_mod":                    onlyKey("1"), // every layer sees everything but for its window
		"interpolate_factor":               onlyKey("1", "1.0"),
	}),
	windows:  everyLayer,
	original: 4096,
	partial:  1,
	prefix:   "model.",
	names: llamaNames.with(names{
		RoleQ: "-", RoleK: "-", RoleV: "-", RoleGate: "-", RoleUp: "-",
		RoleQKV:    "model.layers.%d.self_attn.qkv_proj",
		RoleGateUp: "model.layers.%d.mlp.gate_up_proj",
	}),
}
