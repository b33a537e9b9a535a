package inspect

import (
	"encoding/json"
	"math"
)

// gemma2 is Gemma 2: norms before and after attention and feed-forward, soft caps, a window in every other layer.
var gemma2 = &family{
	name:         "gemma2",
	architecture: "Gemma2ForCausalLM",
	base: gemmaBase.base(func(s *Spec) {
		s.KVHeads, s.Window, s.AttnScale = 4, 4096, 1.0/16
		s.AttnCap, s.LogitCap = 50, 30
	}),
	keys:     keyTable(gemmaKeys, windowKeys, gemmaScaleKeys),
	windows:  evenLayers,
	complete: gemmaScale,
	prefix:   "model.",
	names:    llamaNames.with(sandwichNames),
}

// gemmaBase is what all generations share: a scaled embedding that is the readout, too, and norms that count from one.
var gemmaBase = llamaBase.base(func(s *Spec) {
	s.HeadDim, s.MaxPos, s.Act, s.Tie, s.NormPlusOne = 256, 8192, actGELUTanh, true, true
})

var gemmaKeys = keyTable(llamaKeys, map[string]key{
	"hidden_activation":           actKey,
	"hidden_act":                  ignoredKey, // the older, wrong name beside hidden_activation
	"use_bidirectional_attention": onlyKey("false"),
})

var gemmaScaleKeys = map[string]key{
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
