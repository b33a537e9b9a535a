package inspect

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// classDefaults are, for each family, what the configuration classes of transformers 5 set where config.json leaves a key
// out; of keys without influence on the logits and of sizes that dchain insists on there are none.
var classDefaults = map[string]string{
	"llama":            `{"attention_bias":false,"head_dim":null,"hidden_act":"silu","max_position_embeddings":2048,"mlp_bias":false,"num_key_value_heads":null,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"mistral":          `{"hidden_act":"silu","max_position_embeddings":131072,"num_key_value_heads":8,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":false,"eos_token_id":2}`,
	"ministral":        `{"hidden_act":"silu","max_position_embeddings":131072,"num_key_value_heads":8,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":false,"eos_token_id":2}`,
	"ministral3":       `{"head_dim":128,"hidden_act":"silu","max_position_embeddings":262144,"num_key_value_heads":8,"rms_norm_eps":1e-5,"rope_parameters":{"type":"yarn","rope_theta":1000000.0,"factor":16.0,"original_max_position_embeddings":16384,"max_position_embeddings":262144,"beta_fast":32.0,"beta_slow":1.0,"mscale_all_dim":1.0,"mscale":1.0,"llama_4_scaling_beta":0.1},"sliding_window":null,"tie_word_embeddings":false,"eos_token_id":2}`,
	"qwen2":            `{"hidden_act":"silu","max_position_embeddings":32768,"max_window_layers":28,"num_key_value_heads":32,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":false,"use_sliding_window":false,"eos_token_id":null}`,
	"qwen3":            `{"attention_bias":false,"head_dim":128,"hidden_act":"silu","max_position_embeddings":32768,"max_window_layers":28,"num_key_value_heads":32,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":false,"use_sliding_window":false,"eos_token_id":null}`,
	"gemma":            `{"attention_bias":false,"head_dim":256,"hidden_act":"gelu_pytorch_tanh","max_position_embeddings":8192,"num_key_value_heads":16,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":true,"use_bidirectional_attention":null,"eos_token_id":1}`,
	"gemma2":           `{"attention_bias":false,"attn_logit_softcapping":50,"final_logit_softcapping":30,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":8192,"num_key_value_heads":4,"query_pre_attn_scalar":256,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":true,"eos_token_id":1}`,
	"gemma3_text":      `{"_sliding_window_pattern":6,"attention_bias":false,"attn_logit_softcapping":null,"final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":131072,"num_attention_heads":8,"num_key_value_heads":4,"query_pre_attn_scalar":256,"rms_norm_eps":1e-6,"rope_local_base_freq":10000,"rope_theta":1000000,"sliding_window":4096,"tie_word_embeddings":true,"vocab_size":262208,"eos_token_id":1}`,
	"vaultgemma":       `{"attention_bias":false,"attn_logit_softcapping":50,"final_logit_softcapping":30,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","max_position_embeddings":8192,"num_key_value_heads":4,"query_pre_attn_scalar":256,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":true,"eos_token_id":1}`,
	"phi":              `{"hidden_act":"gelu_new","layer_norm_eps":1e-5,"max_position_embeddings":2048,"num_key_value_heads":null,"partial_rotary_factor":0.5,"qk_layernorm":false,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"phi3":             `{"hidden_act":"silu","max_position_embeddings":4096,"num_key_value_heads":null,"original_max_position_embeddings":4096,"partial_rotary_factor":1.0,"rms_norm_eps":1e-5,"rope_theta":10000,"sliding_window":null,"tie_word_embeddings":false,"eos_token_id":32000}`,
	"smollm3":          `{"attention_bias":false,"hidden_act":"silu","max_position_embeddings":32768,"mlp_bias":false,"no_rope_layer_interval":4,"num_key_value_heads":4,"rms_norm_eps":1e-6,"rope_theta":2000000,"sliding_window":null,"tie_word_embeddings":true,"use_sliding_window":false,"eos_token_id":128001}`,
	"olmo":             `{"attention_bias":false,"clip_qkv":null,"hidden_act":"silu","max_position_embeddings":2048,"num_key_value_heads":null,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":50279}`,
	"olmo2":            `{"attention_bias":false,"hidden_act":"silu","max_position_embeddings":2048,"num_key_value_heads":null,"rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":50279}`,
	"olmo3":            `{"attention_bias":false,"hidden_act":"silu","max_position_embeddings":2048,"num_key_value_heads":null,"rms_norm_eps":1e-5,"rope_theta":500000,"sliding_window":4096,"tie_word_embeddings":false,"eos_token_id":50279}`,
	"granite":          `{"attention_bias":false,"attention_multiplier":1.0,"hidden_act":"silu","max_position_embeddings":2048,"mlp_bias":false,"num_key_value_heads":null,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"hyperclovax":      `{"attention_bias":false,"attention_multiplier":null,"hidden_act":"silu","max_position_embeddings":2048,"mlp_bias":false,"num_key_value_heads":null,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"use_post_norm":true,"eos_token_id":2}`,
	"cohere":           `{"attention_bias":false,"hidden_act":"silu","layer_norm_eps":1e-5,"logit_scale":0.0625,"max_position_embeddings":8192,"num_key_value_heads":null,"rope_theta":500000,"tie_word_embeddings":true,"use_qk_norm":false,"eos_token_id":255001}`,
	"cohere2":          `{"attention_bias":false,"hidden_act":"silu","layer_norm_eps":1e-5,"logit_scale":0.0625,"max_position_embeddings":8192,"num_key_value_heads":null,"rope_theta":10000,"sliding_window":4096,"sliding_window_pattern":4,"tie_word_embeddings":true,"eos_token_id":255001}`,
	"starcoder2":       `{"hidden_act":"gelu_pytorch_tanh","max_position_embeddings":4096,"norm_epsilon":1e-5,"num_key_value_heads":2,"rope_theta":10000,"sliding_window":null,"tie_word_embeddings":true,"use_bias":true,"eos_token_id":50256}`,
	"stablelm":         `{"hidden_act":"silu","layer_norm_eps":1e-5,"max_position_embeddings":4096,"num_key_value_heads":32,"partial_rotary_factor":0.25,"qk_layernorm":false,"rope_theta":10000,"tie_word_embeddings":false,"use_parallel_residual":false,"use_qkv_bias":false,"eos_token_id":0}`,
	"glm":              `{"attention_bias":true,"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"num_key_value_heads":2,"partial_rotary_factor":0.5,"rms_norm_eps":1.5625e-7,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":[151329,151336,151338]}`,
	"glm4":             `{"attention_bias":true,"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"num_key_value_heads":2,"partial_rotary_factor":0.5,"rms_norm_eps":1.5625e-7,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":[151329,151336,151338]}`,
	"exaone4":          `{"hidden_act":"silu","max_position_embeddings":2048,"num_key_value_heads":32,"rms_norm_eps":1e-5,"rope_theta":10000,"sliding_window":4096,"sliding_window_pattern":4,"tie_word_embeddings":false,"eos_token_id":2}`,
	"ernie4_5":         `{"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"num_key_value_heads":2,"rms_norm_eps":1e-5,"rope_theta":500000,"tie_word_embeddings":true,"use_bias":false,"eos_token_id":2}`,
	"seed_oss":         `{"attention_bias":true,"attention_out_bias":false,"head_dim":128,"hidden_act":"silu","max_position_embeddings":524288,"mlp_bias":false,"num_key_value_heads":8,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"hunyuan_v1_dense": `{"attention_bias":false,"head_dim":null,"hidden_act":"silu","max_position_embeddings":2048,"num_key_value_heads":null,"rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"helium":           `{"attention_bias":false,"head_dim":128,"hidden_act":"silu","max_position_embeddings":4096,"mlp_bias":false,"num_key_value_heads":20,"rms_norm_eps":1e-8,"rope_theta":100000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"arcee":            `{"attention_bias":false,"head_dim":null,"hidden_act":"relu2","max_position_embeddings":4096,"mlp_bias":false,"num_key_value_heads":null,"rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":128001}`,
	"cwm":              `{"head_dim":128,"hidden_act":"silu","max_position_embeddings":131072,"mlp_bias":false,"num_key_value_heads":8,"rms_norm_eps":1e-5,"rope_parameters":{"rope_theta":1000000.0,"factor":16.0,"high_freq_factor":4.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"sliding_window":8192,"tie_word_embeddings":false,"eos_token_id":[128001,128008,128009]}`,
	"nemotron":         `{"attention_bias":false,"head_dim":null,"hidden_act":"relu2","max_position_embeddings":4096,"mlp_bias":false,"norm_eps":1e-5,"num_key_value_heads":null,"partial_rotary_factor":0.5,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":3}`,
	"persimmon":        `{"hidden_act":"relu2","layer_norm_eps":1e-5,"max_position_embeddings":16384,"partial_rotary_factor":0.5,"qk_layernorm":true,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"jais2":            `{"attention_bias":true,"head_dim":null,"hidden_act":"relu2","layer_norm_eps":1e-5,"max_position_embeddings":8192,"mlp_bias":true,"num_key_value_heads":null,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":150024}`,
	"nanochat":         `{"attention_bias":false,"final_logit_softcapping":15,"hidden_act":"relu2","max_position_embeddings":2048,"num_key_value_heads":null,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":1}`,
	"mixtral":          `{"hidden_act":"silu","max_position_embeddings":131072,"num_experts_per_tok":2,"num_key_value_heads":8,"num_local_experts":8,"rms_norm_eps":1e-5,"rope_theta":1000000,"sliding_window":null,"tie_word_embeddings":false,"eos_token_id":2}`,
	"qwen3_moe":        `{"attention_bias":false,"decoder_sparse_step":1,"hidden_act":"silu","max_position_embeddings":32768,"mlp_only_layers":[],"moe_intermediate_size":768,"norm_topk_prob":false,"num_experts_per_tok":8,"num_key_value_heads":4,"num_local_experts":128,"rms_norm_eps":1e-6,"rope_theta":10000,"sliding_window":4096,"tie_word_embeddings":false,"use_sliding_window":false,"eos_token_id":null}`,
	"olmoe":            `{"attention_bias":false,"clip_qkv":null,"hidden_act":"silu","max_position_embeddings":4096,"norm_topk_prob":false,"num_experts":64,"num_experts_per_tok":8,"num_key_value_heads":null,"rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":50279}`,
	"flex_olmo":        `{"attention_bias":false,"hidden_act":"silu","max_position_embeddings":4096,"norm_topk_prob":false,"num_experts":7,"num_experts_per_tok":5,"num_key_value_heads":null,"rms_norm_eps":1e-6,"rope_theta":500000,"tie_word_embeddings":false,"eos_token_id":100257}`,
	"granitemoe":       `{"attention_bias":false,"attention_multiplier":1.0,"hidden_act":"silu","max_position_embeddings":2048,"num_experts_per_tok":2,"num_key_value_heads":null,"num_local_experts":8,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"granitemoeshared": `{"attention_bias":false,"attention_multiplier":1.0,"hidden_act":"silu","max_position_embeddings":2048,"num_experts_per_tok":2,"num_key_value_heads":null,"num_local_experts":8,"rms_norm_eps":1e-6,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"hunyuan_v1_moe":   `{"attention_bias":false,"head_dim":null,"hidden_act":"silu","max_position_embeddings":2048,"moe_topk":1,"num_experts":1,"num_key_value_heads":null,"rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":false,"eos_token_id":2}`,
	"openai-gpt":       `{"afn":"gelu","layer_norm_epsilon":1e-5,"n_positions":512,"tie_word_embeddings":true,"eos_token_id":null}`,
	"gpt2":             `{"activation_function":"gelu_new","layer_norm_epsilon":1e-5,"n_inner":null,"n_positions":1024,"scale_attn_by_inverse_layer_idx":false,"scale_attn_weights":true,"tie_word_embeddings":true,"eos_token_id":50256}`,
	"gpt_neo":          `{"activation_function":"gelu_new","attention_types":[[["global","local"],12]],"intermediate_size":null,"layer_norm_epsilon":1e-5,"max_position_embeddings":2048,"tie_word_embeddings":true,"window_size":256,"eos_token_id":50256}`,
	"gptj":             `{"activation_function":"gelu_new","layer_norm_epsilon":1e-5,"n_inner":null,"n_positions":2048,"rotary_dim":64,"tie_word_embeddings":false,"eos_token_id":50256}`,
	"gpt_neox":         `{"attention_bias":true,"hidden_act":"gelu","layer_norm_eps":1e-5,"max_position_embeddings":2048,"rotary_emb_base":10000,"rotary_pct":0.25,"tie_word_embeddings":false,"use_parallel_residual":true,"eos_token_id":2}`,
	"gpt_bigcode":      `{"activation_function":"gelu_pytorch_tanh","layer_norm_epsilon":1e-5,"multi_query":true,"n_inner":null,"n_positions":1024,"scale_attn_weights":true,"tie_word_embeddings":true,"eos_token_id":50256}`,
	"codegen":          `{"activation_function":"gelu_new","layer_norm_epsilon":1e-5,"n_inner":null,"n_positions":2048,"rotary_dim":64,"tie_word_embeddings":false,"eos_token_id":50256}`,
	"bloom":            `{"apply_residual_connection_post_layernorm":false,"layer_norm_epsilon":1e-5,"tie_word_embeddings":true,"eos_token_id":2}`,
	"opt":              `{"_remove_final_layer_norm":false,"activation_function":"relu","do_layer_norm_before":true,"layer_norm_elementwise_affine":true,"max_position_embeddings":2048,"tie_word_embeddings":true,"word_embed_proj_dim":null,"eos_token_id":2}`,
	"biogpt":           `{"hidden_act":"gelu","layer_norm_eps":1e-12,"max_position_embeddings":1024,"scale_embedding":true,"tie_word_embeddings":true,"eos_token_id":2}`,
	"falcon":           `{"activation":"gelu","alibi":false,"bias":false,"ffn_hidden_size":null,"layer_norm_epsilon":1e-5,"max_position_embeddings":2048,"multi_query":true,"new_decoder_architecture":false,"num_kv_heads":null,"num_ln_in_parallel_attn":null,"parallel_attn":true,"rope_theta":10000,"tie_word_embeddings":true,"eos_token_id":11}`,
	"mpt":              `{"attn_config":{"alibi":true,"alibi_bias_max":8,"attn_type":"multihead_attention","clip_qkv":null,"prefix_lm":false,"qk_ln":false,"softmax_scale":null},"expansion_ratio":4,"layer_norm_epsilon":1e-5,"logit_scale":null,"max_seq_len":2048,"norm_type":"low_precision_layernorm","tie_word_embeddings":true,"eos_token_id":null}`,
}

// TestClassDefaults: leaving a key out means the same as its default value.
func TestClassDefaults(t *testing.T) {
	for _, f := range families {
		var defaults map[string]json.RawMessage
		if err := json.Unmarshal([]byte(classDefaults[f.name]), &defaults); err != nil {
			t.Errorf("%s has no defaults: %v", f.name, err)
			continue
		}
		full := plainConfig(t, f)
		maps.Copy(full, defaults)
		want, err := parseMap(t, full)
		if err != nil {
			t.Errorf("%s with all defaults: %v", f.name, err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(defaults)) {
			without := maps.Clone(full)
			delete(without, name)
			got, err := parseMap(t, without)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s without %q: %v\nhave %+v\nwant %+v", f.name, name, err, got, want)
			}
		}
		for name := range maps.Keys(f.keys) {
			if v, ok := full[name]; f.keys[name].required && (!ok || isNull(v)) {
				t.Errorf("%s: the required key %q is missing", f.name, name)
			}
		}
	}
}

// plainConfig is a config that states nothing but sizes, large enough for every default.
func plainConfig(t *testing.T, f *family) map[string]json.RawMessage {
	t.Helper()
	dirs, _ := filepath.Glob("../testdata/families/*")
	for _, dir := range dirs {
		var config map[string]json.RawMessage
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "config.json")), &config); err != nil {
			t.Fatal(err)
		}
		if string(config["model_type"]) != `"`+f.name+`"` {
			continue
		}
		plain := map[string]json.RawMessage{"model_type": config["model_type"], "architectures": config["architectures"]}
		for name, v := range config {
			k := f.keys[name]
			switch {
			case k.size == nil || isNull(v):
			case strings.HasSuffix(name, "_heads") || name == "n_head":
				plain[name] = json.RawMessage("160")
			case k.size(&f.base) == &f.base.Hidden:
				plain[name] = json.RawMessage("10240")
			case k.size(&f.base) == &f.base.Layers:
				plain[name] = json.RawMessage("24")
			case k.size(&f.base) == &f.base.Vocab:
				plain[name] = json.RawMessage("262208")
			case k.required:
				plain[name] = v
			}
		}
		return plain
	}
	t.Fatalf("no model of %s", f.name)
	return nil
}

func parseMap(t *testing.T, config map[string]json.RawMessage) (Spec, error) {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return ParseConfig(b, nil, nil)
}

// TestConfigMeaning: what keys do to the computation, for values that the models of testdata/families do not have.
func TestConfigMeaning(t *testing.T) {
	layers := func(s *Spec) any { return s.Windowed }
	for _, c := range []struct {
		model, edit string
		read        func(*Spec) any
		want        any
	}{
		{"qwen2", `{"num_hidden_layers":30,"layer_types":"absent","use_sliding_window":true,"sliding_window":16,"max_window_layers":0}`, func(s *Spec) any { return len(s.Windowed) }, 30},
		{"qwen2", `{"num_hidden_layers":30,"layer_types":"absent","use_sliding_window":true,"sliding_window":16,"max_window_layers":"absent"}`, layers, []int{28, 29}},
		{"qwen3", `{"num_hidden_layers":30,"layer_types":"absent","use_sliding_window":true,"sliding_window":16,"max_window_layers":"absent"}`, layers, []int{28, 29}},
		{"qwen2", `{"use_sliding_window":true,"sliding_window":null}`, layers, []int(nil)},
		{"qwen2", `{"use_sliding_window":false,"sliding_window":0}`, layers, []int(nil)},
		{"qwen3_moe", `{"use_sliding_window":true,"sliding_window":16,"max_window_layers":28}`, layers, []int{0, 1, 2, 3}},
		{"qwen3_moe", `{"use_sliding_window":false,"sliding_window":16}`, layers, []int(nil)},
		{"qwen3_moe", `{"mlp_only_layers":[3,0,2]}`, func(s *Spec) any { return s.Dense }, []int{0, 2, 3}},
		{"gpt_neo", `{"num_layers":4,"attention_layers":"absent","attention_types":[[["global"],1],[["local"],2],[["global"],1]]}`, layers, []int{1, 2}},
		{"gpt_neo", `{"num_layers":2,"attention_types":"absent","attention_layers":["local","global"]}`, layers, []int{0}},
		{"gemma", `{"hidden_act":"gelu","hidden_activation":"gelu_pytorch_tanh"}`, func(s *Spec) any { return s.Act }, actGELU},
		{"gemma2", `{"hidden_act":"relu","hidden_activation":"gelu_pytorch_tanh"}`, func(s *Spec) any { return s.Act }, actGELUTanh},
		{"hunyuan_v1_dense", `{"rope_parameters":{"rope_type":"dynamic","rope_theta":10000,"factor":1,"alpha":1000}}`,
			func(s *Spec) any { return s.RopeTheta > 1e7 }, true}, // 10000 * 1000^(8/6)
		{"biogpt", `{"scale_embedding":null}`, func(s *Spec) any { return s.EmbedScale }, 0.0},
		{"phi3", `{"max_position_embeddings":131072,"original_max_position_embeddings":"absent","rope_parameters":{"rope_type":"longrope",
			"rope_theta":10000,"short_factor":[1,1,1,1,1,1,1,1],"long_factor":[2,2,2,2,2,2,2,2]}}`, func(s *Spec) any { return s.RopeOriginal }, 4096},
	} {
		s, err := parseEdited(t, c.model, c.edit)
		if err != nil {
			t.Errorf("%s with %s: %v", c.model, c.edit, err)
		} else if got := c.read(&s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s with %s: have %v, want %v", c.model, c.edit, got, c.want)
		}
	}
}

// TestConfigRefusals: keys that would change the computation in a way that is not supported, or not defined.
func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ model, edit, want string }{
		{"mistral", `{"sliding_window":0}`, `"sliding_window": 0 is no window`},
		{"phi3", `{"sliding_window":0}`, `"sliding_window": 0 is no window`},
		{"gemma2", `{"sliding_window":0}`, `"sliding_window": 0 is no window`},
		{"qwen2-window", `{"sliding_window":0}`, `"sliding_window": 0 is no window`},
		{"gpt_neo", `{"window_size":0}`, `"window_size": 0 is no window`},
		{"qwen3_moe", `{"use_sliding_window":true,"sliding_window":16,"layer_types":["full_attention","full_attention","full_attention","full_attention"]}`, `"layer_types"`},
		{"gpt_neo", `{"attention_layers":["local","global"]}`, "contradict each other"},
		{"gpt_neo", `{"attention_layers":"absent","attention_types":"absent"}`, `"attention_types": 24 layers are listed, the model has 2`},
		{"gpt_neo", `{"attention_layers":"absent","attention_types":[[["global"],3]]}`, `"attention_types": 3 layers are listed, the model has 2`},
		{"gpt_neo", `{"attention_layers":"absent","attention_types":[[["global"],-1]]}`, `"attention_types": want names`},
		{"gpt_neo", `{"attention_layers":"absent","attention_types":[["dilated",2]]}`, `"attention_types": want names`},
		{"gpt_neo", `{"attention_layers":["dilated","global"]}`, `layer 0 is "dilated"`},
		{"llama", `{"rope_parameters":{"rope_type":"dynamic","rope_theta":10000,"factor":1,"alpha":1000}}`, `"alpha" is not understood for llama`},
		{"cwm", `{"rope_parameters":"absent","rope_theta":10000}`, `"rope_theta": 10000 without rope parameters`},
		{"gptj", `{"rotary_dim":null}`, `"rotary_dim": null is not supported`},
		{"hunyuan_v1_dense", `{"use_qk_norm":null}`, `"use_qk_norm": value null is not supported`},
		{"phi3", `{"full_attn_mod":2}`, `"full_attn_mod": value 2 is not supported`},
		{"phi3", `{"interpolate_factor":2}`, `"interpolate_factor": value 2 is not supported`},
		{"phi3", `{"lm_head_bias":true}`, `"lm_head_bias"`},
		{"starcoder2", `{"scale_attn_weights":false}`, `"scale_attn_weights"`},
	} {
		if _, err := parseEdited(t, c.model, c.edit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: error %v, want one with %q", c.model, c.edit, err, c.want)
		}
	}
}

// parseEdited parses the config of a model of testdata/families with some keys set, or taken out where the value is
// "absent".
func parseEdited(t *testing.T, model, edit string) (Spec, error) {
	t.Helper()
	var config, edits map[string]json.RawMessage
	for _, part := range []struct {
		b  []byte
		to *map[string]json.RawMessage
	}{{readFile(t, filepath.Join("../testdata/families", model, "config.json")), &config}, {[]byte(edit), &edits}} {
		if err := json.Unmarshal(part.b, part.to); err != nil {
			t.Fatal(err)
		}
	}
	maps.Copy(config, edits)
	maps.DeleteFunc(config, func(_ string, v json.RawMessage) bool { return string(v) == `"absent"` })
	return parseMap(t, config)
}
