package inspect

// llama is Llama 2 and 3, and what shares the architecture: SmolLM, TinyLlama, Vicuna.
var llama = &family{
	name:         "llama",
	models:       "Llama 2 and 3, SmolLM, TinyLlama, Vicuna",
	architecture: "LlamaForCausalLM",
	eos:          []int{2},
	base:         llamaBase,
	keys:         keyTable(llamaKeys, map[string]key{"is_llama_config": ignoredKey}),
	prefix:       "model.",
	names:        llamaNames,
}
