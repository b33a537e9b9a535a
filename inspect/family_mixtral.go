package inspect

// mixtral is Mixtral: Mistral with a mixture of experts in every layer.
var mixtral = &family{
	name:         "mixtral",
	architecture: "MixtralForCausalLM",
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.MaxPos, s.NormEps, s.RopeTheta = 8, 131072, 1e-5, 1e6
		s.Experts, s.TopK, s.TopKRenorm = 8, 2, true
	}),
	keys: keyTable(modernKeys, ropeKeys, expertKeys, map[string]key{
		"rms_norm_eps":      epsKey,
		"sliding_window":    windowKey,
		"intermediate_size": sizeKey(maxWidth, func(s *Spec) *int { return &s.ExpertInter }),
	}),
	windows:  everyLayer,
	complete: func(d *draft) error { d.Inter = d.ExpertInter; return nil },
	prefix:   "model.",
	names: llamaNames.with(names{
		RoleGate: "-", RoleUp: "-", RoleDown: "-",
		RoleRouter:     "model.layers.%d.block_sparse_moe.gate",
		RoleExpertGate: "model.layers.%d.block_sparse_moe.experts.%d.w1",
		RoleExpertUp:   "model.layers.%d.block_sparse_moe.experts.%d.w3",
		RoleExpertDown: "model.layers.%d.block_sparse_moe.experts.%d.w2",
	}),
	alternatives: []names{expertNames, fusedExpertNames},
}
