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

// publishedFamilies are configs as well-known repositories of each family have them, with the number of parameters.
var publishedFamilies = map[string]struct {
	config string
	params int64
}{
	"Mistral-7B-v0.1": {`{"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,"hidden_act":"silu",
		"hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,"max_position_embeddings":32768,
		"model_type":"mistral","num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"rms_norm_eps":1e-05,
		"rope_theta":10000.0,"sliding_window":4096,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"transformers_version":"4.34.0.dev0","use_cache":true,"vocab_size":32000}`, 7241732096},
	"Mixtral-8x7B-v0.1": {`{"architectures":["MixtralForCausalLM"],"attention_dropout":0.0,"bos_token_id":1,"eos_token_id":2,
		"hidden_act":"silu","hidden_size":4096,"initializer_range":0.02,"intermediate_size":14336,
		"max_position_embeddings":32768,"model_type":"mixtral","num_attention_heads":32,"num_experts_per_tok":2,
		"num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,"output_router_logits":false,
		"rms_norm_eps":1e-05,"rope_theta":1000000.0,"router_aux_loss_coef":0.02,"sliding_window":null,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.36.0.dev0","use_cache":true,
		"vocab_size":32000}`, 46702792704},
	"Qwen3-0.6B": {`{"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":151643,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu","hidden_size":1024,
		"initializer_range":0.02,"intermediate_size":3072,"max_position_embeddings":40960,"max_window_layers":28,
		"model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":28,"num_key_value_heads":8,"rms_norm_eps":1e-06,
		"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,"tie_word_embeddings":true,"torch_dtype":"bfloat16",
		"transformers_version":"4.51.0","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`, 596049920},
	"Qwen3-30B-A3B": {`{"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu",
		"hidden_size":2048,"initializer_range":0.02,"intermediate_size":6144,"max_position_embeddings":40960,
		"max_window_layers":48,"mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,
		"norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,
		"num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,
		"router_aux_loss_coef":0.001,"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"transformers_version":"4.51.0","use_cache":true,"use_sliding_window":false,"vocab_size":151936}`, 30532122624},
	"gemma-2b": {`{"architectures":["GemmaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,"bos_token_id":2,
		"eos_token_id":1,"head_dim":256,"hidden_act":"gelu","hidden_activation":null,"hidden_size":2048,
		"initializer_range":0.02,"intermediate_size":16384,"max_position_embeddings":8192,"model_type":"gemma",
		"num_attention_heads":8,"num_hidden_layers":18,"num_key_value_heads":1,"pad_token_id":0,"rms_norm_eps":1e-06,
		"rope_scaling":null,"rope_theta":10000.0,"torch_dtype":"bfloat16","transformers_version":"4.38.0.dev0",
		"use_cache":true,"vocab_size":256000}`, 2506172416},
	"gemma-2-2b": {`{"architectures":["Gemma2ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"attn_logit_softcapping":50.0,"bos_token_id":2,"cache_implementation":"hybrid","eos_token_id":1,
		"final_logit_softcapping":30.0,"head_dim":256,"hidden_act":"gelu_pytorch_tanh",
		"hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,"initializer_range":0.02,"intermediate_size":9216,
		"max_position_embeddings":8192,"model_type":"gemma2","num_attention_heads":8,"num_hidden_layers":26,
		"num_key_value_heads":4,"pad_token_id":0,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_theta":10000.0,
		"sliding_window":4096,"torch_dtype":"float32","transformers_version":"4.42.4","use_cache":true,"vocab_size":256000}`,
		2614341888},
	"gemma-3-1b-it": {`{"architectures":["Gemma3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"attn_logit_softcapping":null,"bos_token_id":2,"cache_implementation":"hybrid","eos_token_id":[1,106],
		"final_logit_softcapping":null,"head_dim":256,"hidden_activation":"gelu_pytorch_tanh","hidden_size":1152,
		"initializer_range":0.02,"intermediate_size":6912,"max_position_embeddings":32768,"model_type":"gemma3_text",
		"num_attention_heads":4,"num_hidden_layers":26,"num_key_value_heads":1,"pad_token_id":0,
		"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_scaling":null,
		"rope_theta":1000000,"sliding_window":512,"sliding_window_pattern":6,"torch_dtype":"bfloat16",
		"transformers_version":"4.50.0.dev0","use_cache":true,"vocab_size":262144}`, 999885952},
	"gemma-3-4b-it": {`{"architectures":["Gemma3ForConditionalGeneration"],"boi_token_index":255999,"eoi_token_index":256000,
		"eos_token_id":[1,106],"image_token_index":262144,"initializer_range":0.02,"mm_tokens_per_image":256,
		"model_type":"gemma3","text_config":{"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text",
		"num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},
		"torch_dtype":"bfloat16","transformers_version":"4.50.0.dev0","vision_config":{"hidden_size":1152}}`, 3880263168},
	"Mistral-Small-3.1-24B": {`{"architectures":["Mistral3ForConditionalGeneration"],"image_token_index":10,"model_type":"mistral3",
		"multimodal_projector_bias":false,"projector_hidden_act":"gelu","spatial_merge_size":2,"text_config":{
		"attention_dropout":0.0,"head_dim":128,"hidden_act":"silu","hidden_size":5120,"initializer_range":0.02,
		"intermediate_size":32768,"max_position_embeddings":131072,"model_type":"mistral","num_attention_heads":32,
		"num_hidden_layers":40,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000000.0,
		"sliding_window":null,"use_cache":true,"vocab_size":131072},"torch_dtype":"bfloat16",
		"transformers_version":"4.50.0.dev0","vision_config":{},"vision_feature_layer":-1}`, 23572403200},
	"phi-2": {`{"architectures":["PhiForCausalLM"],"attention_dropout":0.0,"bos_token_id":50256,"embd_pdrop":0.0,
		"eos_token_id":50256,"hidden_act":"gelu_new","hidden_size":2560,"initializer_range":0.02,"intermediate_size":10240,
		"layer_norm_eps":1e-05,"max_position_embeddings":2048,"model_type":"phi","num_attention_heads":32,
		"num_hidden_layers":32,"num_key_value_heads":32,"partial_rotary_factor":0.4,"qk_layernorm":false,"resid_pdrop":0.1,
		"rope_scaling":null,"rope_theta":10000.0,"tie_word_embeddings":false,"torch_dtype":"float16",
		"transformers_version":"4.37.0","use_cache":true,"vocab_size":51200}`, 2779683840},
	"Phi-3-mini-128k-instruct": {`{"architectures":["Phi3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"auto_map":{"AutoConfig":"configuration_phi3.Phi3Config"},"bos_token_id":1,"embd_pdrop":0.0,"eos_token_id":32000,
		"hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,"intermediate_size":8192,
		"max_position_embeddings":131072,"model_type":"phi3","num_attention_heads":32,"num_hidden_layers":32,
		"num_key_value_heads":32,"original_max_position_embeddings":4096,"pad_token_id":32000,"resid_pdrop":0.0,
		"rms_norm_eps":1e-05,"rope_scaling":{"long_factor":[` + strings.Repeat("2.5,", 47) + `64.0],
		"short_factor":[` + strings.Repeat("1.05,", 47) + `2.8],"type":"su"},"rope_theta":10000.0,"sliding_window":262144,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","transformers_version":"4.40.2","use_cache":true,
		"vocab_size":32064}`, 3821079552},
	"Phi-4-mini-instruct": {`{"architectures":["Phi3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"auto_map":{"AutoConfig":"configuration_phi3.Phi3Config"},"bos_token_id":199999,"embd_pdrop":0.0,
		"eos_token_id":199999,"full_attn_mod":1,"hidden_act":"silu","hidden_size":3072,"initializer_range":0.02,
		"intermediate_size":8192,"interpolate_factor":1,"lm_head_bias":false,"max_position_embeddings":131072,
		"mlp_bias":false,"model_type":"phi3","num_attention_heads":24,"num_hidden_layers":32,"num_key_value_heads":8,
		"original_max_position_embeddings":4096,"pad_token_id":199999,"partial_rotary_factor":0.75,"resid_pdrop":0.0,
		"rms_norm_eps":1e-05,"rope_scaling":{"long_factor":[` + strings.Repeat("2.5,", 47) + `47.77],
		"short_factor":[` + strings.Repeat("1.0,", 47) + `1.0],"type":"longrope"},"rope_theta":10000.0,
		"sliding_window":262144,"tie_word_embeddings":true,"torch_dtype":"bfloat16","transformers_version":"4.45.0",
		"use_cache":true,"vocab_size":200064}`, 3836021760},
	"pythia-70m": {`{"architectures":["GPTNeoXForCausalLM"],"bos_token_id":0,"eos_token_id":0,"hidden_act":"gelu",
		"hidden_size":512,"initializer_range":0.02,"intermediate_size":2048,"layer_norm_eps":1e-05,
		"max_position_embeddings":2048,"model_type":"gpt_neox","num_attention_heads":8,"num_hidden_layers":6,
		"rotary_emb_base":10000,"rotary_pct":0.25,"tie_word_embeddings":false,"torch_dtype":"float16",
		"transformers_version":"4.24.0","use_cache":true,"use_parallel_residual":true,"vocab_size":50304}`, 70426624},
	"bloom-560m": {`{"apply_residual_connection_post_layernorm":false,"attention_dropout":0.0,"attention_softmax_in_fp32":true,
		"architectures":["BloomForCausalLM"],"bias_dropout_fusion":true,"bos_token_id":1,"eos_token_id":2,"pad_token_id":3,
		"unk_token_id":0,"hidden_dropout":0.0,"initializer_range":0.02,"layer_norm_epsilon":1e-05,
		"masked_softmax_fusion":true,"model_type":"bloom","n_embed":1024,"n_inner":null,"n_layer":24,
		"num_attention_heads":16,"offset_alibi":100,"pretraining_tp":1,"seq_length":2048,"skip_bias_add":true,
		"skip_bias_add_qkv":false,"transformers_version":"4.20.0","use_cache":true,"vocab_size":250880}`, 559214592},
	"opt-125m": {`{"_name_or_path":"opt-125m","activation_dropout":0.0,"activation_function":"relu",
		"architectures":["OPTForCausalLM"],"attention_dropout":0.0,"bos_token_id":2,"do_layer_norm_before":true,
		"dropout":0.1,"eos_token_id":2,"ffn_dim":3072,"hidden_size":768,"init_std":0.02,"layerdrop":0.0,
		"max_position_embeddings":2048,"model_type":"opt","num_attention_heads":12,"num_hidden_layers":12,"pad_token_id":1,
		"prefix":"</s>","torch_dtype":"float16","transformers_version":"4.21.0.dev0","use_cache":true,"vocab_size":50272,
		"word_embed_proj_dim":768}`, 125239296},
	"gpt-j-6b": {`{"activation_function":"gelu_new","architectures":["GPTJForCausalLM"],"attn_pdrop":0.0,"bos_token_id":50256,
		"embd_pdrop":0.0,"eos_token_id":50256,"gradient_checkpointing":false,"initializer_range":0.02,
		"layer_norm_epsilon":1e-05,"model_type":"gptj","n_embd":4096,"n_head":16,"n_inner":null,"n_layer":28,
		"n_positions":2048,"resid_pdrop":0.0,"rotary":true,"rotary_dim":64,"scale_attn_weights":true,
		"summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,"summary_type":"cls_index",
		"summary_use_proj":true,"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},
		"tie_word_embeddings":false,"tokenizer_class":"GPT2Tokenizer","transformers_version":"4.18.0.dev0",
		"use_cache":true,"vocab_size":50400}`, 6050882784},
	"falcon-7b": {`{"alibi":false,"apply_residual_connection_post_layernorm":false,"architectures":["FalconForCausalLM"],
		"attention_dropout":0.0,"auto_map":{},"bias":false,"bos_token_id":11,"eos_token_id":11,"hidden_dropout":0.0,
		"hidden_size":4544,"initializer_range":0.02,"layer_norm_epsilon":1e-05,"model_type":"falcon","multi_query":true,
		"new_decoder_architecture":false,"num_attention_heads":71,"num_hidden_layers":32,"parallel_attn":true,
		"torch_dtype":"bfloat16","transformers_version":"4.27.4","use_cache":true,"vocab_size":65024}`, 6921720704},
	"starcoder2-3b": {`{"activation_function":"gelu","architectures":["Starcoder2ForCausalLM"],"attention_dropout":0.1,
		"attention_softmax_in_fp32":true,"residual_dropout":0.1,"embedding_dropout":0.1,"bos_token_id":0,"eos_token_id":0,
		"hidden_act":"gelu_pytorch_tanh","hidden_size":3072,"initializer_range":0.018042,"intermediate_size":12288,
		"layer_norm_epsilon":1e-05,"scale_attention_softmax_in_fp32":true,"scale_attn_weights":true,
		"max_position_embeddings":16384,"mlp_type":"default",
		"model_type":"starcoder2","norm_epsilon":1e-05,"norm_type":"layer_norm","num_attention_heads":24,
		"num_hidden_layers":30,"num_key_value_heads":2,"rope_theta":999999.4420358813,"sliding_window":4096,
		"torch_dtype":"bfloat16","transformers_version":"4.37.0.dev0","use_bias":true,"use_cache":true,"vocab_size":49152}`,
		3030371328},
	"SmolLM3-3B": {`{"architectures":["SmolLM3ForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":null,"eos_token_id":128012,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
		"intermediate_size":11008,"max_position_embeddings":65536,"max_window_layers":28,"mlp_bias":false,
		"model_type":"smollm3","no_rope_layer_interval":4,"num_attention_heads":16,"num_hidden_layers":36,
		"num_key_value_heads":4,"pad_token_id":128012,"pretraining_tp":2,"rms_norm_eps":1e-06,"rope_scaling":null,
		"rope_theta":5000000.0,"sliding_window":null,"torch_dtype":"bfloat16","transformers_version":"4.54.0.dev0",
		"use_cache":false,"use_sliding_window":false,"vocab_size":128256}`, 3075098624},
	"stablelm-2-1_6b": {`{"architectures":["StableLmForCausalLM"],"bos_token_id":100257,"eos_token_id":100257,
		"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,"intermediate_size":5632,
		"max_position_embeddings":4096,"model_type":"stablelm","layer_norm_eps":1e-05,"num_attention_heads":32,
		"num_hidden_layers":24,"num_key_value_heads":32,"partial_rotary_factor":0.25,"rope_theta":10000,
		"tie_word_embeddings":false,"torch_dtype":"float16","transformers_version":"4.38.0","use_cache":true,
		"use_qkv_bias":true,"vocab_size":100352}`, 1644515328},
	"c4ai-command-r-v01": {`{"architectures":["CohereForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"bos_token_id":5,"eos_token_id":255001,"hidden_act":"silu","hidden_size":8192,"initializer_range":0.02,
		"intermediate_size":22528,"layer_norm_eps":1e-05,"logit_scale":0.0625,"max_position_embeddings":8192,
		"model_max_length":131072,"model_type":"cohere","num_attention_heads":64,"num_hidden_layers":40,
		"num_key_value_heads":64,"pad_token_id":0,"pretraining_tp":1,"rope_theta":8000000.0,"torch_dtype":"float16",
		"transformers_version":"4.38.2","use_cache":true,"vocab_size":256000}`, 34980831232},
	"mpt-7b": {`{"architectures":["MPTForCausalLM"],"attn_config":{"alibi":true,"alibi_bias_max":8,"attn_impl":"torch",
		"attn_pdrop":0,"attn_type":"multihead_attention","attn_uses_sequence_id":false,"clip_qkv":null,"prefix_lm":false,
		"qk_ln":false,"softmax_scale":null},"auto_map":{},"d_model":4096,"emb_pdrop":0,"embedding_fraction":1.0,
		"expansion_ratio":4,"init_config":{"emb_init_std":null},"init_device":"cpu","learned_pos_emb":true,
		"logit_scale":null,"max_seq_len":2048,"model_type":"mpt","n_heads":32,"n_layers":32,"no_bias":true,
		"norm_type":"low_precision_layernorm","resid_pdrop":0,"tokenizer_name":"EleutherAI/gpt-neox-20b",
		"torch_dtype":"bfloat16","transformers_version":"4.28.1","use_cache":false,"verbose":0,"vocab_size":50432}`, 6649286656},
	"gpt-neo-125m": {`{"activation_function":"gelu_new","architectures":["GPTNeoForCausalLM"],"attention_dropout":0,
		"attention_layers":["global","local","global","local","global","local","global","local","global","local","global","local"],
		"attention_types":[[["global","local"],6]],"bos_token_id":50256,"embed_dropout":0,"eos_token_id":50256,
		"gradient_checkpointing":false,"hidden_size":768,"initializer_range":0.02,"intermediate_size":null,
		"layer_norm_epsilon":1e-05,"max_position_embeddings":2048,"model_type":"gpt_neo","num_heads":12,"num_layers":12,
		"resid_dropout":0,"summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,
		"summary_type":"cls_index","summary_use_proj":true,"torch_dtype":"float32","transformers_version":"4.9.2",
		"use_cache":true,"vocab_size":50257,"window_size":256}`, 125198592},
	"OLMoE-1B-7B-0924": {`{"architectures":["OlmoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
		"clip_qkv":null,"eos_token_id":50279,"hidden_act":"silu","hidden_size":2048,"initializer_range":0.02,
		"intermediate_size":1024,"max_position_embeddings":4096,"model_type":"olmoe","norm_topk_prob":false,
		"num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":16,
		"num_key_value_heads":16,"output_router_logits":false,"pad_token_id":1,"rms_norm_eps":1e-05,"rope_scaling":null,
		"rope_theta":10000.0,"router_aux_loss_coef":0.01,"tie_word_embeddings":false,"torch_dtype":"bfloat16",
		"transformers_version":"4.43.0.dev0","use_cache":true,"vocab_size":50304}`, 6919161856},
}

func TestPublishedFamilies(t *testing.T) {
	for name, c := range publishedFamilies {
		t.Run(name, func(t *testing.T) {
			bare, err := ParseConfig([]byte(c.config), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			ix := fill(&bare)
			s, err := ParseConfig([]byte(c.config), nil, ix)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(s, bare) {
				t.Errorf("an index made from the spec changes it:\n%+v\n%+v", bare, s)
			}
			var params int64
			for _, tensor := range ix.Tensors {
				params += tensor.Elems()
			}
			if params != c.params {
				t.Errorf("%d parameters, want %d", params, c.params)
			}
		})
	}
}

// older rewrites a config in the dialect of repositories from before rope_parameters.
func older(t *testing.T, config []byte) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	c["torch_dtype"] = c["dtype"]
	delete(c, "dtype")
	if rope, ok := c["rope_parameters"].(map[string]any); ok && rope["rope_theta"] != nil {
		delete(c, "rope_parameters")
		c["rope_theta"] = rope["rope_theta"]
		delete(rope, "rope_theta")
		if partial, ok := rope["partial_rotary_factor"]; ok {
			c["partial_rotary_factor"] = partial
			delete(rope, "partial_rotary_factor")
		}
		c["rope_scaling"] = nil
		if rope["rope_type"] != "default" {
			rope["type"] = rope["rope_type"]
			delete(rope, "rope_type")
			c["rope_scaling"] = rope
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFamilyDialects: the config of every family means the same in the older dialect, and none is understood with a key that
// nobody knows.
func TestFamilyDialects(t *testing.T) {
	dirs, err := filepath.Glob("../testdata/families/*")
	if err != nil || len(dirs) < 14 {
		t.Fatalf("found %d family folders: %v", len(dirs), err)
	}
	seen := make(map[string]bool)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			config, ix := readFile(t, filepath.Join(dir, "config.json")), readIndex(t, dir)
			newer, err := ParseConfig(config, nil, ix)
			if err != nil {
				t.Fatal(err)
			}
			seen[newer.Family] = true
			got, err := ParseConfig(older(t, config), nil, ix)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, newer) {
				t.Errorf("the older dialect gives\n%+v\nthe newer\n%+v", got, newer)
			}
			bare, err := ParseConfig(config, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			bare.ScaleBlock, bare.bare = newer.ScaleBlock, newer.bare
			if !reflect.DeepEqual(bare, newer) {
				t.Errorf("without an index\n%+v\nwith one\n%+v", bare, newer)
			}
			odd := strings.Replace(string(config), "{", `{"attention_swirl": 3,`, 1)
			if _, err := ParseConfig([]byte(odd), nil, ix); err == nil || !strings.Contains(err.Error(), `"attention_swirl"`) {
				t.Errorf("a key that nobody knows: %v", err)
			}
			extra := &Index{Tensors: maps.Clone(ix.Tensors)}
			extra.Tensors["model.layers.0.swirl.weight"] = Tensor{Name: "model.layers.0.swirl.weight", DType: F32, Shape: []int{1}}
			if _, err := ParseConfig(config, nil, extra); err == nil || !strings.Contains(err.Error(), "swirl") {
				t.Errorf("a tensor that nobody knows: %v", err)
			}
		})
	}
	for _, f := range Families() {
		if !seen[f.Name] {
			t.Errorf("family %s has no model in testdata/families", f.Name)
		}
	}
}

// TestLayers tells the layers of models whose layers differ.
func TestLayers(t *testing.T) {
	spec := func(name string) *Spec {
		s, err := parseFolder(t, filepath.Join("../testdata/families", name))
		if err != nil {
			t.Fatal(err)
		}
		return &s
	}
	for _, c := range []struct {
		model  string
		layer  int
		window int
		theta  float64 // 0: no rotary positions
		moe    bool
		dense  bool
	}{
		{"mistral", 3, 16, 1e4, false, true},
		{"gemma2", 0, 16, 1e4, false, true},
		{"gemma2", 1, 0, 1e4, false, true},
		{"gemma3-global", 1, 8, 1e4, false, true},
		{"gemma3-global", 2, 0, 1e6, false, true},
		{"qwen2-window", 0, 0, 1e4, false, true},
		{"qwen2-window", 1, 8, 1e4, false, true},
		{"smollm3", 0, 0, 2e6, false, true},
		{"smollm3", 1, 0, 0, false, true},
		{"cohere2", 0, 8, 1e4, false, true},
		{"cohere2", 2, 0, 0, false, true},
		{"gpt_neo", 1, 8, 0, false, true},
		{"bloom", 0, 0, 0, false, true},
		{"mixtral", 0, 0, 1e6, true, false},
		{"qwen3_moe-mixed", 0, 0, 1e4, true, false},
		{"qwen3_moe-mixed", 1, 0, 1e4, false, true},
		{"granitemoeshared", 1, 0, 1e4, true, true},
	} {
		l := spec(c.model).Layer(c.layer)
		theta := 0.0
		if l.Rope != nil {
			theta = l.Rope.RopeTheta
		}
		if l.Window != c.window || theta != c.theta || l.Experts != c.moe || l.Dense != c.dense {
			t.Errorf("%s, layer %d: window %d, theta %g, experts %v, dense %v; want %+v", c.model, c.layer, l.Window, theta, l.Experts, l.Dense, c)
		}
	}
	roles := spec("qwen3_moe-mixed").LayerRoles(0)
	if !slices.Contains(roles, RoleExpertDown) || slices.Contains(roles, RoleDown) {
		t.Errorf("roles of a mixture: %v", roles)
	}
	if n := len(spec("qwen3_moe").WeightNames(RoleExpertUp, 2)); n != 8 {
		t.Errorf("%d tensors of 8 experts", n)
	}
}

func TestProperties(t *testing.T) {
	for name, want := range map[string]string{
		"llama":           "",
		"gemma3-global":   "norms before and after attention and feed-forward; norms count from one; norm of queries and keys over the head; window of 8 in layers 0, 1; rotary theta 10000 in them; embedding times 5.6569",
		"cohere2":         "attention and feed-forward in parallel; window of 8 in layers 0, 1; no rotary positions in layer 2; logits times 0.25",
		"qwen3_moe-mixed": "norm of queries and keys over the head; 4 experts of 24, 2 a token; no experts in layer 1",
		"bloom":           "norm of the embedding; ALiBi",
		"olmo2":           "norms after attention and feed-forward; norm of queries and keys over the width",
		"mistral":         "window of 16 in all layers",
	} {
		s, err := parseFolder(t, filepath.Join("../testdata/families", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(s.Properties(), "; "); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
}

// TestQKVRows covers every row of the fused matrix once.
func TestQKVRows(t *testing.T) {
	for _, c := range []struct {
		order              string
		heads, kv, headDim int
		q, k, v            []Rows
	}{
		{"", 4, 2, 8, []Rows{{0, 32}}, []Rows{{32, 16}}, []Rows{{48, 16}}},
		{qkvGrouped, 4, 2, 8, []Rows{{0, 16}, {32, 16}}, []Rows{{16, 8}, {48, 8}}, []Rows{{24, 8}, {56, 8}}},
		{qkvBlocks, 4, 4, 2, []Rows{{0, 2}, {6, 2}, {12, 2}, {18, 2}}, []Rows{{4, 2}, {10, 2}, {16, 2}, {22, 2}}, []Rows{{2, 2}, {8, 2}, {14, 2}, {20, 2}}},
	} {
		s := Spec{QKVOrder: c.order, Heads: c.heads, KVHeads: c.kv, HeadDim: c.headDim}
		q, k, v := s.QKVRows()
		if !slices.Equal(q, c.q) || !slices.Equal(k, c.k) || !slices.Equal(v, c.v) {
			t.Errorf("%q: %v %v %v", c.order, q, k, v)
		}
	}
}

func TestALiBiSlopes(t *testing.T) {
	for _, c := range []struct {
		style string
		heads int
		want  []float32
	}{
		{alibiPress, 4, []float32{0.25, 0.0625, 0.015625, 0.00390625}},
		{alibiPress, 6, []float32{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
		{alibiMPT, 6, []float32{0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125}},
		{alibiPress, 3, []float32{0.0625, 0.00390625, 0.25}},
		{alibiMPT, 3, []float32{0.0625, 0.00390625, 0.25}},
		{alibiPress, 1, []float32{0.00390625}},
	} {
		s := Spec{Heads: c.heads, ALiBi: true, ALiBiStyle: c.style, ALiBiMax: 8}
		if got := s.ALiBiSlopes(); !slices.Equal(got, c.want) {
			t.Errorf("%s, %d heads: %v, want %v", c.style, c.heads, got, c.want)
		}
	}
	if (&Spec{}).ALiBiSlopes() != nil {
		t.Error("slopes without ALiBi")
	}
}

func TestF8(t *testing.T) {
	for bits, want := range map[byte]float32{
		0: 0, 0x01: 1.0 / 512, 0x07: 7.0 / 512, 0x08: 1.0 / 64, 0x38: 1, 0x39: 1.125, 0x40: 2, 0x7e: 448, 0xb8: -1, 0xfe: -448,
	} {
		var got [1]float32
		fromF8(got[:], []byte{bits})
		if got[0] != want {
			t.Errorf("%#x is %g, want %g", bits, got[0], want)
		}
	}
	if v := f8Values[0x7f]; v == v {
		t.Errorf("0x7f is %g", v)
	}
	s := blockScales{scales: []float32{1, 10, 100, 1000, 2, 20, 200, 2000}, n: 3, k: 3, rows: 2, cols: 2}
	dst := make([]float32, 18)
	for i := range dst {
		dst[i] = 1
	}
	s.apply(0, dst[:4])
	s.apply(4, dst[4:])
	want := []float32{1, 1, 10, 1, 1, 10, 100, 100, 1000, 2, 2, 20, 2, 2, 20, 200, 200, 2000}
	if !slices.Equal(dst, want) {
		t.Errorf("scales %v, want %v", dst, want)
	}

	config, ix := readFile(t, "../testdata/families/llama-fp8/config.json"), readIndex(t, "../testdata/families/llama-fp8")
	const name = "model.layers.1.mlp.up_proj.weight"
	plain := strings.Replace(string(config), `"quantization_config"`, `"_name_or_path"`, 1)
	for _, c := range []struct {
		config []byte
		ix     *Index
		want   string
	}{
		{[]byte(plain), ix, "F8_E4M3, but config has no scales for it"},
		{config, edit(ix, name+"_scale_inv", nil), `"` + name + `_scale_inv" is missing`},
		{config, edit(ix, name+"_scale_inv", []int{1, 2}), `has shape [1 2], config says [2 2]`},
	} {
		if _, err := ParseConfig(c.config, nil, c.ix); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	one := &Index{Tensors: maps.Clone(ix.Tensors)}
	for name, tensor := range one.Tensors {
		if strings.HasSuffix(name, scaleEnding) {
			tensor.Shape = nil
			one.Tensors[name] = tensor
			one.Tensors[strings.TrimSuffix(name, "weight"+scaleEnding)+"activation_scale"] = tensor
		}
	}
	if _, err := ParseConfig([]byte(strings.Replace(string(config), "128,", "null,", 1)), nil, one); err == nil {
		t.Error("a block size of null and 128 is accepted")
	}
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	c["quantization_config"].(map[string]any)["weight_block_size"] = nil
	whole, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseConfig(whole, nil, one); err != nil {
		t.Errorf("one scale a matrix: %v", err)
	}
}
