package inspect

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// key says how a config key is read.
type key struct {
	read     func(d *draft, v json.RawMessage) error // nil: without influence on the logits
	required bool
	null     func(d *draft) error // what null means where it is not the same as leaving the key out
	size     func(*Spec) *int     // the field it sets, for messages about sizes
}

var ignoredKey = key{}

// sizeKey reads a required positive integer up to max.
func sizeKey(max int, field func(*Spec) *int) key {
	k := optionalKey(max, field)
	k.required = true
	return k
}

// optionalKey reads a positive integer up to max.
func optionalKey(max int, field func(*Spec) *int) key {
	k := intKey(1, max, func(d *draft) *int { return field(&d.Spec) })
	k.size = field
	return k
}

// intKey reads an integer within bounds.
func intKey(min, max int, field func(*draft) *int) key {
	return key{read: func(d *draft, v json.RawMessage) error {
		var n int
		if err := json.Unmarshal(v, &n); err != nil {
			return fmt.Errorf("want an integer, have %s", clip(v))
		}
		if n < min || n > max {
			return fmt.Errorf("%d is outside %d to %d", n, min, max)
		}
		*field(d) = n
		return nil
	}}
}

// floatKey reads a number above zero; null is zero, which means none.
func floatKey(field func(*draft) *float64) key {
	return key{
		read: func(d *draft, v json.RawMessage) error { return readFloat(v, 1e-6, 1e6, field(d)) },
		null: func(d *draft) error { *field(d) = 0; return nil },
	}
}

// boolKey reads true or false.
func boolKey(field func(*Spec) *bool) key {
	return flagKey(func(d *draft) *bool { return field(&d.Spec) })
}

// flagKey reads true or false; null is false, as in Python.
func flagKey(field func(*draft) *bool) key {
	return key{
		read: func(d *draft, v json.RawMessage) error {
			if err := json.Unmarshal(v, field(d)); err != nil {
				return fmt.Errorf("want true or false, have %s", clip(v))
			}
			return nil
		},
		null: func(d *draft) error { *field(d) = false; return nil },
	}
}

// onlyKey refuses every value but those under which the key changes nothing. null is among them unless the key must be
// true.
func onlyKey(allowed ...string) key {
	refuse := func(v json.RawMessage) error {
		return fmt.Errorf("value %s is not supported, only %s", clip(v), allowed[0])
	}
	return key{
		read: func(_ *draft, v json.RawMessage) error {
			if !slices.Contains(allowed, string(v)) {
				return refuse(v)
			}
			return nil
		},
		null: func(*draft) error {
			if allowed[0] == "true" {
				return refuse(json.RawMessage("null"))
			}
			return nil
		},
	}
}

// biasKey announces biases for the case that there is no index to look them up in.
func biasKey(roles ...Role) key {
	return key{read: func(d *draft, v json.RawMessage) error {
		var on bool
		if err := json.Unmarshal(v, &on); err != nil {
			return fmt.Errorf("want true or false, have %s", clip(v))
		}
		for _, role := range roles {
			if on {
				d.bias[role] = true
			} else {
				delete(d.bias, role)
			}
		}
		return nil
	}}
}

var epsKey = key{read: func(d *draft, v json.RawMessage) error {
	return readFloat(v, 1e-12, 1, &d.NormEps)
}}

// actKey maps the names of activation functions to those of the Spec.
var actKey = key{read: func(d *draft, v json.RawMessage) error {
	var name string
	if err := json.Unmarshal(v, &name); err != nil {
		return fmt.Errorf("want a name, have %s", clip(v))
	}
	act, ok := activations[name]
	if !ok {
		return fmt.Errorf("activation %q is not supported; supported are %s", name, strings.Join(slices.Sorted(maps.Keys(activations)), ", "))
	}
	d.Act = act
	return nil
}}

// activations by the names of Hugging Face.
var activations = map[string]string{
	"silu": actSiLU, "swish": actSiLU,
	"gelu_new": actGELUTanh, "gelu_pytorch_tanh": actGELUTanh, "gelu_fast": actGELUTanh,
	"gelu": actGELU, "gelu_python": actGELU,
	"relu": actReLU, "relu2": actReLU2,
}

// layerTypesKey reads whether each layer has a window; draft.finishWindows judges it.
var layerTypesKey = key{read: func(d *draft, v json.RawMessage) error {
	if err := json.Unmarshal(v, &d.layerTypes); err != nil {
		return fmt.Errorf("want a list of names, have %s", clip(v))
	}
	return nil
}}

// windowKey reads the number of positions in sight; null is no window. 0 is written where no window is in force, and
// refused where one is.
func windowKey(name string) key {
	return key{
		read: func(d *draft, v json.RawMessage) error {
			err := intKey(0, maxPositions, func(d *draft) *int { return &d.Window }).read(d, v)
			if err == nil && d.Window == 0 {
				d.emptyWindow = name
			}
			return err
		},
		null: func(d *draft) error { d.Window = 0; return nil },
	}
}

// flagsKey reads a list of small numbers: a flag for each layer, or the numbers of some layers.
var flagsKey = key{read: func(d *draft, v json.RawMessage) error {
	d.flags = []int{}
	if err := json.Unmarshal(v, &d.flags); err != nil {
		return fmt.Errorf("want a list of numbers, have %s", clip(v))
	}
	return nil
}}

// idsKey reads one token id or a list of them and adds those that are new: generation_config.json may name more than
// config.json.
func idsKey(field func(*Spec) *[]int) key {
	return key{read: func(d *draft, v json.RawMessage) error {
		var ids []int
		if len(v) > 0 && v[0] != '[' {
			ids = make([]int, 1)
			if err := json.Unmarshal(v, &ids[0]); err != nil {
				return fmt.Errorf("want a token id or a list of them, have %s", clip(v))
			}
		} else if err := json.Unmarshal(v, &ids); err != nil {
			return fmt.Errorf("want a token id or a list of them, have %s", clip(v))
		}
		list := field(&d.Spec)
		for _, id := range ids {
			if id < 0 {
				return fmt.Errorf("token id %d is negative", id)
			}
			if !slices.Contains(*list, id) {
				*list = append(*list, id)
			}
		}
		return nil
	}}
}

// readFloat reads a number within bounds.
func readFloat(v json.RawMessage, min, max float64, dst *float64) error {
	var f float64
	if err := json.Unmarshal(v, &f); err != nil {
		return fmt.Errorf("want a number, have %s", clip(v))
	}
	if !(f >= min && f <= max) {
		return fmt.Errorf("%g is outside %g to %g", f, min, max)
	}
	*dst = f
	return nil
}

// clip shortens a value for a message.
func clip(v json.RawMessage) string {
	const most = 40
	if len(v) > most {
		return string(v[:most]) + "..."
	}
	return string(v)
}

// sharedKeys are understood the same way in every family.
var sharedKeys = map[string]key{
	"bos_token_id":                idsKey(func(s *Spec) *[]int { return &s.BOS }),
	"eos_token_id":                idsKey(func(s *Spec) *[]int { return &s.EOS }),
	"is_encoder_decoder":          onlyKey("false"),
	"cross_attention_hidden_size": onlyKey("null"),
	"pruned_heads":                onlyKey("{}"),
	"tie_encoder_decoder":         onlyKey("false"),
	"chunk_size_feed_forward":     ignoredKey, // slices the same product
	"quantization_config":         fp8Key,
}

// fp8Key accepts matrices of F8_E4M3 with a scale for each block, or one for the whole, the format that the tensors
// themselves show. How activations are quantised elsewhere is of no interest: the weights are read as the numbers they
// stand for.
var fp8Key = key{read: func(d *draft, v json.RawMessage) error {
	var q struct {
		Method string `json:"quant_method"`
		Format string `json:"fmt"`
		Block  []int  `json:"weight_block_size"`
	}
	if err := json.Unmarshal(v, &q); err != nil {
		return fmt.Errorf("want an object, have %s", clip(v))
	}
	if q.Block == nil {
		q.Block = []int{wholeMatrix, wholeMatrix}
	}
	if q.Method != "fp8" || q.Format != "" && q.Format != "e4m3" || len(q.Block) != 2 || q.Block[0] < 1 || q.Block[1] < 1 {
		return fmt.Errorf("weights quantised by %q are not supported, only fp8 (e4m3) with a scale for each block or matrix", q.Method)
	}
	d.ScaleBlock = q.Block
	return nil
}}

// harmless are keys that describe training, storage, bookkeeping or the sampling defaults of old configs.
var harmless = map[string]bool{
	"architectures": true, "model_type": true, "torch_dtype": true, "dtype": true, "transformers_version": true,
	"use_cache": true, "initializer_range": true, "pad_token_id": true, "sep_token_id": true, "cls_token_id": true,
	"unk_token_id": true, "mask_token_id": true, "decoder_start_token_id": true, "tokenizer_class": true,
	"task_specific_params": true, "gradient_checkpointing": true, "classifier_dropout": true,
	"id2label": true, "label2id": true, "num_labels": true, "_num_labels": true, "problem_type": true,
	"finetuning_task": true, "output_attentions": true, "output_hidden_states": true, "output_past": true,
	"return_dict": true, "torchscript": true, "use_bfloat16": true, "tf_legacy_loss": true, "is_decoder": true,
	"prefix": true, "transformers.js_config": true, "unsloth_fixed": true, "unsloth_version": true,
	"use_flash_attn": true, "attn_implementation": true, "auto_map": true, "init_std": true, "layerdrop": true,
	"dropout": true, "output_router_logits": true, "router_aux_loss_coef": true, "router_jitter_noise": true,
	"mlp_dropout": true, "model_max_length": true, "tokenizer_name": true, "max_sequence_length": true,

	"max_length": true, "min_length": true, "do_sample": true, "early_stopping": true, "num_beams": true,
	"num_beam_groups": true, "diversity_penalty": true, "temperature": true, "top_k": true, "top_p": true,
	"typical_p": true, "repetition_penalty": true, "length_penalty": true, "no_repeat_ngram_size": true,
	"encoder_no_repeat_ngram_size": true, "bad_words_ids": true, "num_return_sequences": true,
	"output_scores": true, "return_dict_in_generate": true, "forced_bos_token_id": true,
	"forced_eos_token_id": true, "remove_invalid_values": true, "exponential_decay_length_penalty": true,
	"suppress_tokens": true, "begin_suppress_tokens": true,
}

// isHarmless also goes by the form of the name: dropout is off outside training, the summary head is another head, and
// a leading underscore marks what the writing library notes for itself.
func isHarmless(name string) bool {
	return harmless[name] ||
		strings.HasSuffix(name, "_dropout") || strings.HasSuffix(name, "_dropout_prob") || strings.HasSuffix(name, "_pdrop") ||
		strings.HasPrefix(name, "summary_") ||
		name == "_name_or_path" || name == "_commit_hash" || strings.HasPrefix(name, "_attn_implementation") ||
		name == "_from_model_config"
}
