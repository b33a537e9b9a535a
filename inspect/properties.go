package inspect

import (
	"fmt"
	"strings"
)

// Properties lists in words what sets the model apart from a plain decoder with norms before attention and feed-forward.
func (s *Spec) Properties() []string {
	var list []string
	add := func(on bool, format string, args ...any) {
		if on {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(s.Has(RoleEmbedNorm), "norm of the embedding")
	add(!s.Has(RoleAttnNorm) && s.Has(RolePostAttnNorm), "norms after attention and feed-forward")
	add(s.Has(RoleAttnNorm) && s.Has(RolePostAttnNorm), "norms before and after attention and feed-forward")
	add(s.NormAfter, "norms of the residual stream after attention and feed-forward")
	add(s.EmbedDim != 0, "embedding and readout of %d", s.EmbedDim)
	add(s.NormPlusOne, "norms count from one")
	add(s.QKNorm != "", "norm of queries and keys over the %s", s.QKNorm)
	add(s.Parallel, "attention and feed-forward in parallel")
	add(s.ALiBi, "ALiBi")
	add(s.Window > 0, "window of %d in %s", s.Window, layerList(s.Windowed, s.Layers))
	add(s.LocalRope != nil, "rotary theta %g in them", localTheta(s))
	add(len(s.NoRope) > 0, "no rotary positions in %s", layerList(s.NoRope, s.Layers))
	add(s.AttnCap > 0, "scores capped at %g", s.AttnCap)
	add(s.LogitCap > 0, "logits capped at %g", s.LogitCap)
	add(s.Experts > 0, "%d experts of %d, %d a token", s.Experts, s.ExpertInter, s.TopK)
	add(s.SharedExpert, "a dense network beside them")
	add(len(s.Dense) > 0, "no experts in %s", layerList(s.Dense, s.Layers))
	scaled := func(v float64) bool { return v != 0 && v != 1 }
	add(scaled(s.EmbedScale), "embedding times %.5g", s.EmbedScale)
	add(scaled(s.ResidualScale), "residual times %.5g", s.ResidualScale)
	add(scaled(s.LogitScale), "logits times %.5g", s.LogitScale)
	add(s.ScaleBlock != nil, "F8_E4M3 with scales")
	return list
}

func localTheta(s *Spec) float64 {
	if s.LocalRope == nil {
		return 0
	}
	return s.LocalRope.RopeTheta
}

// layerList is "all layers", "layers 0, 2, 4" or, of many, "20 of 26 layers".
func layerList(layers []int, of int) string {
	const most = 4
	switch {
	case len(layers) == of:
		return "all layers"
	case len(layers) > most:
		return fmt.Sprintf("%d of %d layers", len(layers), of)
	}
	if len(layers) == 1 {
		return fmt.Sprintf("layer %d", layers[0])
	}
	return "layers " + strings.Trim(strings.ReplaceAll(fmt.Sprint(layers), " ", ", "), "[]")
}
