package inspect

import (
	"encoding/json"
	"fmt"
)

// falcon is Falcon 1 and 2: attention and feed-forward in parallel after one norm (7B, 11B) or two (40B, 180B), or one
// after the other (RW, with ALiBi). Q, K and V are one matrix: a key and a value behind all queries, or in groups.
var falcon = &family{
	name:         "falcon",
	models:       "Falcon",
	architecture: "FalconForCausalLM",
	eos:          []int{11},
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actGELU, Parallel: true,
		Rope: true, RopeSpec: RopeSpec{RopeTheta: 10000}, MaxPos: 2048,
		ALiBiStyle: alibiPress, ALiBiMax: 8, ALiBiScaled: true,
		Tie: true, WeightLayout: layoutOutIn,
	},
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"intermediate_size":        ignoredKey,
		"hidden_act":               ignoredKey,
		"n_layer":                  optionalKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
		"n_head":                   optionalKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
		"n_embed":                  optionalKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
		"num_key_value_heads":      ignoredKey,
		"num_kv_heads":             kvHeadsKey,
		"n_head_kv":                kvHeadsKey,
		"ffn_hidden_size":          optionalKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
		"ff_factor":                onlyKey("4"),
		"activation":               actKey,
		"layer_norm_epsilon":       epsKey,
		"alibi":                    boolKey(func(s *Spec) *bool { return &s.ALiBi }),
		"parallel_attn":            boolKey(func(s *Spec) *bool { return &s.Parallel }),
		"multi_query":              {read: falconFlag(falconOneKV)},
		"new_decoder_architecture": {read: falconFlag(falconNew)},
		"num_ln_in_parallel_attn":  intKey(1, 2, func(d *draft) *int { return &d.period }),
		"bias":                     biasKey(RoleQKV, RoleO, RoleUp, RoleDown),
		"apply_residual_connection_post_layernorm": onlyKey("false"),
	}),
	complete: falconShape,
	prefix:   "transformer.",
	names: names{
		RoleEmbed:     "transformer.word_embeddings",
		RoleAttnNorm:  "transformer.h.%d.input_layernorm",
		RoleQKV:       "transformer.h.%d.self_attention.query_key_value",
		RoleO:         "transformer.h.%d.self_attention.dense",
		RoleMLPNorm:   "transformer.h.%d.post_attention_layernorm",
		RoleUp:        "transformer.h.%d.mlp.dense_h_to_4h",
		RoleDown:      "transformer.h.%d.mlp.dense_4h_to_h",
		RoleFinalNorm: "transformer.ln_f",
		RoleLMHead:    "lm_head",
	},
	bias: []Role{RoleAttnNorm, RoleMLPNorm, RoleFinalNorm},
}

// Indices of draft.flags for Falcon: multi_query (the default) and new_decoder_architecture.
const (
	falconOneKV = iota
	falconNew
)

func falconFlag(at int) func(*draft, json.RawMessage) error {
	return func(d *draft, v json.RawMessage) error {
		var on bool
		if err := json.Unmarshal(v, &on); err != nil {
			return fmt.Errorf("want true or false, have %s", clip(v))
		}
		if d.flags == nil {
			d.flags = []int{1, 0}
		}
		d.flags[at] = 0
		if on {
			d.flags[at] = 1
		}
		return nil
	}
}

func falconShape(d *draft) error {
	if d.flags == nil {
		d.flags = []int{1, 0}
	}
	newer, oneKV := d.flags[falconNew] == 1, d.flags[falconOneKV] == 1
	d.Rope = !d.ALiBi
	switch {
	case newer:
		d.QKVOrder, d.Parallel = qkvGrouped, true
		if d.period != 1 {
			d.names = d.names.with(names{
				RoleAttnNorm: "transformer.h.%d.ln_attn",
				RoleMLPNorm:  "transformer.h.%d.ln_mlp",
			})
		} else {
			d.names = d.names.with(names{RoleMLPNorm: "-"})
		}
	case oneKV:
		d.KVHeads = 1
	default:
		d.KVHeads, d.QKVOrder = d.Heads, qkvGrouped
	}
	if !newer && d.Parallel {
		d.names = d.names.with(names{RoleMLPNorm: "-"})
	}
	return fourfold(d)
}
