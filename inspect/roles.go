package inspect

import (
	"fmt"
	"slices"
	"strings"
)

// Role is the part a tensor plays in the model.
type Role string

const (
	RoleEmbed        Role = "embed"
	RoleEmbedProj    Role = "embedProj" // from the width of the embedding to that of the layers
	RolePosEmbed     Role = "posEmbed"
	RoleEmbedNorm    Role = "embedNorm" // of the embedding, before the first layer
	RoleAttnNorm     Role = "attnNorm"
	RoleQ            Role = "q"
	RoleK            Role = "k"
	RoleV            Role = "v"
	RoleQKV          Role = "qkv"
	RoleQNorm        Role = "qNorm"
	RoleKNorm        Role = "kNorm"
	RoleO            Role = "o"
	RolePostAttnNorm Role = "postAttnNorm" // of the output of attention, before it is added
	RoleMLPNorm      Role = "mlpNorm"
	RoleRouter       Role = "router"
	RoleExpertGate   Role = "expertGate"
	RoleExpertUp     Role = "expertUp"
	RoleExpertGateUp Role = "expertGateUp" // gate above up, all experts in one tensor
	RoleExpertDown   Role = "expertDown"
	RoleGate         Role = "gate"
	RoleUp           Role = "up"
	RoleGateUp       Role = "gateUp" // one matrix holds gate, then up
	RoleDown         Role = "down"
	RolePostMLPNorm  Role = "postMLPNorm" // of the output of the feed-forward network, before it is added
	RoleFinalNorm    Role = "finalNorm"
	RoleReadoutProj  Role = "readoutProj" // from the width of the layers to that of the readout
	RoleLMHead       Role = "lmHead"
)

// layerOrder is every role of a layer in the order of computation.
var layerOrder = []Role{
	RoleAttnNorm, RoleQ, RoleK, RoleV, RoleQKV, RoleQNorm, RoleKNorm, RoleO, RolePostAttnNorm,
	RoleMLPNorm, RoleRouter, RoleExpertGate, RoleExpertUp, RoleExpertGateUp, RoleExpertDown,
	RoleGate, RoleUp, RoleGateUp, RoleDown, RolePostMLPNorm,
}

// names maps roles to tensor names without the ".weight" or ".bias" ending; %d is the layer, a second %d the expert.
// A norm with an empty name is there but has no tensor: its weights are one.
type names map[Role]string

// with returns a copy with some names replaced; "-" removes a role.
func (n names) with(other names) names {
	out := make(names, len(n)+len(other))
	for role, name := range n {
		out[role] = name
	}
	for role, name := range other {
		if name == "-" {
			delete(out, role)
		} else {
			out[role] = name
		}
	}
	return out
}

// Has says whether the model has the role in some layer.
func (s *Spec) Has(role Role) bool {
	_, ok := s.names[role]
	return ok
}

// Tensor returns the name of a role's tensor without its ".weight" or ".bias" ending, or "" when the model has none.
// The layer is ignored for roles outside the layers. When tied, the readout is the embedding. Of one tensor an expert it
// is the first.
func (s *Spec) Tensor(role Role, layer int) string { return s.tensor(role, layer, 0) }

func (s *Spec) tensor(role Role, layer, expert int) string {
	if role == RoleLMHead && s.Tie {
		role = RoleEmbed
	}
	name := s.names[role]
	switch strings.Count(name, "%d") {
	case 1:
		return fmt.Sprintf(name, layer)
	case 2:
		return fmt.Sprintf(name, layer, expert)
	}
	return name
}

// WeightNames returns the full names of the tensors that hold a role's weight in a layer: one, or one for each expert;
// none for a norm without weights or a role that the model does not have.
func (s *Spec) WeightNames(role Role, layer int) []string {
	if s.names[role] == "" {
		return nil
	}
	ending := ".weight"
	if s.bare[role] {
		ending = ""
	}
	list := make([]string, 1)
	if s.perExpert(role) {
		list = make([]string, s.Experts)
	}
	for i := range list {
		list[i] = s.tensor(role, layer, i) + ending
	}
	return list
}

// BiasName returns the full name of the tensor that holds a role's bias, or "" where there is none.
func (s *Spec) BiasName(role Role, layer int) string {
	if !s.biased[role] || role == RoleLMHead && s.Tie {
		return ""
	}
	return s.Tensor(role, layer) + ".bias"
}

// perExpert says whether each expert has a tensor of its own for the role.
func (s *Spec) perExpert(role Role) bool { return strings.Count(s.names[role], "%d") == 2 }

// LayerRoles returns the roles of layer i in the order of computation.
func (s *Spec) LayerRoles(i int) []Role {
	l := s.Layer(i)
	roles := make([]Role, 0, len(layerOrder))
	for _, role := range layerOrder {
		if s.Has(role) && (l.Experts || !isExpert(role)) && (l.Dense || !isDense(role)) {
			roles = append(roles, role)
		}
	}
	return roles
}

// EmbedWidth is the width of embedding and readout.
func (s *Spec) EmbedWidth() int {
	if s.EmbedDim != 0 {
		return s.EmbedDim
	}
	return s.Hidden
}

// PlainEmbed says whether an embedding is a row of the table, or one times EmbedScale, and nothing else: no projection, learned
// position or norm.
func (s *Spec) PlainEmbed() bool {
	return !s.LearnedPos && !s.Has(RoleEmbedProj) && !s.Has(RoleEmbedNorm)
}

// HeadRoles returns the roles of the embedding and of the readout (final norm, then the readout matrix).
func (s *Spec) HeadRoles() (embed, readout []Role) {
	for _, role := range []Role{RoleEmbed, RoleEmbedProj, RolePosEmbed, RoleEmbedNorm} {
		if s.Has(role) {
			embed = append(embed, role)
		}
	}
	for _, role := range []Role{RoleFinalNorm, RoleReadoutProj, RoleLMHead} {
		if s.Has(role) {
			readout = append(readout, role)
		}
	}
	return embed, readout
}

// Dims returns the size of a role's weight as it is used: n output rows of k inputs (n entries of width k for the
// embeddings; the rows of all experts together), or a vector of n values with k = 0 for a norm.
func (s *Spec) Dims(role Role) (n, k int) {
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	switch role {
	case RoleEmbed, RoleLMHead:
		return s.Vocab, s.EmbedWidth()
	case RoleEmbedProj:
		return s.Hidden, s.EmbedWidth()
	case RoleReadoutProj:
		return s.EmbedWidth(), s.Hidden
	case RolePosEmbed:
		return s.MaxPos + s.PosOffset, s.Hidden
	case RoleQ:
		return q, s.Hidden
	case RoleK, RoleV:
		return kv, s.Hidden
	case RoleQKV:
		return q + 2*kv, s.Hidden
	case RoleO:
		return s.Hidden, q
	case RoleRouter:
		return s.Experts, s.Hidden
	case RoleExpertGate, RoleExpertUp:
		return s.Experts * s.ExpertInter, s.Hidden
	case RoleExpertGateUp:
		return 2 * s.Experts * s.ExpertInter, s.Hidden
	case RoleExpertDown:
		return s.Experts * s.Hidden, s.ExpertInter
	case RoleGate, RoleUp:
		return s.Inter, s.Hidden
	case RoleGateUp:
		return 2 * s.Inter, s.Hidden
	case RoleDown:
		return s.Hidden, s.Inter
	case RoleQNorm:
		return s.qkNormWidth(s.Heads), 0
	case RoleKNorm:
		return s.qkNormWidth(s.KVHeads), 0
	case RoleEmbedNorm, RoleAttnNorm, RolePostAttnNorm, RoleMLPNorm, RolePostMLPNorm, RoleFinalNorm:
		return s.Hidden, 0
	}
	return 0, 0
}

func (s *Spec) qkNormWidth(heads int) int {
	if s.QKNorm == qkNormWidth {
		return heads * s.HeadDim
	}
	return s.HeadDim
}

// LinearDims lists [n k] of the matrices that layers multiply by, each size once: fused ones in parts, experts one by one.
func (s *Spec) LinearDims() [][2]int {
	var all [][2]int
	add := func(n, k int) {
		if dims := [2]int{n, k}; !slices.Contains(all, dims) {
			all = append(all, dims)
		}
	}
	for layer := range s.Layers {
		for _, role := range s.LayerRoles(layer) {
			n, k := s.Dims(role)
			switch {
			case k == 0:
			case role == RoleQKV:
				add(s.Heads*s.HeadDim, k)
				add(s.KVHeads*s.HeadDim, k)
			case role == RoleGateUp:
				add(n/2, k)
			case role == RoleExpertGateUp:
				add(n/2/s.Experts, k)
			case isExpert(role) && role != RoleRouter:
				add(n/s.Experts, k)
			default:
				add(n, k)
			}
		}
	}
	return all
}

// Shape returns the shape of each tensor of a role as it is stored: [n] for a norm, [n k], or [k n] where WeightLayout
// is "in_out" and the role is a linear of a layer; [experts n k] where all experts are in one tensor.
func (s *Spec) Shape(role Role) []int {
	n, k := s.Dims(role)
	switch {
	case k == 0:
		return []int{n}
	case isExpert(role) && role != RoleRouter:
		n /= max(s.Experts, 1)
		if !s.perExpert(role) {
			return []int{s.Experts, n, k}
		}
	case s.WeightLayout == layoutInOut && isLinear(role):
		return []int{k, n}
	}
	return []int{n, k}
}

// Biased says whether the weight file holds a bias of n values beside the role's weight, in every layer alike.
func (s *Spec) Biased(role Role) bool { return s.biased[role] }

// Rows is a run of rows of a matrix.
type Rows struct{ First, N int }

// QKVRows tells which output rows of the fused matrix are Q, K and V, each in the order of the heads. QKVOrder "" is Q, K,
// V one after the other; "grouped" has for each key-value head its query heads, its key and its value; "blocks" is four
// blocks, each with a fourth of the heads of Q, V and K.
func (s *Spec) QKVRows() (q, k, v []Rows) {
	nq, nkv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	blocks, keyFirst := 1, true
	switch s.QKVOrder {
	case qkvGrouped:
		blocks = s.KVHeads
	case qkvBlocks:
		blocks, keyFirst = 4, false
	}
	nq, nkv = nq/blocks, nkv/blocks
	for b := range blocks {
		at := b * (nq + 2*nkv)
		first, second := Rows{at + nq, nkv}, Rows{at + nq + nkv, nkv}
		if !keyFirst {
			first, second = second, first
		}
		q, k, v = append(q, Rows{at, nq}), append(k, first), append(v, second)
	}
	return q, k, v
}

// isLinear says whether the role is a matrix of a layer, the ones that WeightLayout is about.
func isLinear(role Role) bool {
	switch role {
	case RoleQ, RoleK, RoleV, RoleQKV, RoleO, RoleGate, RoleUp, RoleGateUp, RoleDown:
		return true
	}
	return false
}

// isNorm says whether the role is the weight of a norm.
func isNorm(role Role) bool { return strings.HasSuffix(string(role), "Norm") }

// isExpert says whether the role belongs to a mixture of experts.
func isExpert(role Role) bool {
	switch role {
	case RoleRouter, RoleExpertGate, RoleExpertUp, RoleExpertGateUp, RoleExpertDown:
		return true
	}
	return false
}

// isDense says whether the role belongs to the feed-forward network that every token takes.
func isDense(role Role) bool {
	switch role {
	case RoleGate, RoleUp, RoleGateUp, RoleDown:
		return true
	}
	return false
}
