package inspect

// Spec is config.json normalised: everything downstream works off it and never asks for the family.
// Two things in it are decided by evidence from the tensor index rather than by config: WeightLayout and QKVFused.
type Spec struct {
	Family  string `json:"family"`
	Layers  int    `json:"layers"`
	Hidden  int    `json:"hidden"`
	Heads   int    `json:"heads"`
	KVHeads int    `json:"kvHeads"`
	HeadDim int    `json:"headDim"`
	Inter   int    `json:"inter"`
	Vocab   int    `json:"vocab"`
	MaxPos  int    `json:"maxPos"`

	Norm    string  `json:"norm"` // "rms" or "ln"
	NormEps float64 `json:"normEps"`
	Act     string  `json:"act"` // "silu", "gelu_tanh"
	Gated   bool    `json:"gated"`

	Rope        bool    `json:"rope"`
	RopeTheta   float64 `json:"ropeTheta,omitempty"`
	RopeScaling string  `json:"ropeScaling,omitempty"` // "" for none
	RotaryDim   int     `json:"rotaryDim,omitempty"`
	LearnedPos  bool    `json:"learnedPos,omitempty"`

	AttnScale float64 `json:"attnScale"` // multiplier of q.k

	Tie          bool   `json:"tie"`
	QKVFused     bool   `json:"qkvFused"`
	Bias         bool   `json:"bias"`         // whether any linear has a bias, by what the weight file holds
	WeightLayout string `json:"weightLayout"` // "out_in" or "in_out" (GPT-2's Conv1D)

	BOS []int `json:"bos,omitempty"`
	EOS []int `json:"eos,omitempty"` // every id that ends a sequence, generation_config.json included

	names names // the family's tensor naming
}

// Role is the part a tensor plays in the model.
type Role string

const (
	RoleEmbed     Role = "embed"
	RolePosEmbed  Role = "posEmbed"
	RoleAttnNorm  Role = "attnNorm"
	RoleQ         Role = "q"
	RoleK         Role = "k"
	RoleV         Role = "v"
	RoleQKV       Role = "qkv"
	RoleO         Role = "o"
	RoleMLPNorm   Role = "mlpNorm"
	RoleGate      Role = "gate"
	RoleUp        Role = "up"
	RoleDown      Role = "down"
	RoleFinalNorm Role = "finalNorm"
	RoleLMHead    Role = "lmHead"
)

// names maps roles to tensor names without the ".weight" or ".bias" ending; %d is the layer.
type names map[Role]string
