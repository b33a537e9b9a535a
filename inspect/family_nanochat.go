package inspect

// nanoChat is nanochat: RMS norms without weights, also of the embedding and, after the rotation, of each head of Q and
// K; positions turn the other way round.
var nanoChat = &family{
	name:         "nanochat",
	models:       "nanochat",
	architecture: "NanoChatForCausalLM",
	eos:          []int{1},
	base: llamaBase.base(func(s *Spec) {
		s.Act, s.Gated, s.LogitCap = actReLU2, false, 15
		s.QKNorm, s.QKNormLate, s.RopeReversed = qkNormHead, true, true
	}),
	keys: keyTable(llamaKeys, map[string]key{
		"final_logit_softcapping": floatKey(func(d *draft) *float64 { return &d.LogitCap }),
	}),
	prefix: "model.",
	names: llamaNames.with(names{
		RoleEmbedNorm: "", RoleAttnNorm: "", RoleQNorm: "", RoleKNorm: "", RoleMLPNorm: "", RoleFinalNorm: "",
		RoleGate: "-",
		RoleUp:   "model.layers.%d.mlp.fc1",
		RoleDown: "model.layers.%d.mlp.fc2",
	}),
}
