package inspect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// mpt is MPT: ALiBi, LayerNorms without biases.
var mpt = &family{
	name:         "mpt",
	models:       "MPT",
	architecture: "MptForCausalLM",
	also:         []string{"MPTForCausalLM"},
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actGELU, MaxPos: 2048,
		ALiBi: true, ALiBiStyle: alibiMPT, ALiBiMax: 8,
		Tie: true, WeightLayout: layoutOutIn,
	},
	keys: map[string]key{
		"n_layers":            sizeKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
		"d_model":             sizeKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
		"n_heads":             sizeKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
		"vocab_size":          sizeKey(maxVocab, func(s *Spec) *int { return &s.Vocab }),
		"max_seq_len":         optionalKey(maxPositions, func(s *Spec) *int { return &s.MaxPos }),
		"expansion_ratio":     intKey(1, 64, func(d *draft) *int { return &d.period }),
		"layer_norm_epsilon":  epsKey,
		"tie_word_embeddings": boolKey(func(s *Spec) *bool { return &s.Tie }),
		"attn_config":         {read: readMPTAttention},
		"logit_scale":         onlyKey("null"),
		"norm_type":           onlyKey(`"low_precision_layernorm"`, `"layernorm"`),
		"learned_pos_emb":     ignoredKey, // ALiBi takes its place
		"no_bias":             ignoredKey, // the tensors tell
		"embedding_fraction":  ignoredKey, // of gradients
		"init_device":         ignoredKey,
		"init_config":         ignoredKey,
		"verbose":             ignoredKey,
		"loss_fn":             ignoredKey,
		"ffn_config":          ignoredKey,
	},
	complete: func(d *draft) error {
		d.Inter = max(d.period, 1) * d.Hidden
		if d.period == 0 {
			d.Inter = 4 * d.Hidden
		}
		return nil
	},
	prefix: "transformer.",
	names: names{
		RoleEmbed:     "transformer.wte",
		RoleAttnNorm:  "transformer.blocks.%d.norm_1",
		RoleQKV:       "transformer.blocks.%d.attn.Wqkv",
		RoleO:         "transformer.blocks.%d.attn.out_proj",
		RoleMLPNorm:   "transformer.blocks.%d.norm_2",
		RoleUp:        "transformer.blocks.%d.ffn.up_proj",
		RoleDown:      "transformer.blocks.%d.ffn.down_proj",
		RoleFinalNorm: "transformer.norm_f",
		RoleLMHead:    "lm_head",
	},
}

// mptAttentionKeys are the keys within attn_config.
var mptAttentionKeys = map[string]key{
	"alibi":                 onlyKey("true"),
	"alibi_bias_max":        floatKey(func(d *draft) *float64 { return &d.ALiBiMax }),
	"softmax_scale":         floatKey(func(d *draft) *float64 { return &d.AttnScale }),
	"attn_type":             onlyKey(`"multihead_attention"`),
	"clip_qkv":              onlyKey("null"),
	"qk_ln":                 onlyKey("false"),
	"prefix_lm":             onlyKey("false"),
	"attn_impl":             ignoredKey,
	"attn_pdrop":            ignoredKey,
	"attn_uses_sequence_id": onlyKey("false"),
	"model_type":            ignoredKey,
}

func readMPTAttention(d *draft, v json.RawMessage) error {
	values, err := parseObject(v)
	if err != nil {
		return fmt.Errorf("want an object, have %s", clip(v))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k, ok := mptAttentionKeys[name]
		switch {
		case isNull(values[name]):
		case !ok:
			return fmt.Errorf("%q is not understood, refusing to guess", name)
		case k.read != nil:
			if err := k.read(d, values[name]); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
	}
	return nil
}
