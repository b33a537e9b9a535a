package inspect

import "fmt"

// opt is OPT with norms before attention and feed-forward (all sizes but 350m): learned positions from row 2 on.
var opt = &family{
	name:         "opt",
	models:       "OPT (but for 350m)",
	architecture: "OPTForCausalLM",
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actReLU,
		LearnedPos: true, PosOffset: 2, MaxPos: 2048,
		Tie: true, WeightLayout: layoutOutIn,
	},
	keys: keyTable(modernKeys, map[string]key{
		"intermediate_size":             ignoredKey,
		"ffn_dim":                       sizeKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
		"activation_function":           actKey,
		"do_layer_norm_before":          onlyKey("true"),
		"_remove_final_layer_norm":      onlyKey("false"),
		"enable_bias":                   ignoredKey, // the tensors tell
		"layer_norm_elementwise_affine": onlyKey("true"),
		"word_embed_proj_dim":           intKey(1, maxWidth, func(d *draft) *int { return &d.period }),
	}),
	complete: func(d *draft) error {
		if d.period != 0 && d.period != d.Hidden {
			return fmt.Errorf("config key \"word_embed_proj_dim\": %d is not supported, only \"hidden_size\", %d", d.period, d.Hidden)
		}
		return nil
	},
	prefix: "model.",
	names: names{
		RoleEmbed:     "model.decoder.embed_tokens",
		RolePosEmbed:  "model.decoder.embed_positions",
		RoleAttnNorm:  "model.decoder.layers.%d.self_attn_layer_norm",
		RoleQ:         "model.decoder.layers.%d.self_attn.q_proj",
		RoleK:         "model.decoder.layers.%d.self_attn.k_proj",
		RoleV:         "model.decoder.layers.%d.self_attn.v_proj",
		RoleO:         "model.decoder.layers.%d.self_attn.out_proj",
		RoleMLPNorm:   "model.decoder.layers.%d.final_layer_norm",
		RoleUp:        "model.decoder.layers.%d.fc1",
		RoleDown:      "model.decoder.layers.%d.fc2",
		RoleFinalNorm: "model.decoder.final_layer_norm",
		RoleLMHead:    "lm_head",
	},
	bias: []Role{RoleAttnNorm, RoleQ, RoleK, RoleV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}
