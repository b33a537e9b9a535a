package inspect

import "encoding/json"

// granite is Granite 3: Llama with multipliers of embedding, attention, residual and logits.
var granite = &family{
	name:         "granite",
	models:       "Granite 3",
	architecture: "GraniteForCausalLM",
	eos:          []int{2},
	base:         graniteBase,
	keys:         graniteKeys,
	prefix:       "model.",
	names:        llamaNames,
}

var graniteBase = llamaBase.base(func(s *Spec) { s.AttnScale = 1 })

var graniteKeys = keyTable(llamaKeys, map[string]key{
	"embedding_multiplier": floatKey(func(d *draft) *float64 { return &d.EmbedScale }),
	"residual_multiplier":  floatKey(func(d *draft) *float64 { return &d.ResidualScale }),
	"attention_multiplier": floatKey(func(d *draft) *float64 { return &d.AttnScale }),
	"logits_scaling": {read: func(d *draft, v json.RawMessage) error {
		var divisor float64
		if err := readFloat(v, 1e-6, 1e6, &divisor); err != nil {
			return err
		}
		d.LogitScale = 1 / divisor
		return nil
	}},
})

// graniteMoE has a mixture of experts in every layer, all experts of a layer in one tensor.
var graniteMoE = &family{
	name:         "granitemoe",
	models:       "Granite 3 with experts",
	architecture: "GraniteMoeForCausalLM",
	eos:          []int{2},
	base:         graniteMoEBase,
	keys:         keyTable(graniteKeys, expertKeys, expertInterKeys),
	complete:     onlyExperts,
	prefix:       "model.",
	names:        llamaNames.with(noDenseNames).with(graniteExpertNames),
}

var graniteMoEBase = graniteBase.base(func(s *Spec) { s.Experts, s.TopK, s.TopKRenorm = 8, 2, true })

var graniteExpertNames = names{
	RoleRouter:       "model.layers.%d.block_sparse_moe.router.layer",
	RoleExpertGateUp: "model.layers.%d.block_sparse_moe.input_linear",
	RoleExpertDown:   "model.layers.%d.block_sparse_moe.output_linear",
}

// graniteMoEShared has a dense network beside the mixture.
var graniteMoEShared = &family{
	name:         "granitemoeshared",
	models:       "Granite 4 preview with experts",
	architecture: "GraniteMoeSharedForCausalLM",
	eos:          []int{2},
	base:         graniteMoEBase.base(func(s *Spec) { s.SharedExpert = true }),
	keys: keyTable(graniteMoE.keys, map[string]key{
		"shared_intermediate_size": sizeKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
	}),
	prefix: "model.",
	names: llamaNames.with(graniteExpertNames).with(names{
		RoleGate: "-", RoleUp: "-",
		RoleGateUp: "model.layers.%d.shared_mlp.input_linear",
		RoleDown:   "model.layers.%d.shared_mlp.output_linear",
	}),
}

// hyperClovaX is HyperCLOVA X SEED: Granite with norms of the outputs, too, and logits that are multiplied.
var hyperClovaX = &family{
	name:         "hyperclovax",
	models:       "HyperCLOVA X SEED",
	architecture: "HyperCLOVAXForCausalLM",
	eos:          []int{2},
	base:         llamaBase,
	keys: keyTable(graniteKeys, map[string]key{
		"logits_scaling": floatKey(func(d *draft) *float64 { return &d.LogitScale }),
		"use_post_norm": {read: func(d *draft, v json.RawMessage) error {
			on := true
			err := flagKey(func(*draft) *bool { return &on }).read(d, v)
			if !on {
				d.names = d.names.with(names{RolePostAttnNorm: "-", RolePostMLPNorm: "-"})
			}
			return err
		}},
	}),
	prefix: "model.",
	names: llamaNames.with(names{
		RolePostAttnNorm: "model.layers.%d.post_norm1",
		RolePostMLPNorm:  "model.layers.%d.post_norm2",
	}),
}
