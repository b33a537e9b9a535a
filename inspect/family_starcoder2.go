package inspect

// starCoder2 is StarCoder2: LayerNorms, a plain feed-forward network, biases, rotary positions and a window.
var starCoder2 = &family{
	name:         "starcoder2",
	models:       "StarCoder2",
	architecture: "Starcoder2ForCausalLM",
	eos:          []int{50256},
	base: llamaBase.base(func(s *Spec) {
		s.Norm, s.NormEps, s.Act, s.Gated = normLN, 1e-5, actGELUTanh, false
		s.KVHeads, s.MaxPos, s.Tie = 2, 4096, true
	}),
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"norm_epsilon":                    epsKey,
		"sliding_window":                  windowKey("sliding_window"),
		"use_bias":                        biasKey(RoleQ, RoleK, RoleV, RoleO, RoleUp, RoleDown),
		"mlp_type":                        onlyKey(`"default"`),
		"norm_type":                       onlyKey(`"layer_norm"`),
		"scale_attn_weights":              onlyKey("true"),
		"activation_function":             ignoredKey, // beside hidden_act, which is the one in force
		"layer_norm_epsilon":              ignoredKey, // beside norm_epsilon
		"attention_softmax_in_fp32":       ignoredKey,
		"scale_attention_softmax_in_fp32": ignoredKey,
	}),
	windows: everyLayer,
	prefix:  "model.",
	names: llamaNames.with(names{
		RoleGate: "-",
		RoleUp:   "model.layers.%d.mlp.c_fc",
		RoleDown: "model.layers.%d.mlp.c_proj",
	}),
	bias: []Role{RoleAttnNorm, RoleQ, RoleK, RoleV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}
