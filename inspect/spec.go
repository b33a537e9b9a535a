package inspect

import "math"

// Spec is config.json normalised: everything downstream works off its properties and never asks for the family.
// Some of it is decided by evidence from the tensor index rather than by config: WeightLayout, Bias, Tie and the
// spelling of tensor names. A Spec is made by ParseConfig and not changed afterwards.
type Spec struct {
	Family  string `json:"family"`
	Layers  int    `json:"layers"`
	Hidden  int    `json:"hidden"`
	Heads   int    `json:"heads"`
	KVHeads int    `json:"kvHeads"`
	HeadDim int    `json:"headDim"`
	Inter   int    `json:"inter"` // width of the feed-forward network that every token takes
	Vocab   int    `json:"vocab"`
	MaxPos  int    `json:"maxPos"`

	Norm        string  `json:"norm"` // "rms" or "ln"
	NormEps     float64 `json:"normEps"`
	NormPlusOne bool    `json:"normPlusOne,omitempty"` // norms multiply by 1 + weight
	NormAfter   bool    `json:"normAfter,omitempty"`   // attnNorm and mlpNorm are of the residual stream after each addition
	QKNorm      string  `json:"qkNorm,omitempty"`      // norm of queries and keys: over each "head" or the "width"; "" for none
	QKNormLate  bool    `json:"qkNormLate,omitempty"`  // after the rotation instead of before
	Act         string  `json:"act"`                   // "silu", "gelu_tanh", "gelu", "relu", "relu2" (the square of relu)
	Gated       bool    `json:"gated"`
	Parallel    bool    `json:"parallel,omitempty"` // attention and feed-forward read the same residual stream

	Rope bool `json:"rope"`
	RopeSpec
	RopeInterleaved bool      `json:"ropeInterleaved,omitempty"` // pairs are neighbours, not halves of the head
	RopeReversed    bool      `json:"ropeReversed,omitempty"`    // positions turn the other way round
	LocalRope       *RopeSpec `json:"localRope,omitempty"`       // of layers with a window, where it differs
	NoRope          []int     `json:"noRope,omitempty"`          // layers without rotary positions
	LearnedPos      bool      `json:"learnedPos,omitempty"`      // a table of positions is added to the embedding
	PosOffset       int       `json:"posOffset,omitempty"`       // row of position 0 in that table
	ALiBi           bool      `json:"alibi,omitempty"`           // scores fall with distance by ALiBiSlopes
	ALiBiStyle      string    `json:"alibiStyle,omitempty"`      // how slopes go on past a power of two: "press" or "mpt"
	ALiBiMax        float64   `json:"alibiMax,omitempty"`        // the smallest slope is 2^-ALiBiMax
	ALiBiScaled     bool      `json:"alibiScaled,omitempty"`     // slopes are multiplied by AttnScale, too

	AttnScale      float64 `json:"attnScale"`                // multiplier of q.k
	AttnScaleDepth bool    `json:"attnScaleDepth,omitempty"` // divided by 1 + the layer's number
	AttnCap        float64 `json:"attnCap,omitempty"`        // soft cap of scores
	Window         int     `json:"window,omitempty"`         // positions that a layer of Windowed sees, its own included
	Windowed       []int   `json:"windowed,omitempty"`       // layers with a window

	EmbedDim int `json:"embedDim,omitempty"` // width of embedding and readout where it is not Hidden: both are projected

	// Multipliers and the soft cap of logits; 0 means none.
	EmbedScale    float64 `json:"embedScale,omitempty"`
	ResidualScale float64 `json:"residualScale,omitempty"` // of what a layer adds to the residual stream
	LogitScale    float64 `json:"logitScale,omitempty"`
	LogitCap      float64 `json:"logitCap,omitempty"` // after LogitScale

	// Mixture of experts: layers that are not Dense send each token to TopK of Experts gated networks of ExpertInter,
	// and with SharedExpert also through a dense network of Inter, the outputs added.
	Experts      int   `json:"experts,omitempty"`
	TopK         int   `json:"topK,omitempty"`
	TopKRenorm   bool  `json:"topKRenorm,omitempty"` // the weights of the chosen experts sum to 1
	ExpertInter  int   `json:"expertInter,omitempty"`
	SharedExpert bool  `json:"sharedExpert,omitempty"`
	Dense        []int `json:"dense,omitempty"`

	Tie          bool   `json:"tie"`                  // the readout matrix is the embedding
	QKVFused     bool   `json:"qkvFused"`             // one matrix holds Q, K and V
	QKVOrder     string `json:"qkvOrder,omitempty"`   // of its output rows: "" Q, K, V; "grouped" or "blocks": see QKVRows
	Bias         bool   `json:"bias"`                 // whether any linear has a bias; Biased tells which
	WeightLayout string `json:"weightLayout"`         // "out_in" or "in_out" (GPT-2's Conv1D); never of embeddings and readout
	ScaleBlock   []int  `json:"scaleBlock,omitempty"` // rows and columns that share a scale, of matrices stored as F8_E4M3

	BOS []int `json:"bos,omitempty"`
	EOS []int `json:"eos,omitempty"` // every id that ends a sequence, generation_config.json included

	names  names         // the family's tensor naming
	biased map[Role]bool // roles with a bias; no entry is false
	bare   map[Role]bool // roles whose tensor name has no ".weight" ending
}

// LayerSpec is what may differ from layer to layer.
type LayerSpec struct {
	Rope      *RopeSpec // nil: no rotary positions
	Window    int       // positions in sight, the row's own included; 0 = all
	AttnScale float64
	Experts   bool // the feed-forward network is a mixture
	Dense     bool // there is one network that every token takes (with Experts: beside the mixture)
}

// Layer tells what layer i does.
func (s *Spec) Layer(i int) LayerSpec {
	l := LayerSpec{AttnScale: s.AttnScale}
	if contains(s.Windowed, i) {
		l.Window = s.Window
	}
	if s.Rope && !contains(s.NoRope, i) {
		l.Rope = &s.RopeSpec
		if l.Window > 0 && s.LocalRope != nil {
			l.Rope = s.LocalRope
		}
	}
	if s.AttnScaleDepth {
		l.AttnScale /= float64(i + 1)
	}
	l.Experts = s.Experts > 0 && !contains(s.Dense, i)
	l.Dense = !l.Experts || s.SharedExpert
	return l
}

// contains looks a layer up in an ascending list of layers.
func contains(layers []int, i int) bool {
	for _, l := range layers {
		if l >= i {
			return l == i
		}
	}
	return false
}

// ALiBiSlopes returns the slope of each head, the same bits on every machine; nil for a model without ALiBi. The slopes
// of a power of two of heads are a geometric series down to 2^-ALiBiMax. Other numbers of heads complete the series of
// the power below by every second slope of the power above ("press"), or take the odd slopes of the power above, then
// the even ones ("mpt").
func (s *Spec) ALiBiSlopes() []float32 {
	if !s.ALiBi {
		return nil
	}
	above := 1
	for above < s.Heads {
		above *= 2
	}
	series := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = 1 / pow(2, s.ALiBiMax*float64(i+1)/float64(n))
		}
		return v
	}
	var slopes []float64
	switch {
	case above == s.Heads:
		slopes = series(above)
	case s.ALiBiStyle == alibiMPT:
		full := series(above)
		for _, first := range []int{1, 0} {
			for i := first; i < above; i += 2 {
				slopes = append(slopes, full[i])
			}
		}
	default:
		slopes = series(above / 2)
		for i, slope := range series(above) {
			if i%2 == 0 {
				slopes = append(slopes, slope)
			}
		}
	}
	out := make([]float32, s.Heads)
	for i := range out {
		out[i] = float32(slopes[i])
		if s.ALiBiScaled {
			out[i] *= float32(s.AttnScale)
		}
	}
	return out
}

// LongContext says whether sessions of that many positions use other rotary tables than short ones (rope type
// "longrope"): all stages of a model must agree on it.
func (s *Spec) LongContext(context int) bool {
	return s.Rope && s.RopeScaling == ropeLong && context > s.RopeOriginal
}

// attnScale is the usual multiplier of q.k.
func attnScale(headDim int) float64 { return 1 / math.Sqrt(float64(headDim)) }
