package inspect

// qwen3 is Qwen3 (dense): a norm over each head of Q and K, no biases.
var qwen3 = &family{
	name:         "qwen3",
	models:       "Qwen3",
	architecture: "Qwen3ForCausalLM",
	base:         qwen3Base,
	keys:         keyTable(qwenKeys, map[string]key{"attention_bias": biasKey(RoleQ, RoleK, RoleV, RoleO)}),
	start:        qwenStart,
	windows:      upperLayers,
	complete:     qwenWindow,
	prefix:       "model.",
	names:        llamaNames.with(qkNormNames),
}

var qwen3Base = qwenBase.base(func(s *Spec) { s.HeadDim, s.QKNorm = 128, qkNormHead })
