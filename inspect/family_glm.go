package inspect

// glm is GLM-4 9B: Llama with half of each head rotated in neighbouring pairs, and one matrix for gate and up.
var glm = &family{
	name:         "glm",
	models:       "GLM-4 9B",
	architecture: "GlmForCausalLM",
	eos:          []int{151329, 151336, 151338},
	base:         glmBase,
	keys:         glmKeys,
	partial:      0.5,
	prefix:       "model.",
	names:        llamaNames.with(glmNames),
	bias:         []Role{RoleQ, RoleK, RoleV},
}

var glmBase = llamaBase.base(func(s *Spec) {
	s.KVHeads, s.HeadDim, s.MaxPos, s.NormEps, s.RopeInterleaved = 2, 128, 131072, 1.5625e-07, true
})

var glmKeys = keyTable(llamaKeys, map[string]key{
	"attention_bias": biasKey(RoleQ, RoleK, RoleV),
})

var glmNames = names{
	RoleGate: "-", RoleUp: "-",
	RoleGateUp: "model.layers.%d.mlp.gate_up_proj",
}

// glm4 is GLM-4-0414: also norms of the outputs of attention and feed-forward.
var glm4 = &family{
	name:         "glm4",
	models:       "GLM-4-0414",
	architecture: "Glm4ForCausalLM",
	eos:          []int{151329, 151336, 151338},
	base:         glmBase,
	keys:         glmKeys,
	partial:      0.5,
	prefix:       "model.",
	names: llamaNames.with(glmNames).with(names{
		RolePostAttnNorm: "model.layers.%d.post_self_attn_layernorm",
		RolePostMLPNorm:  "model.layers.%d.post_mlp_layernorm",
	}),
	bias: []Role{RoleQ, RoleK, RoleV},
}
