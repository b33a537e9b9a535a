package inspect

import "encoding/json"

// gpt2 is GPT-2 and DistilGPT2: LayerNorm, learned positions, one matrix for Q, K and V, linears stored in x out.
var gpt2 = &family{
	name:         "gpt2",
	models:       "GPT-2, DistilGPT2",
	architecture: "GPT2LMHeadModel",
	eos:          []int{50256},
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actGELUTanh,
		LearnedPos: true, MaxPos: 1024,
		Tie: true, WeightLayout: layoutInOut,
	},
	keys: keyTable(gptKeys, map[string]key{
		"scale_attn_weights": {read: func(d *draft, v json.RawMessage) error {
			if string(v) == "false" {
				d.AttnScale = 1
				return nil
			}
			return onlyKey("true").read(d, v)
		}},
		"scale_attn_by_inverse_layer_idx": boolKey(func(s *Spec) *bool { return &s.AttnScaleDepth }),
		"reorder_and_upcast_attn":         ignoredKey, // a precision trick for half floats
		"add_cross_attention":             onlyKey("false"),
		"predict_special_tokens":          ignoredKey,
		"n_special":                       onlyKey("0"),
	}),
	complete: fourfold,
	prefix:   "transformer.",
	names: names{
		RoleEmbed:     "transformer.wte",
		RolePosEmbed:  "transformer.wpe",
		RoleAttnNorm:  "transformer.h.%d.ln_1",
		RoleQKV:       "transformer.h.%d.attn.c_attn",
		RoleO:         "transformer.h.%d.attn.c_proj",
		RoleMLPNorm:   "transformer.h.%d.ln_2",
		RoleUp:        "transformer.h.%d.mlp.c_fc",
		RoleDown:      "transformer.h.%d.mlp.c_proj",
		RoleFinalNorm: "transformer.ln_f",
		RoleLMHead:    "lm_head",
	},
	bias:   []Role{RoleAttnNorm, RoleQKV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
	unused: []string{".attn.bias", ".attn.masked_bias"}, // the causal mask
}

// gptKeys are the sizes of a decoder as GPT-2 and its kin name them.
var gptKeys = map[string]key{
	"n_layer":             sizeKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
	"n_embd":              sizeKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
	"n_head":              sizeKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
	"n_inner":             optionalKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
	"vocab_size":          sizeKey(maxVocab, func(s *Spec) *int { return &s.Vocab }),
	"n_positions":         optionalKey(maxPositions, func(s *Spec) *int { return &s.MaxPos }),
	"n_ctx":               ignoredKey, // the old name of n_positions, written beside it
	"layer_norm_epsilon":  epsKey,
	"activation_function": actKey,
	"tie_word_embeddings": boolKey(func(s *Spec) *bool { return &s.Tie }),
}

// fourfold is the usual width of a feed-forward network that config does not state.
func fourfold(d *draft) error {
	if d.Inter == 0 {
		d.Inter = 4 * d.Hidden
	}
	return nil
}
