package inspect

// cohere is Command-R and Aya: attention and feed-forward in parallel after one norm, neighbouring pairs rotated.
var cohere = &family{
	name:         "cohere",
	models:       "Command-R, Aya",
	architecture: "CohereForCausalLM",
	eos:          []int{255001},
	base:         cohereBase,
	keys: keyTable(cohereKeys, map[string]key{
		"use_qk_norm": onlyKey("false"), // its weights differ from head to head
	}),
	prefix: "model.",
	names:  llamaNames.with(names{RoleMLPNorm: "-"}),
}

var cohereBase = llamaBase.base(func(s *Spec) {
	s.Norm, s.NormEps, s.MaxPos, s.RopeTheta = normLN, 1e-5, 8192, 500000
	s.Parallel, s.RopeInterleaved, s.Tie, s.LogitScale = true, true, true, 0.0625
})

var cohereKeys = keyTable(llamaKeys, map[string]key{
	"layer_norm_eps": epsKey,
	"logit_scale":    floatKey(func(d *draft) *float64 { return &d.LogitScale }),
})

// cohere2 is Command-R7B: windows and rotary positions in three layers of four, neither in the others.
var cohere2 = &family{
	name:         "cohere2",
	models:       "Command-R7B, Command-A",
	architecture: "Cohere2ForCausalLM",
	eos:          []int{255001},
	base:         cohereBase.base(func(s *Spec) { s.RopeTheta, s.Window = 10000, 4096 }),
	keys: keyTable(cohereKeys, windowKeys, map[string]key{
		"cache_implementation":        ignoredKey,
		"layer_switch":                ignoredKey, // sliding_window_pattern by another name
		"order_of_interleaved_layers": onlyKey(`"local_attn_first"`),
		"position_embedding_type":     onlyKey(`"rope_gptj"`),
		"rotary_pct":                  onlyKey("1.0", "1"),
		"use_embedding_sharing":       onlyKey("true"),
		"use_gated_activation":        onlyKey("true"),
		"use_parallel_block":          onlyKey("true"),
		"use_parallel_embedding":      onlyKey("false"),
		"use_qk_norm":                 onlyKey("false"),
	}),
	windows: mostLayers,
	noRope:  func(d *draft, layer int) bool { return !contains(d.Windowed, layer) },
	complete: func(d *draft) error {
		if d.period == 0 {
			d.period = 4
		}
		return nil
	},
	prefix: "model.",
	names:  llamaNames.with(names{RoleMLPNorm: "-"}),
}
