package inspect

import (
	"fmt"
	"strings"
)

// Spec is config.json normalised: everything downstream works off it and never asks for the family.
// Some of it is decided by evidence from the tensor index rather than by config: WeightLayout, Bias, QKVFused, Tie and
// the prefix of tensor names. A Spec is made by ParseConfig and not changed afterwards.
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
	RopeTheta   float64 `json:"ropeTheta"`
	RopeScaling string  `json:"ropeScaling"` // "none" or "llama3"
	// The parameters of RopeScaling "llama3", which InvFreq applies.
	RopeFactor   float64 `json:"ropeFactor,omitempty"`
	RopeLowFreq  float64 `json:"ropeLowFreq,omitempty"`
	RopeHighFreq float64 `json:"ropeHighFreq,omitempty"`
	RopeOriginal int     `json:"ropeOriginal,omitempty"` // context length before scaling, tokens
	RotaryDim    int     `json:"rotaryDim,omitempty"`    // leading values of a head that are rotated; even
	LearnedPos   bool    `json:"learnedPos,omitempty"`   // a table of positions is added to the embedding

	AttnScale float64 `json:"attnScale"` // multiplier of q.k

	Tie          bool   `json:"tie"`          // the readout matrix is the embedding
	QKVFused     bool   `json:"qkvFused"`     // one matrix holds Q, K and V, in this order of output rows
	Bias         bool   `json:"bias"`         // whether any linear has a bias; Biased tells which
	WeightLayout string `json:"weightLayout"` // "out_in" or "in_out" (GPT-2's Conv1D); never of embed, posEmbed, lmHead

	BOS []int `json:"bos,omitempty"`
	EOS []int `json:"eos,omitempty"` // every id that ends a sequence, generation_config.json included

	names  names         // the family's tensor naming
	biased map[Role]bool // roles with a bias; no entry is false
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

// layerOrder is every role of a layer in the order of computation.
var layerOrder = []Role{
	RoleAttnNorm, RoleQ, RoleK, RoleV, RoleQKV, RoleO,
	RoleMLPNorm, RoleGate, RoleUp, RoleDown,
}

// names maps roles to tensor names without the ".weight" or ".bias" ending; %d is the layer.
type names map[Role]string

// Tensor returns the name of a role's tensor without its ".weight" or ".bias" ending, or "" when the model has none.
// The layer is ignored for roles outside the layers. When tied, the readout is the embedding.
func (s *Spec) Tensor(role Role, layer int) string {
	if role == RoleLMHead && s.Tie {
		role = RoleEmbed
	}
	name, ok := s.names[role]
	if !ok {
		return ""
	}
	if strings.Contains(name, "%d") {
		return fmt.Sprintf(name, layer)
	}
	return name
}

// LayerRoles returns the tensors of one layer in the order of computation.
func (s *Spec) LayerRoles() []Role {
	roles := make([]Role, 0, len(layerOrder))
	for _, role := range layerOrder {
		if _, ok := s.names[role]; ok {
			roles = append(roles, role)
		}
	}
	return roles
}

// HeadRoles returns the tensors of the embedding and of the readout (final norm, then the readout matrix).
func (s *Spec) HeadRoles() (embed, readout []Role) {
	embed = []Role{RoleEmbed}
	if s.LearnedPos {
		embed = append(embed, RolePosEmbed)
	}
	return embed, []Role{RoleFinalNorm, RoleLMHead}
}

// Dims returns the size of a role's weight as it is used: n output rows of k inputs (n entries of width k for the
// embeddings), or a vector of n values with k = 0 for a norm.
func (s *Spec) Dims(role Role) (n, k int) {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	switch role {
	case RoleEmbed, RoleLMHead:
		return s.Vocab, s.Hidden
	case RolePosEmbed:
		return s.MaxPos, s.Hidden
	case RoleQ:
		return q, s.Hidden
	case RoleK, RoleV:
		return kv, s.Hidden
	case RoleQKV:
		return q + 2*kv, s.Hidden
	case RoleO:
		return s.Hidden, q
	case RoleGate, RoleUp:
		return s.Inter, s.Hidden
	case RoleDown:
		return s.Hidden, s.Inter
	case RoleAttnNorm, RoleMLPNorm, RoleFinalNorm:
		return s.Hidden, 0
	}
	return 0, 0
}

// Shape returns the shape of a role's weight as it is stored: [n] for a norm, [n k], or [k n] where WeightLayout is
// "in_out" and the role is a linear of a layer.
func (s *Spec) Shape(role Role) []int {
	n, k := s.Dims(role)
	switch {
	case k == 0:
		return []int{n}
	case s.WeightLayout == layoutInOut && isLinear(role):
		return []int{k, n}
	}
	return []int{n, k}
}

// Biased says whether the weight file holds a bias of n values beside the role's weight, in every layer alike.
func (s *Spec) Biased(role Role) bool { return s.biased[role] }

// isLinear says whether the role is a matrix of a layer, the ones that WeightLayout is about.
func isLinear(role Role) bool {
	switch role {
	case RoleQ, RoleK, RoleV, RoleQKV, RoleO, RoleGate, RoleUp, RoleDown:
		return true
	}
	return false
}
