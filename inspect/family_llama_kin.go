package inspect

// Families that are Llama but for one or two properties.

// ernie45 is ERNIE 4.5 (dense): neighbouring pairs rotated.
var ernie45 = &family{
	name:         "ernie4_5",
	models:       "ERNIE 4.5 (dense)",
	architecture: "Ernie4_5ForCausalLM",
	eos:          []int{2},
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.HeadDim, s.MaxPos, s.NormEps = 2, 128, 131072, 1e-5
		s.RopeTheta, s.RopeInterleaved, s.Tie = 500000, true, true
	}),
	keys: keyTable(llamaKeys, map[string]key{
		"use_bias": biasKey(RoleQ, RoleK, RoleV, RoleO, RoleGate, RoleUp, RoleDown),
	}),
	prefix: "model.",
	names:  llamaNames,
}

// seedOSS is Seed-OSS: biases on Q, K and V.
var seedOSS = &family{
	name:         "seed_oss",
	models:       "Seed-OSS",
	architecture: "SeedOssForCausalLM",
	eos:          []int{2},
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.HeadDim, s.MaxPos = 8, 128, 524288
	}),
	keys: keyTable(llamaKeys, map[string]key{
		"attention_bias":     biasKey(RoleQ, RoleK, RoleV),
		"attention_out_bias": biasKey(RoleO),
	}),
	prefix: "model.",
	names:  llamaNames,
	bias:   []Role{RoleQ, RoleK, RoleV},
}

// helium is Helium 1: neighbouring pairs rotated.
var helium = &family{
	name:         "helium",
	models:       "Helium",
	architecture: "HeliumForCausalLM",
	eos:          []int{2},
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.HeadDim, s.MaxPos, s.NormEps = 20, 128, 4096, 1e-8
		s.RopeTheta, s.RopeInterleaved = 100000, true
	}),
	keys:   llamaKeys,
	prefix: "model.",
	names:  llamaNames,
}

// cwm is the Code World Model: windows in three layers of four.
var cwm = &family{
	name:         "cwm",
	models:       "Code World Model",
	architecture: "CwmForCausalLM",
	eos:          []int{128001, 128008, 128009},
	base: llamaBase.base(func(s *Spec) {
		s.KVHeads, s.HeadDim, s.MaxPos, s.NormEps = 8, 128, 131072, 1e-5
		s.RopeTheta, s.Window = 1e6, 8192
	}),
	keys:    keyTable(llamaKeys, windowKeys),
	windows: func(_ *draft, layer int) bool { return layer%4 != 0 },
	rope: &ropeParams{RopeSpec: RopeSpec{
		RopeScaling: ropeLlama3, RopeTheta: 1e6, RopeFactor: 16, RopeLowFreq: 1, RopeHighFreq: 4, RopeOriginal: 8192,
	}},
	prefix: "model.",
	names:  llamaNames,
}

// arcee is AFM: a plain feed-forward network with squared ReLU.
var arcee = &family{
	name:         "arcee",
	models:       "AFM",
	architecture: "ArceeForCausalLM",
	eos:          []int{128001},
	base: llamaBase.base(func(s *Spec) {
		s.MaxPos, s.NormEps, s.Act, s.Gated = 4096, 1e-5, actReLU2, false
	}),
	keys:   llamaKeys,
	prefix: "model.",
	names:  llamaNames.with(names{RoleGate: "-"}),
}

// jais2 is Jais 2: LayerNorms, biases, a plain feed-forward network with squared ReLU.
var jais2 = &family{
	name:         "jais2",
	models:       "Jais 2",
	architecture: "Jais2ForCausalLM",
	eos:          []int{150024},
	base: llamaBase.base(func(s *Spec) {
		s.Norm, s.NormEps, s.MaxPos, s.Act, s.Gated = normLN, 1e-5, 8192, actReLU2, false
	}),
	keys:   keyTable(llamaKeys, map[string]key{"layer_norm_eps": epsKey}),
	prefix: "model.",
	names:  llamaNames.with(names{RoleGate: "-"}),
	bias:   []Role{RoleAttnNorm, RoleQ, RoleK, RoleV, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}

// nemotron is Nemotron-4 and Minitron: LayerNorms that count from one, squared ReLU, half of each head rotated.
var nemotron = &family{
	name:         "nemotron",
	models:       "Nemotron-4, Minitron",
	architecture: "NemotronForCausalLM",
	eos:          []int{3},
	base: llamaBase.base(func(s *Spec) {
		s.Norm, s.NormEps, s.NormPlusOne, s.MaxPos, s.Act, s.Gated = normLN, 1e-5, true, 4096, actReLU2, false
	}),
	keys:    keyTable(llamaKeys, map[string]key{"norm_eps": epsKey}),
	partial: 0.5,
	prefix:  "model.",
	names:   llamaNames.with(names{RoleGate: "-"}),
	bias:    []Role{RoleAttnNorm, RoleMLPNorm, RoleFinalNorm},
}
