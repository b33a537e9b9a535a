package stage

// Scores reads out the last of hidden rows [n][Hidden]: all logits if top is 0, else at least as many of the most probable
// tokens, their ids and then their logits.
func (s *Sequence) Scores(hidden []float32, top int) ([]float32, error) {
	r := &s.head.readout
	s.ask.top = top
	err := r.row(s.id, hidden[len(hidden)-r.hidden:], &s.ask)
	return s.ask.scores.values, err
}

// Embeds says that the device embeds.
func (h *Head) Embeds() bool { return h.embeds }
