package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Families that descend from GPT-2.

// openAIGPT is the first GPT: norms after each addition, none before the readout.
var openAIGPT = &family{
	name:         "openai-gpt",
	models:       "GPT",
	architecture: "OpenAIGPTLMHeadModel",
	base:         gpt2.base.base(func(s *Spec) { s.NormAfter, s.MaxPos = true, 512 }),
	keys: keyTable(gptKeys, map[string]key{
		"afn": {read: func(d *draft, v json.RawMessage) error {
			if string(v) == `"gelu"` { // by tanh, here
				v = json.RawMessage(`"gelu_new"`)
			}
			return actKey.read(d, v)
		}},
		"activation_function":    onlyKey("null"),
		"predict_special_tokens": ignoredKey,
		"n_special":              onlyKey("0"),
	}),
	complete: fourfold,
	prefix:   "transformer.",
	names: gpt2.names.with(names{
		RoleEmbed:     "transformer.tokens_embed",
		RolePosEmbed:  "transformer.positions_embed",
		RoleFinalNorm: "-",
	}),
	bias:   gpt2.bias,
	unused: gpt2.unused,
}

// gptNeo is GPT-Neo: attention without a scale, a window in every other layer.
var gptNeo = &family{
	name:         "gpt_neo",
	models:       "GPT-Neo",
	architecture: "GPTNeoForCausalLM",
	eos:          []int{50256},
	base: gpt2.base.base(func(s *Spec) {
		s.MaxPos, s.Window, s.AttnScale, s.WeightLayout = 2048, 256, 1, layoutOutIn
	}),
	keys: map[string]key{
		"num_layers":              sizeKey(maxLayers, func(s *Spec) *int { return &s.Layers }),
		"hidden_size":             sizeKey(maxWidth, func(s *Spec) *int { return &s.Hidden }),
		"num_heads":               sizeKey(maxHeads, func(s *Spec) *int { return &s.Heads }),
		"intermediate_size":       optionalKey(maxWidth, func(s *Spec) *int { return &s.Inter }),
		"vocab_size":              sizeKey(maxVocab, func(s *Spec) *int { return &s.Vocab }),
		"max_position_embeddings": optionalKey(maxPositions, func(s *Spec) *int { return &s.MaxPos }),
		"layer_norm_epsilon":      epsKey,
		"activation_function":     actKey,
		"tie_word_embeddings":     boolKey(func(s *Spec) *bool { return &s.Tie }),
		"window_size":             windowKey("window_size"),
		"attention_layers":        {read: readNeoLayers},
		"attention_types":         {read: readNeoTypes},
	},
	windows: everyLayer, // that is local
	complete: func(d *draft) error {
		if d.layerTypes == nil {
			if err := readNeoTypes(d, json.RawMessage(neoTypes)); err != nil {
				return err
			}
		}
		if len(d.layerTypes) != d.Layers {
			return fmt.Errorf("config key \"attention_types\": %d layers are listed, the model has %d", len(d.layerTypes), d.Layers)
		}
		return fourfold(d)
	},
	prefix: "transformer.",
	names: gpt2.names.with(names{
		RoleQKV: "-",
		RoleQ:   "transformer.h.%d.attn.attention.q_proj",
		RoleK:   "transformer.h.%d.attn.attention.k_proj",
		RoleV:   "transformer.h.%d.attn.attention.v_proj",
		RoleO:   "transformer.h.%d.attn.attention.out_proj",
	}),
	bias:   []Role{RoleAttnNorm, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
	unused: []string{".attn.attention.bias", ".attn.attention.masked_bias"},
}

// neoTypes are the attention_types of a config that has none.
const neoTypes = `[[["global", "local"], 12]]`

// readNeoLayers reads whether each layer is global or local.
func readNeoLayers(d *draft, v json.RawMessage) error {
	var kinds []string
	if err := json.Unmarshal(v, &kinds); err != nil {
		return fmt.Errorf("want a list of names, have %s", clip(v))
	}
	return d.setNeoLayers(kinds)
}

// readNeoTypes reads the same in short: lists of kinds, each with how often it is repeated.
func readNeoTypes(d *draft, v json.RawMessage) error {
	var runs [][2]json.RawMessage
	if err := json.Unmarshal(v, &runs); err != nil {
		return fmt.Errorf("want lists of names and numbers, have %s", clip(v))
	}
	var kinds []string
	for _, run := range runs {
		var part []string
		var times int
		if json.Unmarshal(run[0], &part) != nil || json.Unmarshal(run[1], &times) != nil ||
			times < 0 || times > maxLayers || len(part) > maxLayers {
			return fmt.Errorf("want names and how often they are repeated, have %s, %s", clip(run[0]), clip(run[1]))
		}
		kinds = append(kinds, slices.Repeat(part, times)...)
	}
	return d.setNeoLayers(kinds)
}

// setNeoLayers takes the kinds of layers, which both keys must agree on.
func (d *draft) setNeoLayers(kinds []string) error {
	known := map[string]string{"global": layerFull, "local": layerSliding}
	types := make([]string, len(kinds))
	for i, kind := range kinds {
		if types[i] = known[kind]; types[i] == "" {
			return fmt.Errorf("layer %d is %q, only \"global\" and \"local\" are supported", i, kind)
		}
	}
	if d.layerTypes != nil && !slices.Equal(d.layerTypes, types) {
		return errors.New("attention_layers and attention_types contradict each other")
	}
	d.layerTypes = types
	return nil
}

// gptBigCode is StarCoder and SantaCoder: GPT-2 with a single key and value head.
var gptBigCode = &family{
	name:         "gpt_bigcode",
	models:       "StarCoder, SantaCoder",
	architecture: "GPTBigCodeForCausalLM",
	eos:          []int{50256},
	base:         gpt2.base.base(func(s *Spec) { s.KVHeads, s.WeightLayout = 1, layoutOutIn }),
	keys: keyTable(gpt2.keys, map[string]key{
		"multi_query": {read: func(d *draft, v json.RawMessage) error {
			one := true
			err := flagKey(func(*draft) *bool { return &one }).read(d, v)
			d.KVHeads, d.QKVOrder = 1, ""
			if !one { // as many as query heads, beside each other
				d.KVHeads, d.QKVOrder = 0, qkvGrouped
			}
			return err
		}},
		"num_key_value_heads":             ignoredKey, // follows from multi_query
		"attention_softmax_in_fp32":       ignoredKey,
		"scale_attention_softmax_in_fp32": ignoredKey,
		"inference_runner":                ignoredKey,
		"max_batch_size":                  ignoredKey,
		"max_sequence_length":             ignoredKey,
		"pad_key_length":                  ignoredKey,
		"pre_allocate_kv_cache":           ignoredKey,
		"validate_runner_input":           ignoredKey,
	}),
	complete: fourfold,
	prefix:   "transformer.",
	names:    gpt2.names,
	bias:     gpt2.bias,
	unused:   gpt2.unused,
}

// gptJ is GPT-J: attention and feed-forward in parallel after one norm, neighbouring pairs rotated, no biases in attention.
var gptJ = &family{
	name:         "gptj",
	models:       "GPT-J",
	architecture: "GPTJForCausalLM",
	eos:          []int{50256},
	base: Spec{
		Norm: normLN, NormEps: 1e-5, Act: actGELUTanh, Parallel: true,
		Rope: true, RopeSpec: RopeSpec{RopeTheta: 10000, RotaryDim: 64}, RopeInterleaved: true, MaxPos: 2048,
		WeightLayout: layoutOutIn,
	},
	keys: keyTable(gptKeys, map[string]key{
		"rotary_dim":         rotaryDimKey,
		"rotary":             onlyKey("true"),
		"scale_attn_weights": onlyKey("true"),
	}),
	complete: fourfold,
	prefix:   "transformer.",
	names: names{
		RoleEmbed:     "transformer.wte",
		RoleAttnNorm:  "transformer.h.%d.ln_1",
		RoleQ:         "transformer.h.%d.attn.q_proj",
		RoleK:         "transformer.h.%d.attn.k_proj",
		RoleV:         "transformer.h.%d.attn.v_proj",
		RoleO:         "transformer.h.%d.attn.out_proj",
		RoleUp:        "transformer.h.%d.mlp.fc_in",
		RoleDown:      "transformer.h.%d.mlp.fc_out",
		RoleFinalNorm: "transformer.ln_f",
		RoleLMHead:    "lm_head",
	},
	bias:   []Role{RoleAttnNorm, RoleUp, RoleDown, RoleFinalNorm, RoleLMHead},
	unused: []string{".attn.bias", ".attn.masked_bias", ".attn.causal_mask", ".attn.embed_positions"},
}

// rotaryDimKey: null is not the default.
var rotaryDimKey = func() key {
	k := optionalKey(maxHeadDim, func(s *Spec) *int { return &s.RotaryDim })
	k.null = func(*draft) error { return errors.New("null is not supported, only a number of values to rotate") }
	return k
}()

// codeGen is CodeGen: GPT-J with one matrix for Q, V and K, in four blocks.
var codeGen = &family{
	name:         "codegen",
	models:       "CodeGen",
	architecture: "CodeGenForCausalLM",
	eos:          []int{50256},
	base:         gptJ.base.base(func(s *Spec) { s.QKVOrder = qkvBlocks }),
	keys:         gptJ.keys,
	complete: func(d *draft) error {
		if d.Heads%4 != 0 {
			return fmt.Errorf("config key \"n_head\": %d is not a multiple of 4", d.Heads)
		}
		return fourfold(d)
	},
	prefix: "transformer.",
	names:  gptJ.names.with(names{RoleQ: "-", RoleK: "-", RoleV: "-", RoleQKV: "transformer.h.%d.attn.qkv_proj"}),
	bias:   gptJ.bias,
	unused: gptJ.unused,
}

// bioGPT is BioGPT: learned positions from row 2 on, a scaled embedding.
var bioGPT = &family{
	name:         "biogpt",
	models:       "BioGPT",
	architecture: "BioGptForCausalLM",
	eos:          []int{2},
	base: Spec{
		Norm: normLN, NormEps: 1e-12, Act: actGELU,
		LearnedPos: true, PosOffset: 2, MaxPos: 1024,
		Tie: true, WeightLayout: layoutOutIn,
	},
	keys: keyTable(modernKeys, map[string]key{
		"layer_norm_eps":  epsKey,
		"scale_embedding": flagKey(func(d *draft) *bool { return &d.scaleEmbed }),
	}),
	start: func(d *draft) { d.scaleEmbed = true },
	complete: func(d *draft) error {
		if d.scaleEmbed {
			return gemmaScale(d)
		}
		return nil
	},
	prefix: "biogpt.",
	names: names{
		RoleEmbed:     "biogpt.embed_tokens",
		RolePosEmbed:  "biogpt.embed_positions",
		RoleAttnNorm:  "biogpt.layers.%d.self_attn_layer_norm",
		RoleQ:         "biogpt.layers.%d.self_attn.q_proj",
		RoleK:         "biogpt.layers.%d.self_attn.k_proj",
		RoleV:         "biogpt.layers.%d.self_attn.v_proj",
		RoleO:         "biogpt.layers.%d.self_attn.out_proj",
		RoleMLPNorm:   "biogpt.layers.%d.final_layer_norm",
		RoleUp:        "biogpt.layers.%d.fc1",
		RoleDown:      "biogpt.layers.%d.fc2",
		RoleFinalNorm: "biogpt.layer_norm",
		RoleLMHead:    "output_projection",
	},
	bias: []Role{RoleAttnNorm, RoleQ, RoleK, RoleV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}
