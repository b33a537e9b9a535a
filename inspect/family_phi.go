package inspect

import "encoding/json"

// phi is Phi-1, 1.5 and 2: attention and feed-forward in parallel after one norm, biases everywhere.
var phi = &family{
	name:         "phi",
	models:       "Phi-1, Phi-1.5, Phi-2",
	architecture: "PhiForCausalLM",
	eos:          []int{2},
	base: llamaBase.base(func(s *Spec) {
		s.Norm, s.NormEps, s.Act, s.Gated, s.Parallel = normLN, 1e-5, actGELUTanh, false, true
	}),
	keys: keyTable(modernKeys, ropeKeys, map[string]key{
		"layer_norm_eps": epsKey,
		"qk_layernorm":   phiQKNormKey,
	}),
	partial: 0.5,
	complete: func(d *draft) error {
		if d.QKNorm == "" {
			d.names = d.names.with(names{RoleQNorm: "-", RoleKNorm: "-"})
		}
		return nil
	},
	prefix: "model.",
	names: llamaNames.with(names{
		RoleMLPNorm:   "-",
		RoleQNorm:     "model.layers.%d.self_attn.q_layernorm",
		RoleKNorm:     "model.layers.%d.self_attn.k_layernorm",
		RoleO:         "model.layers.%d.self_attn.dense",
		RoleGate:      "-",
		RoleUp:        "model.layers.%d.mlp.fc1",
		RoleDown:      "model.layers.%d.mlp.fc2",
		RoleFinalNorm: "model.final_layernorm",
	}),
	bias: []Role{RoleAttnNorm, RoleQ, RoleK, RoleV, RoleQNorm, RoleKNorm, RoleO, RoleUp, RoleDown, RoleFinalNorm, RoleLMHead},
}

// phiQKNormKey: true is a norm over each head of Q and K, with weights that all heads share.
var phiQKNormKey = key{read: func(d *draft, v json.RawMessage) error {
	var on bool
	if err := flagKey(func(*draft) *bool { return &on }).read(d, v); err != nil {
		return err
	}
	d.QKNorm = ""
	if on {
		d.QKNorm = qkNormHead
	}
	return nil
}}

// persimmon is Persimmon and Fuyu's language model: squared ReLU, norms over each head of Q and K, half of it rotated.
var persimmon = &family{
	name:         "persimmon",
	models:       "Persimmon",
	architecture: "PersimmonForCausalLM",
	eos:          []int{2},
	base: llamaBase.base(func(s *Spec) {
		s.Norm, s.NormEps, s.Act, s.Gated, s.MaxPos = normLN, 1e-5, actReLU2, false, 16384
		s.QKNorm, s.QKVOrder = qkNormHead, qkvGrouped
	}),
	keys:     phi.keys,
	partial:  0.5,
	complete: phi.complete,
	prefix:   "model.",
	names: llamaNames.with(names{
		RoleQ: "-", RoleK: "-", RoleV: "-", RoleGate: "-",
		RoleQKV:       "model.layers.%d.self_attn.query_key_value",
		RoleQNorm:     "model.layers.%d.self_attn.q_layernorm",
		RoleKNorm:     "model.layers.%d.self_attn.k_layernorm",
		RoleO:         "model.layers.%d.self_attn.dense",
		RoleUp:        "model.layers.%d.mlp.dense_h_to_4h",
		RoleDown:      "model.layers.%d.mlp.dense_4h_to_h",
		RoleFinalNorm: "model.final_layernorm",
	}),
	bias: []Role{RoleAttnNorm, RoleQKV, RoleQNorm, RoleKNorm, RoleO, RoleMLPNorm, RoleUp, RoleDown, RoleFinalNorm},
}
