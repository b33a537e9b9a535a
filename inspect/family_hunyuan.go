package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
)

// hunyuan is Hunyuan (dense): a norm over each head of Q and K after the rotation.
var hunyuan = &family{
	name:         "hunyuan_v1_dense",
	models:       "Hunyuan (dense)",
	architecture: "HunYuanDenseV1ForCausalLM",
	eos:          []int{2},
	base:         hunyuanBase,
	keys:         hunyuanKeys,
	ropeAlpha:    true,
	prefix:       "model.",
	names:        llamaNames.with(hunyuanNames),
}

var hunyuanBase = llamaBase.base(func(s *Spec) { s.NormEps, s.QKNorm, s.QKNormLate = 1e-5, qkNormHead, true })

var hunyuanKeys = keyTable(llamaKeys, map[string]key{
	"eod_token_id":       ignoredKey,
	"attention_head_dim": optionalKey(maxHeadDim, func(s *Spec) *int { return &s.HeadDim }),
	"use_qk_norm":        onlyKey("true"),
	"use_rotary_pos_emb": onlyKey("true"),
	"use_cla":            onlyKey("false"),
	"norm_type":          onlyKey(`"rms"`),
	"mlp_bias":           onlyKey("false"),
})

var hunyuanNames = names{
	RoleQNorm: "model.layers.%d.self_attn.query_layernorm",
	RoleKNorm: "model.layers.%d.self_attn.key_layernorm",
}

// hunyuanMoE has a mixture of experts in every layer and a dense network of the same width beside it.
var hunyuanMoE = &family{
	name:         "hunyuan_v1_moe",
	models:       "Hunyuan-A13B",
	architecture: "HunYuanMoEV1ForCausalLM",
	eos:          []int{2},
	base: hunyuanBase.base(func(s *Spec) {
		s.Experts, s.TopK, s.TopKRenorm, s.SharedExpert = 1, 1, true, true
	}),
	keys: keyTable(hunyuanKeys, map[string]key{
		"num_experts": sameKey(maxExperts, func(d *draft) *int { return &d.Experts }),
		"moe_topk":    sameKey(maxExperts, func(d *draft) *int { return &d.TopK }),
	}),
	ropeAlpha: true,
	complete:  func(d *draft) error { d.ExpertInter = d.Inter; return nil },
	prefix:    "model.",
	names: llamaNames.with(hunyuanNames).with(expertNames).with(names{
		RoleRouter: "model.layers.%d.mlp.gate.wg",
		RoleGate:   "model.layers.%d.mlp.shared_mlp.gate_proj",
		RoleUp:     "model.layers.%d.mlp.shared_mlp.up_proj",
		RoleDown:   "model.layers.%d.mlp.shared_mlp.down_proj",
	}),
}

// sameKey reads a number, or a list of one number a layer that must all be the same.
func sameKey(max int, field func(*draft) *int) key {
	one := intKey(1, max, field)
	return key{read: func(d *draft, v json.RawMessage) error {
		var list []json.RawMessage
		if json.Unmarshal(v, &list) != nil {
			return one.read(d, v)
		}
		list = slices.CompactFunc(list, func(a, b json.RawMessage) bool { return string(a) == string(b) })
		if len(list) != 1 {
			return fmt.Errorf("%s differs from layer to layer, which is not supported", clip(v))
		}
		return one.read(d, list[0])
	}}
}
