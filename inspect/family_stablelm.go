package inspect

// stableLM is StableLM 2 and StableLM-3B: Llama with LayerNorms and a quarter of each head rotated.
var stableLM = &family{
	name:         "stablelm",
	models:       "StableLM",
	architecture: "StableLmForCausalLM",
	eos:          []int{0},
	base:         llamaBase.base(func(s *Spec) { s.KVHeads, s.Norm, s.NormEps, s.MaxPos = 32, normLN, 1e-5, 4096 }),
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"layer_norm_eps":        epsKey,
		"use_qkv_bias":          biasKey(RoleQ, RoleK, RoleV),
		"use_parallel_residual": boolKey(func(s *Spec) *bool { return &s.Parallel }),
		"qk_layernorm":          onlyKey("false"), // its weights differ from head to head
	}),
	partial: 0.25,
	complete: func(d *draft) error {
		if d.Parallel { // one norm for both
			d.names = d.names.with(names{RoleMLPNorm: "-"})
		}
		return nil
	},
	prefix: "model.",
	names:  llamaNames,
	bias:   []Role{RoleAttnNorm, RoleMLPNorm, RoleFinalNorm},
}
