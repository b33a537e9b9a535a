package inspect

import (
	"encoding/json"
	"math"
)

// gemma is Gemma, the first generation: Llama with a scaled embedding that is the readout, too, and norms that count
// from one.
var gemma = &family{
	name:         "gemma",
	models:       "Gemma",
	architecture: "GemmaForCausalLM",
	eos:          []int{1},
	base:         gemmaBase,
	keys:         gemmaKeys,
	complete:     gemmaScale,
	prefix:       "model.",
	names:        llamaNames,
}

var gemmaBase = llamaBase.base(func(s *Spec) {
	s.KVHeads, s.HeadDim, s.MaxPos, s.Act, s.Tie, s.NormPlusOne = 16, 256, 8192, actGELUTanh, true, true
})

// gemmaKeys: of the two names of the activation, transformers (since 4.48) goes by hidden_act in the first generation
// and by hidden_activation in the later ones; the other name is written along without effect.
var gemmaKeys = keyTable(llamaKeys, map[string]key{
	"hidden_act":                  actKey,
	"hidden_activation":           ignoredKey,
	"use_bidirectional_attention": onlyKey("false"),
})

// gemma2 is Gemma 2: norms before and after attention and feed-forward, soft caps, a window in every other layer.
var gemma2 = &family{
	name:         "gemma2",
	models:       "Gemma 2",
	architecture: "Gemma2ForCausalLM",
	eos:          []int{1},
	base:         gemma2Base,
	keys:         keyTable(gemmaKeys, windowKeys, gemma2Keys),
	windows:      evenLayers,
	complete:     gemmaScale,
	prefix:       "model.",
	names:        llamaNames.with(sandwichNames),
}

var gemma2Base = gemmaBase.base(func(s *Spec) {
	s.KVHeads, s.Window, s.AttnScale, s.AttnCap, s.LogitCap = 4, 4096, 1.0/16, 50, 30
})

var gemma2Keys = map[string]key{
	"hidden_act":        ignoredKey,
	"hidden_activation": actKey,
	"query_pre_attn_scalar": {read: func(d *draft, v json.RawMessage) error {
		var scalar float64
		if err := readFloat(v, 1, 1e6, &scalar); err != nil {
			return err
		}
		d.AttnScale = 1 / math.Sqrt(scalar)
		return nil
	}},
	"attn_logit_softcapping":  floatKey(func(d *draft) *float64 { return &d.AttnCap }),
	"final_logit_softcapping": floatKey(func(d *draft) *float64 { return &d.LogitCap }),
	"cache_implementation":    ignoredKey,
}

// vaultGemma is Gemma 2 without the norms after attention and feed-forward.
var vaultGemma = &family{
	name:         "vaultgemma",
	models:       "VaultGemma",
	architecture: "VaultGemmaForCausalLM",
	eos:          []int{1},
	base:         gemma2Base,
	keys:         gemma2.keys,
	windows:      evenLayers,
	complete:     gemmaScale,
	prefix:       "model.",
	names:        llamaNames.with(names{RoleMLPNorm: "model.layers.%d.pre_feedforward_layernorm"}),
}

// gemma3 is the text model of Gemma 3: windows in five layers of six, which have rotary positions of their own.
var gemma3 = &family{
	name:         "gemma3_text",
	models:       "Gemma 3",
	architecture: "Gemma3ForCausalLM",
	eos:          []int{1},
	base: gemma2Base.base(func(s *Spec) {
		s.MaxPos, s.RopeTheta, s.QKNorm, s.AttnCap, s.LogitCap = 131072, 1e6, qkNormHead, 0, 0
		s.Heads, s.Vocab = 8, 262208 // as the configs within larger models leave them out
	}),
	keys: keyTable(gemma2.keys, map[string]key{
		"rope_local_base_freq":    floatKey(func(d *draft) *float64 { return &d.localTheta }),
		"_sliding_window_pattern": intKey(1, maxLayers, func(d *draft) *int { return &d.period }),
	}),
	windows: mostLayers,
	complete: func(d *draft) error {
		if d.period == 0 {
			d.period = 6
		}
		if d.localTheta == 0 {
			d.localTheta = 10000
		}
		return gemmaScale(d)
	},
	prefix: "model.",
	names:  llamaNames.with(qkNormNames).with(sandwichNames),
}

// sandwichNames add a norm of the output of attention and of the feed-forward network.
var sandwichNames = names{
	RolePostAttnNorm: "model.layers.%d.post_attention_layernorm",
	RoleMLPNorm:      "model.layers.%d.pre_feedforward_layernorm",
	RolePostMLPNorm:  "model.layers.%d.post_feedforward_layernorm",
}

func evenLayers(_ *draft, layer int) bool { return layer%2 == 0 }

// gemmaScale: embeddings are multiplied by the root of their width.
func gemmaScale(d *draft) error {
	d.EmbedScale = math.Sqrt(float64(d.Hidden))
	return nil
}
