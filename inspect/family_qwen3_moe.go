package inspect

import (
	"fmt"
	"slices"
)

// qwen3MoE is Qwen3 with mixtures of experts, and dense layers where config says so.
var qwen3MoE = &family{
	name:         "qwen3_moe",
	models:       "Qwen3 with experts",
	architecture: "Qwen3MoeForCausalLM",
	base: qwen3Base.base(func(s *Spec) {
		s.HeadDim, s.KVHeads, s.Experts, s.TopK, s.ExpertInter = 0, 4, 128, 8, 768
	}),
	keys: keyTable(qwenKeys, expertKeys, map[string]key{
		"attention_bias":        biasKey(RoleQ, RoleK, RoleV, RoleO),
		"moe_intermediate_size": optionalKey(maxWidth, func(s *Spec) *int { return &s.ExpertInter }),
		"norm_topk_prob":        boolKey(func(s *Spec) *bool { return &s.TopKRenorm }),
		"decoder_sparse_step":   intKey(1, maxLayers, func(d *draft) *int { return &d.period }),
		"mlp_only_layers":       flagsKey,
	}),
	windows: everyLayer, // max_window_layers and layer_types have no say here, unlike in the dense models
	complete: func(d *draft) error {
		for layer := range d.Layers {
			if slices.Contains(d.flags, layer) || (layer+1)%max(d.period, 1) != 0 {
				d.Dense = append(d.Dense, layer)
			}
		}
		if err := qwenWindow(d); err != nil {
			return err
		}
		if d.Window > 0 && slices.Contains(d.layerTypes, layerFull) {
			return fmt.Errorf("config key \"layer_types\": %q beside \"use_sliding_window\", which is of every layer", layerFull)
		}
		return nil
	},
	prefix:       "model.",
	names:        llamaNames.with(qkNormNames).with(expertNames),
	alternatives: []names{fusedExpertNames},
}
