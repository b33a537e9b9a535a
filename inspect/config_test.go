package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// readIndex reads the headers of every safetensors file of a testdata folder: names, types and shapes only.
func readIndex(t testing.TB, dir string) *Index {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if len(files) == 0 {
		t.Fatalf("no safetensors in %s", dir)
	}
	ix := &Index{Tensors: make(map[string]Tensor)}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := binary.LittleEndian.Uint64(b)
		var header map[string]struct {
			DType DType
			Shape []int
		}
		if err := json.Unmarshal(b[8:8+n], &header); err != nil {
			t.Fatal(err)
		}
		delete(header, "__metadata__")
		for name, h := range header {
			ix.Tensors[name] = Tensor{Name: name, DType: h.DType, Shape: h.Shape}
		}
	}
	return ix
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parseFolder parses the config of a testdata folder with its own index.
func parseFolder(t testing.TB, dir string) (Spec, error) {
	t.Helper()
	return ParseConfig(readFile(t, filepath.Join(dir, "config.json")),
		readFile(t, filepath.Join(dir, "generation_config.json")), readIndex(t, dir))
}

// fill makes the index that a spec asks for: every tensor in its shape, biases included.
func fill(s *Spec) *Index {
	ix := &Index{Tensors: make(map[string]Tensor)}
	put := func(role Role, layer int) {
		for _, name := range s.WeightNames(role, layer) {
			ix.Tensors[name] = Tensor{Name: name, DType: BF16, Shape: s.Shape(role)}
		}
		if name := s.BiasName(role, layer); name != "" {
			n, _ := s.Dims(role)
			ix.Tensors[name] = Tensor{Name: name, DType: BF16, Shape: []int{n}}
		}
	}
	embed, readout := s.HeadRoles()
	for _, role := range append(embed, readout...) {
		put(role, 0)
	}
	for layer := range s.Layers {
		for _, role := range s.LayerRoles(layer) {
			put(role, layer)
		}
	}
	return ix
}

func TestParseConfigFolders(t *testing.T) {
	want := map[string]string{
		"tales-gpt2": `{"family":"gpt2","layers":6,"hidden":192,"heads":6,"kvHeads":6,"headDim":32,"inter":768,"vocab":3072,"maxPos":512,` +
			`"norm":"ln","normEps":0.00001,"act":"gelu_tanh","gated":false,"rope":false,"ropeTheta":0,"ropeScaling":"none","learnedPos":true,` +
			`"attnScale":0.17677669529663687,"tie":true,"qkvFused":true,"bias":true,"weightLayout":"in_out","bos":[0],"eos":[0]}`,
		"tales-llama": `{"family":"llama","layers":6,"hidden":160,"heads":5,"kvHeads":5,"headDim":32,"inter":432,"vocab":3072,"maxPos":1024,` +
			`"norm":"rms","normEps":0.00001,"act":"silu","gated":true,"rope":true,"ropeTheta":10000,"ropeScaling":"none","rotaryDim":32,` +
			`"attnScale":0.17677669529663687,"tie":false,"qkvFused":false,"bias":false,"weightLayout":"out_in","bos":[0],"eos":[0]}`,
		"tales-qwen2": `{"family":"qwen2","layers":8,"hidden":192,"heads":3,"kvHeads":1,"headDim":64,"inter":512,"vocab":3072,"maxPos":1024,` +
			`"norm":"rms","normEps":0.000001,"act":"silu","gated":true,"rope":true,"ropeTheta":1000000,"ropeScaling":"none","rotaryDim":64,` +
			`"attnScale":0.125,"tie":true,"qkvFused":false,"bias":true,"weightLayout":"out_in","bos":[0],"eos":[0]}`,
		"families/gpt2": `{"family":"gpt2","layers":4,"hidden":64,"heads":4,"kvHeads":4,"headDim":16,"inter":256,"vocab":320,"maxPos":256,` +
			`"norm":"ln","normEps":0.00001,"act":"gelu_tanh","gated":false,"rope":false,"ropeTheta":0,"ropeScaling":"none","learnedPos":true,` +
			`"attnScale":0.25,"tie":true,"qkvFused":true,"bias":true,"weightLayout":"in_out","bos":[0],"eos":[1]}`,
		"families/llama": `{"family":"llama","layers":4,"hidden":64,"heads":4,"kvHeads":2,"headDim":16,"inter":176,"vocab":320,"maxPos":256,` +
			`"norm":"rms","normEps":0.000001,"act":"silu","gated":true,"rope":true,"ropeTheta":10000,"ropeScaling":"none","rotaryDim":16,` +
			`"attnScale":0.25,"tie":false,"qkvFused":false,"bias":false,"weightLayout":"out_in","bos":[0],"eos":[1]}`,
		"families/qwen2": `{"family":"qwen2","layers":4,"hidden":64,"heads":4,"kvHeads":2,"headDim":16,"inter":176,"vocab":320,"maxPos":256,` +
			`"norm":"rms","normEps":0.000001,"act":"silu","gated":true,"rope":true,"ropeTheta":10000,"ropeScaling":"none","rotaryDim":16,` +
			`"attnScale":0.25,"tie":true,"qkvFused":false,"bias":true,"weightLayout":"out_in","bos":[0],"eos":[1]}`,
	}
	for name, want := range want {
		t.Run(name, func(t *testing.T) {
			s, err := parseFolder(t, filepath.Join("../testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(&s)
			if err != nil {
				t.Fatal(err)
			}
			if string(b) != want {
				t.Errorf("have %s\nwant %s", b, want)
			}
		})
	}
}

func TestTensorNames(t *testing.T) {
	s, err := parseFolder(t, "../testdata/tales-gpt2")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		role  Role
		layer int
		want  string
	}{
		{RoleQKV, 3, "transformer.h.3.attn.c_attn"},
		{RoleLMHead, 0, "transformer.wte"}, // tied
		{RolePosEmbed, 5, "transformer.wpe"},
		{RoleQ, 0, ""},
	} {
		if got := s.Tensor(c.role, c.layer); got != c.want {
			t.Errorf("Tensor(%s, %d) = %q, want %q", c.role, c.layer, got, c.want)
		}
	}
	if got, want := s.LayerRoles(0), []Role{RoleAttnNorm, RoleQKV, RoleO, RoleMLPNorm, RoleUp, RoleDown}; !slices.Equal(got, want) {
		t.Errorf("LayerRoles() = %v, want %v", got, want)
	}
	embed, readout := s.HeadRoles()
	if !slices.Equal(embed, []Role{RoleEmbed, RolePosEmbed}) || !slices.Equal(readout, []Role{RoleFinalNorm, RoleLMHead}) {
		t.Errorf("HeadRoles() = %v, %v", embed, readout)
	}
	if got := s.Shape(RoleDown); !slices.Equal(got, []int{768, 192}) {
		t.Errorf("Shape(down) = %v, want in x out", got)
	}
}

// TestPublishedConfigs holds the configs of well-known repositories, as their authors wrote them, against the sizes that
// their model cards state.
func TestPublishedConfigs(t *testing.T) {
	for name, c := range publishedConfigs {
		t.Run(name, func(t *testing.T) {
			bare, err := ParseConfig([]byte(c.config), []byte(c.generation), nil)
			if err != nil {
				t.Fatal(err)
			}
			ix := fill(&bare)
			s, err := ParseConfig([]byte(c.config), []byte(c.generation), ix)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(s, bare) {
				t.Errorf("an index made from the spec changes it:\n%+v\n%+v", bare, s)
			}
			var params int64
			for _, tensor := range ix.Tensors {
				n := int64(1)
				for _, d := range tensor.Shape {
					n *= int64(d)
				}
				params += n
			}
			if params != c.params {
				t.Errorf("%d parameters, want %d", params, c.params)
			}
			if !slices.Equal(s.EOS, c.eos) {
				t.Errorf("eos %v, want %v", s.EOS, c.eos)
			}
		})
	}
}

// edit returns an index with one tensor changed; a nil shape removes it.
func edit(ix *Index, name string, shape []int) *Index {
	out := &Index{Tensors: maps.Clone(ix.Tensors)}
	delete(out.Tensors, name)
	if shape != nil {
		out.Tensors[name] = Tensor{Name: name, DType: F32, Shape: shape}
	}
	return out
}

func TestParseConfigErrors(t *testing.T) {
	qwen := string(readFile(t, "../testdata/families/qwen2/config.json"))
	llama := string(readFile(t, "../testdata/families/llama/config.json"))
	gpt2 := string(readFile(t, "../testdata/families/gpt2/config.json"))
	// with sets one member of a config.
	with := func(config, name, value string) string {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(config), &m); err != nil {
			t.Fatal(err)
		}
		m[name] = json.RawMessage(value)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ config, want string }{
		{"", "config.json"},
		{"null", "not a JSON object"},
		{"[]", "config.json"},
		{"{}", "names no architecture"},
		{`{"architectures":["MambaForCausalLM"],"model_type":"mamba"}`,
			`architecture "MambaForCausalLM" (model_type "mamba") is not supported; supported model types are llama, mistral, `},
		{with(qwen, "architectures", `["Qwen2ForSequenceClassification"]`), `"Qwen2ForSequenceClassification"`},
		{with(qwen, "architectures", `"x"`), `"architectures"`},
		{with(qwen, "model_type", `"llama"`), `model_type "llama"`},
		{with(qwen, "logit_scale", "0.5"), `config key "logit_scale" is not understood for qwen2, refusing to guess`},
		{with(qwen, "quantization_config", `{"bits":4}`), `"quantization_config"`},
		{with(qwen, "num_hidden_layers", "null"), `"num_hidden_layers" is missing`},
		{with(qwen, "num_hidden_layers", "0"), `"num_hidden_layers": 0 is outside 1 to`},
		{with(qwen, "num_hidden_layers", "-3"), `"num_hidden_layers"`},
		{with(qwen, "num_hidden_layers", "1e9"), `"num_hidden_layers"`},
		{with(qwen, "hidden_size", "99999999"), `"hidden_size": 99999999 is outside`},
		{with(qwen, "hidden_size", `"64"`), `"hidden_size": want an integer`},
		{with(qwen, "hidden_size", "66"), `"hidden_size": 66 is not a multiple of "num_attention_heads", 4`},
		{with(qwen, "num_key_value_heads", "3"), `"num_attention_heads": 4 is not a multiple of "num_key_value_heads", 3`},
		{with(llama, "head_dim", "15"), `head dimension 15`},
		{with(llama, "head_dim", "4096"), ""},
		{with(qwen, "hidden_act", `"mish"`), `"hidden_act": activation "mish" is not supported`},
		{with(qwen, "rms_norm_eps", "0"), `"rms_norm_eps"`},
		{with(qwen, "rms_norm_eps", `"x"`), `"rms_norm_eps": want a number`},
		{with(qwen, "use_sliding_window", "1"), `"use_sliding_window": want true or false`},
		{with(qwen, "sliding_window", "-1"), `"sliding_window": -1 is outside`},
		{with(qwen, "layer_types", `["full_attention","sliding_attention"]`), `"layer_types": 2 layers are listed, the model has 4`},
		{with(qwen, "layer_types", `["full_attention","sliding_attention","full_attention","full_attention"]`),
			`"layer_types": layer 1 is "sliding_attention", but no "sliding_window" is in force`},
		{with(llama, "layer_types", `["full_attention","sliding_attention","full_attention","full_attention"]`),
			`"layer_types": layer 1 is "sliding_attention", only "full_attention" is supported for llama`},
		{with(qwen, "layer_types", `["full_attention","chunked_attention","full_attention","full_attention"]`),
			`"layer_types": layer 1 is "chunked_attention"`},
		{with(qwen, "tie_word_embeddings", "1"), `"tie_word_embeddings": want true or false`},
		{with(qwen, "eos_token_id", "320"), `320`},
		{with(qwen, "eos_token_id", "-1"), `"eos_token_id": token id -1 is negative`},
		{with(qwen, "eos_token_id", `"x"`), `"eos_token_id"`},
		{with(qwen, "eos_token_id", `[1,"x"]`), `"eos_token_id"`},
		{with(qwen, "rope_theta", "0.5"), `"rope_theta": 0.5 is outside`},
		{with(qwen, "rope_theta", "20000"), `"rope_theta": 20000 contradicts the 10000 of rope_parameters`},
		{with(qwen, "rope_parameters", `{"rope_type":"ntk","factor":4}`), `rope type "ntk" is not supported`},
		{with(qwen, "rope_parameters", `{"rope_type":"mrope","mrope_section":[16]}`), `rope type "mrope" is not supported`},
		{with(qwen, "rope_parameters", `{"rope_type":"yarn"}`), `rope type "yarn" needs "factor"`},
		{with(qwen, "rope_parameters", `{"rope_type":"yarn","factor":4,"truncate":1}`), `"truncate": want true or false`},
		{with(qwen, "rope_parameters", `{"rope_type":"linear"}`), `rope type "linear" needs "factor"`},
		{with(qwen, "rope_parameters", `{"rope_type":"dynamic","factor":2,"beta_fast":1}`), `"beta_fast" is not understood`},
		{with(qwen, "rope_parameters", `{"rope_type":"longrope","short_factor":[1]}`), `_factor" has`},
		{with(qwen, "rope_parameters", `{"rope_type":"longrope","short_factor":{}}`), `"short_factor": want a list of numbers`},
		{with(qwen, "rope_parameters", `{"full_attention":{"rope_type":"default"},"factor":2}`), `"factor" is not understood beside`},
		{with(qwen, "rope_parameters", `{"full_attention":{"rope_type":"ntk"}}`), `"full_attention": rope type "ntk"`},
		{with(qwen, "rope_scaling", `{"rope_type":"linear","factor":2}`), `contradict each other`},
		{with(qwen, "rope_scaling", `{"rope_type":"default","mrope_section":[1]}`), `"mrope_section" is not understood`},
		{with(qwen, "rope_scaling", `{"rope_type":7}`), `"rope_type"`},
		{with(qwen, "rope_scaling", `7`), `"rope_scaling": want an object`},
		{with(llama, "rope_scaling", `{"rope_type":"llama3","factor":8}`), `needs "low_freq_factor"`},
		{with(llama, "rope_parameters", `{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":64}`),
			`must exceed`},
		{with(llama, "rope_scaling", `{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":64}`),
			`contradict each other`},
		{with(qwen, "quantization_config", `{"quant_method":"fp8","weight_block_size":[128]}`), `"quantization_config": weights quantised by "fp8" are not supported`},
		{with(qwen, "quantization_config", `{"quant_method":"gptq","bits":4}`), `"quantization_config": weights quantised by "gptq" are not supported`},
		{with(llama, "partial_rotary_factor", "0.5"), `"partial_rotary_factor"`},
		{with(llama, "rope_interleaved", "true"), `"rope_interleaved"`},
		{with(gpt2, "activation_function", `"quick_gelu"`), `activation "quick_gelu" is not supported`},
		{with(gpt2, "scale_attn_by_inverse_layer_idx", "1"), `"scale_attn_by_inverse_layer_idx"`},
		{with(gpt2, "scale_attn_weights", "1"), `"scale_attn_weights"`},
		{with(gpt2, "add_cross_attention", "true"), `"add_cross_attention"`},
		{with(gpt2, "pruned_heads", `{"0":[1]}`), `"pruned_heads"`},
		{with(gpt2, "n_embd", "131000"), `feed-forward width`},
	} {
		_, err := ParseConfig([]byte(c.config), nil, nil)
		switch {
		case err == nil && c.want != "":
			t.Errorf("%.300s\nwas accepted, want an error with %q", c.config, c.want)
		case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%.300s\nerror %q, want one with %q", c.config, err, c.want)
		}
	}
	if _, err := ParseConfig([]byte(qwen), []byte("{"), nil); err == nil || !strings.Contains(err.Error(), "generation_config.json") {
		t.Errorf("broken generation_config.json: %v", err)
	}
}

func TestEvidence(t *testing.T) {
	config := readFile(t, "../testdata/families/gpt2/config.json")
	ix := readIndex(t, "../testdata/families/gpt2")
	parse := func(ix *Index) (Spec, error) { return ParseConfig(config, nil, ix) }

	t.Run("bare names", func(t *testing.T) {
		bare := &Index{Tensors: make(map[string]Tensor)}
		for name, tensor := range ix.Tensors {
			bare.Tensors[strings.TrimPrefix(name, "transformer.")] = tensor
		}
		bare.Tensors["h.0.attn.bias"] = Tensor{Name: "h.0.attn.bias", DType: F32, Shape: []int{1, 1, 256, 256}}
		s, err := parse(bare)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Tensor(RoleQKV, 2); got != "h.2.attn.c_attn" {
			t.Errorf("QKV of layer 2 is %q", got)
		}
	})
	t.Run("out x in", func(t *testing.T) {
		turned := &Index{Tensors: make(map[string]Tensor)}
		for name, tensor := range ix.Tensors {
			if strings.Contains(name, ".c_") && strings.HasSuffix(name, ".weight") {
				tensor.Shape = []int{tensor.Shape[1], tensor.Shape[0]}
			}
			turned.Tensors[name] = tensor
		}
		s, err := parse(turned)
		if err != nil {
			t.Fatal(err)
		}
		if s.WeightLayout != "out_in" {
			t.Errorf("layout %q", s.WeightLayout)
		}
	})
	t.Run("no bias", func(t *testing.T) {
		few := &Index{Tensors: make(map[string]Tensor)}
		for name, tensor := range ix.Tensors {
			if !strings.Contains(name, ".c_") || !strings.HasSuffix(name, ".bias") {
				few.Tensors[name] = tensor
			}
		}
		s, err := parse(few)
		if err != nil {
			t.Fatal(err)
		}
		if s.Bias || s.Biased(RoleQKV) || !s.Biased(RoleAttnNorm) {
			t.Errorf("bias %v, of qkv %v, of norm %v", s.Bias, s.Biased(RoleQKV), s.Biased(RoleAttnNorm))
		}
	})
	t.Run("tie", func(t *testing.T) {
		untied := bytes.Replace(config, []byte(`"tie_word_embeddings": true`), []byte(`"tie_word_embeddings": false`), 1)
		head := edit(ix, "lm_head.weight", []int{320, 64})
		for _, c := range []struct {
			config []byte
			ix     *Index
			tie    bool
		}{{config, ix, true}, {config, head, true}, {untied, ix, true}, {untied, head, false}} {
			s, err := ParseConfig(c.config, nil, c.ix)
			if err != nil {
				t.Fatal(err)
			}
			if s.Tie != c.tie {
				t.Errorf("tie is %v, want %v", s.Tie, c.tie)
			}
		}
	})
	for _, c := range []struct {
		ix   *Index
		want string
	}{
		{edit(ix, "transformer.wte.weight", nil), `tensor "transformer.wte.weight" is missing`},
		{edit(ix, "wte.weight", []int{320, 64}), "are both there"},
		{edit(ix, "transformer.h.3.ln_2.weight", nil), `tensor "transformer.h.3.ln_2.weight" is missing`},
		{edit(ix, "transformer.h.2.mlp.c_fc.bias", nil), `tensor "transformer.h.2.mlp.c_fc.bias" is missing, though layer 0 has it`},
		{edit(ix, "transformer.h.1.mlp.c_fc.weight", []int{64, 255}), `"transformer.h.1.mlp.c_fc.weight" has shape [64 255], config says [64 256]`},
		{edit(ix, "transformer.h.1.mlp.c_fc.weight", []int{256, 64}), "is stored out x in but"},
		{edit(ix, "transformer.h.1.ln_1.bias", []int{63}), `"transformer.h.1.ln_1.bias" has shape [63]`},
		{edit(ix, "transformer.h.4.ln_1.weight", []int{64}), `tensor "transformer.h.4.ln_1.weight" is not understood`},
		{edit(ix, "transformer.h.0.attn.q_norm.weight", []int{16}), `tensor "transformer.h.0.attn.q_norm.weight" is not understood`},
		{&Index{}, "is missing"},
	} {
		if _, err := parse(c.ix); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
	bad := edit(ix, "transformer.ln_f.weight", []int{64})
	bad.Tensors["transformer.ln_f.weight"] = Tensor{DType: "I8", Shape: []int{64}}
	if _, err := parse(bad); err == nil || !strings.Contains(err.Error(), "has type I8") {
		t.Errorf("an int8 tensor: %v", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	dirs, err := filepath.Glob("../testdata/families/*")
	if err != nil || len(dirs) < 14 {
		f.Fatalf("found %d family folders: %v", len(dirs), err)
	}
	for _, dir := range dirs {
		f.Add(readFile(f, filepath.Join(dir, "config.json")))
	}
	for _, c := range publishedConfigs {
		f.Add([]byte(c.config))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		s, err := ParseConfig(config, config, nil)
		if err != nil {
			return
		}
		if s.Layers > 64 || s.Experts > 64 {
			return
		}
		s.InvFreq(1024)
		s.ALiBiSlopes()
		s.LinearDims()
		again, err := ParseConfig(config, config, fill(&s))
		if err != nil {
			t.Fatalf("refused with the index made from it: %v", err)
		}
		if !reflect.DeepEqual(again, s) {
			t.Fatalf("changed by the index made from it:\n%+v\n%+v", s, again)
		}
	})
}
