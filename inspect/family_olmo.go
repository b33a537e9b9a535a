package inspect

// olmo is OLMo 1: Llama with LayerNorms that have no weights.
var olmo = &family{
	name:         "olmo",
	models:       "OLMo",
	architecture: "OlmoForCausalLM",
	eos:          []int{50279},
	base:         llamaBase.base(func(s *Spec) { s.Norm, s.NormEps = normLN, 1e-5 }),
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"attention_bias": biasKey(RoleQ, RoleK, RoleV, RoleO),
		"clip_qkv":       onlyKey("null"),
	}),
	prefix: "model.",
	names:  llamaNames.with(names{RoleAttnNorm: "", RoleMLPNorm: "", RoleFinalNorm: ""}),
}

// olmo2 is OLMo 2: norms of the outputs of attention and feed-forward instead of their inputs, and of all of Q and K.
var olmo2 = &family{
	name:         "olmo2",
	models:       "OLMo 2",
	architecture: "Olmo2ForCausalLM",
	eos:          []int{50279},
	base:         olmo2Base,
	keys:         llamaKeys,
	prefix:       "model.",
	names:        llamaNames.with(qkNormNames).with(postNormNames),
}

var olmo2Base = llamaBase.base(func(s *Spec) { s.NormEps, s.QKNorm = 1e-5, qkNormWidth })

// postNormNames have norms of the outputs of attention and feed-forward instead of their inputs.
var postNormNames = names{
	RoleAttnNorm:     "-",
	RolePostAttnNorm: "model.layers.%d.post_attention_layernorm",
	RoleMLPNorm:      "-",
	RolePostMLPNorm:  "model.layers.%d.post_feedforward_layernorm",
}

// olmo3 is OLMo 3: windows in three layers of four, whose rotary positions are not scaled.
var olmo3 = &family{
	name:         "olmo3",
	models:       "OLMo 3",
	architecture: "Olmo3ForCausalLM",
	eos:          []int{50279},
	base:         olmo2Base.base(func(s *Spec) { s.RopeTheta, s.Window = 500000, 4096 }),
	keys:         keyTable(llamaKeys, windowKeys),
	windows:      mostLayers,
	complete: func(d *draft) error {
		d.period = 4
		if p, ok := d.ropes[""]; ok {
			d.ropes[layerFull] = p
			d.ropes[layerSliding] = ropeParams{RopeSpec: RopeSpec{RopeTheta: p.RopeTheta}}
		}
		return nil
	},
	prefix: "model.",
	names:  llamaNames.with(qkNormNames).with(postNormNames),
}

// olmoE is OLMoE: a mixture of experts in every layer, norms of all of Q and K.
var olmoE = &family{
	name:         "olmoe",
	models:       "OLMoE",
	architecture: "OlmoeForCausalLM",
	eos:          []int{50279},
	base: olmo2Base.base(func(s *Spec) {
		s.MaxPos, s.Experts, s.TopK = 4096, 64, 8
	}),
	keys: keyTable(llamaKeys, expertKeys, expertInterKeys, map[string]key{
		"norm_topk_prob": boolKey(func(s *Spec) *bool { return &s.TopKRenorm }),
		"clip_qkv":       onlyKey("null"),
	}),
	complete:     onlyExperts,
	prefix:       "model.",
	names:        llamaNames.with(qkNormNames).with(noDenseNames).with(expertNames),
	alternatives: []names{fusedExpertNames},
}

// flexOlmo is FlexOlmo: OLMo 2 with experts.
var flexOlmo = &family{
	name:         "flex_olmo",
	models:       "FlexOlmo",
	architecture: "FlexOlmoForCausalLM",
	eos:          []int{100257},
	base: olmo2Base.base(func(s *Spec) {
		s.NormEps, s.RopeTheta, s.MaxPos, s.Experts, s.TopK = 1e-6, 500000, 4096, 7, 5
	}),
	keys:         olmoE.keys,
	complete:     onlyExperts,
	prefix:       "model.",
	names:        llamaNames.with(qkNormNames).with(postNormNames).with(noDenseNames).with(expertNames),
	alternatives: []names{fusedExpertNames},
}
