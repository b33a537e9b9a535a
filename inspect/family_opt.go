package inspect

import "encoding/json"

// opt is OPT: learned positions from row 2 on. In the 350m model norms come after each addition, and the embedding is
// narrower than the layers.
var opt = &family{
	name:         "opt",
	models:       "OPT",
	architecture: "OPTForCausalLM",
	eos:          []int{2},
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actReLU,
		LearnedPos: true, PosOffset: 2, MaxPos: 2048,
		Tie: true, WeightLayout: layoutOutIn,
	},
	keys: keyTable(modernKeys, map[string]key{
		"intermediate_size":             ignoredKey,
		"ffn_dim":                       sizeKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
		"activation_function":           actKey,
		"do_layer_norm_before":          normBeforeKey,
		"_remove_final_layer_norm":      onlyKey("false"),
		"enable_bias":                   ignoredKey, // the tensors tell
		"layer_norm_elementwise_affine": onlyKey("true"),
		"word_embed_proj_dim":           optionalKey(maxWidth, func(s *Spec) *int { return &s.EmbedDim }),
	}),
	complete: func(d *draft) error {
		if d.NormAfter {
			d.names = d.names.with(names{RoleFinalNorm: "-"})
		}
		if d.EmbedDim == d.Hidden || d.EmbedDim == 0 {
			d.EmbedDim = 0
			d.names = d.names.with(names{RoleEmbedProj: "-", RoleReadoutProj: "-"})
		}
		return nil
	},
	prefix: "model.",
	names: names{
		RoleEmbed:       "model.decoder.embed_tokens",
		RoleEmbedProj:   "model.decoder.project_in",
		RolePosEmbed:    "model.decoder.embed_positions",
		RoleAttnNorm:    "model.decoder.layers.%d.self_attn_layer_norm",
		RoleQ:           "model.decoder.layers.%d.self_attn.q_proj",
		RoleK:           "model.decoder.layers.%d.self_attn.k_proj",
		RoleV:           "model.decoder.layers.%d.self_attn.v_proj",
		RoleO:           "model.decoder.layers.%d.self_attn.out_proj",
		RoleMLPNorm:     "model.decoder.layers.%d.final_layer_norm",
		RoleUp:          "model.decoder.layers.%d.fc1",
		RoleDown:        "model.decoder.layers.%d.fc2",
		RoleFinalNorm:   "model.decoder.final_layer_norm",
		RoleReadoutProj: "model.decoder.project_out",
		RoleLMHead:      "lm_head",
	},
	bias: []Role{RoleAttnNorm, RoleQ, RoleK, RoleV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}

// normBeforeKey: false is norms after each addition.
var normBeforeKey = key{read: func(d *draft, v json.RawMessage) error {
	before := true
	err := flagKey(func(*draft) *bool { return &before }).read(d, v)
	d.NormAfter = !before
	return err
}}
