package inspect

// gptNeoX is GPT-NeoX, Pythia and RedPajama: attention and feed-forward in parallel, part of each head rotated.
var gptNeoX = &family{
	name:         "gpt_neox",
	models:       "GPT-NeoX, Pythia, RedPajama",
	architecture: "GPTNeoXForCausalLM",
	eos:          []int{2},
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actGELU, Parallel: true,
		Rope: true, RopeSpec: RopeSpec{RopeTheta: 10000}, MaxPos: 2048,
		QKVOrder: qkvGrouped, WeightLayout: layoutOutIn,
	},
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"layer_norm_eps":        epsKey,
		"use_parallel_residual": boolKey(func(s *Spec) *bool { return &s.Parallel }),
		"rotary_pct":            floatKey(func(d *draft) *float64 { return &d.partial }),
		"rotary_emb_base":       ropeThetaKey,
		"attention_bias":        biasKey(RoleQKV, RoleO),
	}),
	partial: 0.25,
	prefix:  "gpt_neox.",
	names: names{
		RoleEmbed:     "gpt_neox.embed_in",
		RoleAttnNorm:  "gpt_neox.layers.%d.input_layernorm",
		RoleQKV:       "gpt_neox.layers.%d.attention.query_key_value",
		RoleO:         "gpt_neox.layers.%d.attention.dense",
		RoleMLPNorm:   "gpt_neox.layers.%d.post_attention_layernorm",
		RoleUp:        "gpt_neox.layers.%d.mlp.dense_h_to_4h",
		RoleDown:      "gpt_neox.layers.%d.mlp.dense_4h_to_h",
		RoleFinalNorm: "gpt_neox.final_layer_norm",
		RoleLMHead:    "embed_out",
	},
	bias:   []Role{RoleAttnNorm, RoleQKV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
	unused: []string{".attention.bias", ".attention.masked_bias"}, // the causal mask
}
