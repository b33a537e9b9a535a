package inspect

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// synthModel describes a synthetic model: its config.json in the dialect of published repositories, and the tensors
// such a repository holds.
type synthModel struct {
	family                string // "qwen2", "llama" or "gpt2"
	layers, hidden, inter int
	heads, kvHeads, vocab int
	maxPos                int
	tie                   bool
	bos, eos              string
	eps, theta            string
	extra                 string // further config lines, each ending in a comma
	headDim               int    // 0: hidden / heads
}

// syntheticModels has real shapes under the names of real models, and small ones for tests.
var syntheticModels = map[string]synthModel{
	"qwen2.5-0.5b": {family: "qwen2", layers: 24, hidden: 896, inter: 4864, heads: 14, kvHeads: 2, vocab: 151936,
		maxPos: 32768, tie: true, bos: "151643", eos: "151643", eps: "1e-06", theta: "1000000.0"},
	"qwen2.5-1.5b": {family: "qwen2", layers: 28, hidden: 1536, inter: 8960, heads: 12, kvHeads: 2, vocab: 151936,
		maxPos: 131072, tie: true, bos: "151643", eos: "151643", eps: "1e-06", theta: "1000000.0"},
	"qwen2.5-7b": {family: "qwen2", layers: 28, hidden: 3584, inter: 18944, heads: 28, kvHeads: 4, vocab: 152064,
		maxPos: 131072, bos: "151643", eos: "151643", eps: "1e-06", theta: "1000000.0"},
	"llama-3.2-1b": {family: "llama", layers: 16, hidden: 2048, inter: 8192, heads: 32, kvHeads: 8, vocab: 128256,
		maxPos: 131072, tie: true, bos: "128000", eos: "128001", eps: "1e-05", theta: "500000.0",
		extra: llama3Rope("32.0"), headDim: 64},
	"llama-3.1-8b": {family: "llama", layers: 32, hidden: 4096, inter: 14336, heads: 32, kvHeads: 8, vocab: 128256,
		maxPos: 131072, bos: "128000", eos: "128001", eps: "1e-05", theta: "500000.0", extra: llama3Rope("8.0")},
	"gpt2": {family: "gpt2", layers: 12, hidden: 768, heads: 12, vocab: 50257, maxPos: 1024, tie: true,
		bos: "50256", eos: "50256", eps: "1e-05"},

	"tiny": {family: "qwen2", layers: 4, hidden: 64, inter: 176, heads: 4, kvHeads: 2, vocab: 320,
		maxPos: 1024, tie: true, bos: "0", eos: "0", eps: "1e-06", theta: "10000.0"},
	"qwen2.5-tiny": {family: "qwen2", layers: 8, hidden: 256, inter: 704, heads: 4, kvHeads: 1, vocab: 4096,
		maxPos: 4096, tie: true, bos: "0", eos: "0", eps: "1e-06", theta: "1000000.0"},
	"llama-tiny": {family: "llama", layers: 4, hidden: 64, inter: 176, heads: 4, kvHeads: 2, vocab: 320,
		maxPos: 1024, bos: "0", eos: "1", eps: "1e-05", theta: "10000.0"},
	"gpt2-tiny": {family: "gpt2", layers: 4, hidden: 64, heads: 4, vocab: 320, maxPos: 1024, tie: true,
		bos: "0", eos: "0", eps: "1e-05"},
}

func llama3Rope(factor string) string {
	return `  "rope_scaling": {
    "factor": ` + factor + `,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
`
}

// config writes config.json as the makers of the model publish it.
func (m synthModel) config() string {
	if m.family == "gpt2" {
		return m.gpt2Config()
	}
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "  %q: %v,\n", key, value) }
	b.WriteString("{\n")
	arch := map[string]string{"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[m.family]
	line("architectures", fmt.Sprintf("[\n    %q\n  ]", arch))
	if m.family == "llama" {
		line("attention_bias", false)
	}
	line("attention_dropout", "0.0")
	line("bos_token_id", m.bos)
	line("eos_token_id", m.eos)
	if m.headDim != 0 {
		line("head_dim", m.headDim)
	}
	line("hidden_act", `"silu"`)
	line("hidden_size", m.hidden)
	line("initializer_range", 0.02)
	line("intermediate_size", m.inter)
	line("max_position_embeddings", m.maxPos)
	if m.family == "llama" {
		line("mlp_bias", false)
	} else {
		line("max_window_layers", m.layers)
	}
	line("model_type", `"`+m.family+`"`)
	line("num_attention_heads", m.heads)
	line("num_hidden_layers", m.layers)
	line("num_key_value_heads", m.kvHeads)
	if m.family == "llama" {
		line("pretraining_tp", 1)
	}
	line("rms_norm_eps", m.eps)
	b.WriteString(m.extra)
	line("rope_theta", m.theta)
	if m.family == "qwen2" {
		line("sliding_window", m.maxPos)
	}
	line("tie_word_embeddings", m.tie)
	line("torch_dtype", `"bfloat16"`)
	line("use_cache", true)
	if m.family == "qwen2" {
		line("use_mrope", false)
		line("use_sliding_window", false)
	}
	fmt.Fprintf(&b, "  \"vocab_size\": %d\n}\n", m.vocab)
	return b.String()
}

func (m synthModel) gpt2Config() string {
	return fmt.Sprintf(`{
  "activation_function": "gelu_new",
  "architectures": [
    "GPT2LMHeadModel"
  ],
  "attn_pdrop": 0.1,
  "bos_token_id": %s,
  "embd_pdrop": 0.1,
  "eos_token_id": %s,
  "initializer_range": 0.02,
  "layer_norm_epsilon": %s,
  "model_type": "gpt2",
  "n_ctx": %d,
  "n_embd": %d,
  "n_head": %d,
  "n_layer": %d,
  "n_positions": %d,
  "resid_pdrop": 0.1,
  "vocab_size": %d
}
`, m.bos, m.eos, m.eps, m.maxPos, m.hidden, m.heads, m.layers, m.maxPos, m.vocab)
}

// synthDef is a tensor before it has an offset.
type synthDef struct {
	name  string
	shape []int
	scale synthScale
}

var (
	normScale  = synthScale{1, 0.0625}
	biasScale  = synthScale{0, 0.0625}
	embedScale = synthScale{0, 0.02}
)

// linearScale keeps the variance of activations.
func linearScale(k int) synthScale { return synthScale{0, 1 / math.Sqrt(float64(k))} }

// tensors lists the tensors in the order of a published file: by name.
func (m synthModel) tensors() []synthDef {
	var defs []synthDef
	add := func(name string, scale synthScale, shape ...int) {
		defs = append(defs, synthDef{name, shape, scale})
	}
	if m.family == "gpt2" {
		m.gpt2Tensors(add)
	} else {
		m.llamaTensors(add)
	}
	slices.SortFunc(defs, func(a, b synthDef) int { return strings.Compare(a.name, b.name) })
	return defs
}

func (m synthModel) llamaTensors(add func(name string, scale synthScale, shape ...int)) {
	dim := m.headDim
	if dim == 0 {
		dim = m.hidden / m.heads
	}
	q, kv := m.heads*dim, m.kvHeads*dim
	add("model.embed_tokens.weight", embedScale, m.vocab, m.hidden)
	add("model.norm.weight", normScale, m.hidden)
	if !m.tie {
		add("lm_head.weight", linearScale(m.hidden), m.vocab, m.hidden)
	}
	for i := range m.layers {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", normScale, m.hidden)
		add(p+"post_attention_layernorm.weight", normScale, m.hidden)
		add(p+"self_attn.q_proj.weight", linearScale(m.hidden), q, m.hidden)
		add(p+"self_attn.k_proj.weight", linearScale(m.hidden), kv, m.hidden)
		add(p+"self_attn.v_proj.weight", linearScale(m.hidden), kv, m.hidden)
		add(p+"self_attn.o_proj.weight", linearScale(q), m.hidden, q)
		if m.family == "qwen2" {
			add(p+"self_attn.q_proj.bias", biasScale, q)
			add(p+"self_attn.k_proj.bias", biasScale, kv)
			add(p+"self_attn.v_proj.bias", biasScale, kv)
		}
		add(p+"mlp.gate_proj.weight", linearScale(m.hidden), m.inter, m.hidden)
		add(p+"mlp.up_proj.weight", linearScale(m.hidden), m.inter, m.hidden)
		add(p+"mlp.down_proj.weight", linearScale(m.inter), m.hidden, m.inter)
	}
}

func (m synthModel) gpt2Tensors(add func(name string, scale synthScale, shape ...int)) {
	h := m.hidden
	linear := func(name string, in, out int) {
		add(name+".weight", linearScale(in), in, out)
		add(name+".bias", biasScale, out)
	}
	norm := func(name string) {
		add(name+".weight", normScale, h)
		add(name+".bias", biasScale, h)
	}
	add("wte.weight", embedScale, m.vocab, h)
	add("wpe.weight", embedScale, m.maxPos, h)
	norm("ln_f")
	for i := range m.layers {
		p := fmt.Sprintf("h.%d.", i)
		norm(p + "ln_1")
		norm(p + "ln_2")
		linear(p+"attn.c_attn", h, 3*h)
		linear(p+"attn.c_proj", h, h)
		linear(p+"mlp.c_fc", h, 4*h)
		linear(p+"mlp.c_proj", 4*h, h)
	}
}
