package inspect

// bloom is BLOOM: ALiBi instead of positions, a norm of the embedding.
var bloom = &family{
	name:         "bloom",
	architecture: "BloomForCausalLM",
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actGELUTanh, MaxPos: 2048,
		ALiBi: true, ALiBiStyle: alibiPress, ALiBiMax: 8,
		Tie: true, QKVOrder: qkvGrouped, WeightLayout: layoutOutIn,
	},
	keys: map[string]key{
		"n_layer":             sizeKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
		"num_hidden_layers":   optionalKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
		"n_embed":             optionalKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
		"hidden_size":         optionalKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
		"n_head":              optionalKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
		"num_attention_heads": optionalKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
		"vocab_size":          sizeKey(maxVocab, func(s *Spec) *int { return &s.Vocab }),
		"layer_norm_epsilon":  epsKey,
		"tie_word_embeddings": boolKey(func(s *Spec) *bool { return &s.Tie }),
		"seq_length":          optionalKey(maxPositions, func(s *Spec) *int { return &s.MaxPos }),
		"apply_residual_connection_post_layernorm": onlyKey("false"),
		"pretraining_tp":            ignoredKey,
		"slow_but_exact":            ignoredKey, // the order of summation only
		"skip_bias_add":             ignoredKey,
		"skip_bias_add_qkv":         ignoredKey,
		"attention_softmax_in_fp32": ignoredKey,
		"bias_dropout_fusion":       ignoredKey,
		"masked_softmax_fusion":     ignoredKey,
		"offset_alibi":              ignoredKey,
		"unk_token_id":              ignoredKey,
	},
	complete: fourfold,
	prefix:   "transformer.",
	names: names{
		RoleEmbed:     "transformer.word_embeddings",
		RoleEmbedNorm: "transformer.word_embeddings_layernorm",
		RoleAttnNorm:  "transformer.h.%d.input_layernorm",
		RoleQKV:       "transformer.h.%d.self_attention.query_key_value",
		RoleO:         "transformer.h.%d.self_attention.dense",
		RoleMLPNorm:   "transformer.h.%d.post_attention_layernorm",
		RoleUp:        "transformer.h.%d.mlp.dense_h_to_4h",
		RoleDown:      "transformer.h.%d.mlp.dense_4h_to_h",
		RoleFinalNorm: "transformer.ln_f",
		RoleLMHead:    "lm_head",
	},
	bias: []Role{RoleEmbedNorm, RoleAttnNorm, RoleQKV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}
