package inspect

// mistral is Mistral 7B, Nemo and Small: Llama with a window over every layer, if any.
var mistral = &family{
	name:         "mistral",
	models:       "Mistral 7B, Nemo, Small",
	architecture: "MistralForCausalLM",
	eos:          []int{2},
	base:         mistralBase,
	keys:         keyTable(modernKeys, ropeKeys, map[string]key{"rms_norm_eps": epsKey, "sliding_window": windowKey("sliding_window")}),
	windows:      everyLayer,
	prefix:       "model.",
	names:        llamaNames,
}

var mistralBase = llamaBase.base(func(s *Spec) { s.KVHeads, s.MaxPos, s.Window = 8, 131072, 4096 })

// ministral is Ministral 8B: the window is of the layers that layer_types name.
var ministral = &family{
	name:         "ministral",
	models:       "Ministral 8B",
	architecture: "MinistralForCausalLM",
	eos:          []int{2},
	base:         mistralBase,
	keys:         keyTable(mistral.keys, map[string]key{"layer_types": layerTypesKey}),
	windows:      everyLayer,
	prefix:       "model.",
	names:        llamaNames,
}

// mixtral is Mixtral: Mistral with a mixture of experts in every layer.
var mixtral = &family{
	name:         "mixtral",
	models:       "Mixtral",
	architecture: "MixtralForCausalLM",
	eos:          []int{2},
	base: mistralBase.base(func(s *Spec) {
		s.Window, s.NormEps, s.RopeTheta = 0, 1e-5, 1e6
		s.Experts, s.TopK, s.TopKRenorm = 8, 2, true
	}),
	keys:     keyTable(mistral.keys, expertKeys, expertInterKeys),
	windows:  everyLayer,
	complete: onlyExperts,
	prefix:   "model.",
	names: llamaNames.with(noDenseNames).with(names{
		RoleRouter:     "model.layers.%d.block_sparse_moe.gate",
		RoleExpertGate: "model.layers.%d.block_sparse_moe.experts.%d.w1",
		RoleExpertUp:   "model.layers.%d.block_sparse_moe.experts.%d.w3",
		RoleExpertDown: "model.layers.%d.block_sparse_moe.experts.%d.w2",
	}),
	alternatives: []names{expertNames, fusedExpertNames},
}

// ministral3 is Ministral 3: rotated queries grow with the logarithm of their position.
var ministral3 = &family{
	name:         "ministral3",
	models:       "Ministral 3",
	architecture: "Ministral3ForCausalLM",
	eos:          []int{2},
	base:         mistralBase.base(func(s *Spec) { s.HeadDim, s.MaxPos, s.NormEps, s.RopeTheta, s.Window = 128, 262144, 1e-5, 1e6, 0 }),
	keys:         mistral.keys,
	windows:      everyLayer,
	rope: &ropeParams{mscale: 1, mscaleAll: 1, RopeSpec: RopeSpec{
		RopeScaling: ropeYarn, RopeTheta: 1e6, RopeFactor: 16, RopeOriginal: 16384, RopeBetaFast: 32, RopeBetaSlow: 1,
		RopeQueryGrowth: 0.1,
	}},
	prefix: "model.",
	names:  llamaNames,
}
