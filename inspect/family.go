package inspect

import "maps"

// The tables here are what many families share. A family's own file adds what is different.

// keyTable joins tables of config keys; a later one wins.
func keyTable(tables ...map[string]key) map[string]key {
	all := make(map[string]key)
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// modernKeys are the sizes of a decoder as most configs since Llama name them.
var modernKeys = map[string]key{
	"num_hidden_layers":       sizeKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
	"hidden_size":             sizeKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
	"num_attention_heads":     sizeKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
	"num_key_value_heads":     kvHeadsKey,
	"head_dim":                headDimKey,
	"intermediate_size":       sizeKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
	"vocab_size":              sizeKey(maxVocab, func(s *Spec) *int { return &s.Vocab }),
	"max_position_embeddings": optionalKey(maxPositions, func(s *Spec) *int { return &s.MaxPos }),
	"hidden_act":              actKey,
	"tie_word_embeddings":     boolKey(func(s *Spec) *bool { return &s.Tie }),
	"pretraining_tp":          ignoredKey, // splits the products without changing them
}

// kvHeadsKey: null is as many as query heads, whatever the family's default.
var kvHeadsKey = func() key {
	k := optionalKey(maxHeads, func(s *Spec) *int { return &s.KVHeads })
	k.null = func(d *draft) error { d.KVHeads = 0; return nil }
	return k
}()

// headDimKey: null is the width divided by the heads, whatever the family's default.
var headDimKey = func() key {
	k := optionalKey(maxHeadDim, func(s *Spec) *int { return &s.HeadDim })
	k.null = func(d *draft) error { d.HeadDim = 0; return nil }
	return k
}()

// ropeKeys are those of rotary positions.
var ropeKeys = map[string]key{
	"rope_theta":            ropeThetaKey,
	"rope_scaling":          ropeKey,
	"rope_parameters":       ropeKey,
	"partial_rotary_factor": floatKey(func(d *draft) *float64 { return &d.partial }),
	"rope_interleaved":      onlyKey("false"),
}

// windowKeys are those of sliding windows.
var windowKeys = map[string]key{
	"sliding_window":         windowKey("sliding_window"),
	"layer_types":            layerTypesKey,
	"use_sliding_window":     flagKey(func(d *draft) *bool { return &d.useWindow }),
	"max_window_layers":      intKey(0, maxLayers, func(d *draft) *int { return &d.windowFrom }),
	"sliding_window_pattern": intKey(1, maxLayers, func(d *draft) *int { return &d.period }),
}

// llamaKeys are the keys of a decoder with RMS norms and rotary positions.
var llamaKeys = keyTable(modernKeys, ropeKeys, map[string]key{
	"rms_norm_eps":   epsKey,
	"attention_bias": biasKey(RoleQ, RoleK, RoleV, RoleO),
	"mlp_bias":       biasKey(RoleGate, RoleUp, RoleDown),
	"layer_types":    layerTypesKey,
})

// llamaBase is what Llama's configs leave out.
var llamaBase = Spec{
	Norm: normRMS, NormEps: 1e-6, Act: actSiLU, Gated: true,
	Rope: true, RopeSpec: RopeSpec{RopeTheta: 10000}, MaxPos: 2048,
	WeightLayout: layoutOutIn,
}

// llamaNames are the tensor names that most families share with Llama.
var llamaNames = names{
	RoleEmbed:     "model.embed_tokens",
	RoleAttnNorm:  "model.layers.%d.input_layernorm",
	RoleQ:         "model.layers.%d.self_attn.q_proj",
	RoleK:         "model.layers.%d.self_attn.k_proj",
	RoleV:         "model.layers.%d.self_attn.v_proj",
	RoleO:         "model.layers.%d.self_attn.o_proj",
	RoleMLPNorm:   "model.layers.%d.post_attention_layernorm",
	RoleGate:      "model.layers.%d.mlp.gate_proj",
	RoleUp:        "model.layers.%d.mlp.up_proj",
	RoleDown:      "model.layers.%d.mlp.down_proj",
	RoleFinalNorm: "model.norm",
	RoleLMHead:    "lm_head",
}

// qkNormNames add norms of queries and keys.
var qkNormNames = names{
	RoleQNorm: "model.layers.%d.self_attn.q_norm",
	RoleKNorm: "model.layers.%d.self_attn.k_norm",
}

// expertKeys are those of a mixture of experts.
var expertKeys = map[string]key{
	"num_experts":         optionalKey(maxExperts, func(s *Spec) *int { return &s.Experts }),
	"num_local_experts":   optionalKey(maxExperts, func(s *Spec) *int { return &s.Experts }),
	"num_experts_per_tok": optionalKey(maxExperts, func(s *Spec) *int { return &s.TopK }),
}

// expertNames replace the dense feed-forward network by one tensor an expert and matrix.
var expertNames = names{
	RoleRouter:     "model.layers.%d.mlp.gate",
	RoleExpertGate: "model.layers.%d.mlp.experts.%d.gate_proj",
	RoleExpertUp:   "model.layers.%d.mlp.experts.%d.up_proj",
	RoleExpertDown: "model.layers.%d.mlp.experts.%d.down_proj",
}

// fusedExpertNames are the other spelling of newer files: all experts of a layer in one tensor.
var fusedExpertNames = names{
	RoleRouter:       "model.layers.%d.mlp.gate",
	RoleExpertGate:   "-",
	RoleExpertUp:     "-",
	RoleExpertGateUp: "model.layers.%d.mlp.experts.gate_up_proj",
	RoleExpertDown:   "model.layers.%d.mlp.experts.down_proj",
}

// base returns a Spec with some fields changed.
func (s Spec) base(change func(*Spec)) Spec {
	change(&s)
	return s
}

// noDenseNames remove the feed-forward network that every token takes.
var noDenseNames = names{RoleGate: "-", RoleUp: "-", RoleDown: "-"}

// expertInterKeys are of models whose intermediate_size is the width of an expert.
var expertInterKeys = map[string]key{
	"intermediate_size": sizeKey(maxWidth, func(s *Spec) *int { return &s.ExpertInter }),
}

// onlyExperts completes a model without a dense network: the width that messages and plans show is an expert's.
func onlyExperts(d *draft) error {
	d.Inter = d.ExpertInter
	return nil
}
