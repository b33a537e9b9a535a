package inspect

// mistral is Mistral 7B, Nemo and Small: Llama with a window over every layer, if any.
var mistral = &family{
	name:         "mistral",
	architecture: "MistralForCausalLM",
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.MaxPos, s.Window = 8, 131072, 4096
	}),
	keys:    keyTable(modernKeys, ropeKeys, map[string]key{"rms_norm_eps": epsKey, "sliding_window": windowKey}),
	windows: everyLayer,
	prefix:  "model.",
	names:   llamaNames,
}
