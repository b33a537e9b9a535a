// Package plan decides who runs what: capacities and memory to layer ranges, by pure functions.
//
// Nothing here measures, dials or reads a clock. Every device that is given the same numbers derives the same plan,
// so peers never negotiate one, they compare it. A plan is made from capacities (Apportion) or from peers that
// already hold layers (FromRanges); Validate holds both to the same rule: every layer exactly once, in order, and
// stage 0 is the head. Predict says how fast a plan will decode, Compare whether one machine would be faster.
package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Plan says which stage holds which layers of which model. Stage 0 is the head, the machine that asks and picks
// tokens; it embeds and reads out, and may hold no layers.
type Plan struct {
	Model       string `json:"model"`                 // what the operator named
	Fingerprint string `json:"fingerprint,omitempty"` // of the model: revision, tensors, numerics version
	Weights     string `json:"weights"`               // "int8" or "int8x2"
	Layers      int    `json:"layers"`
	Context     int    `json:"context"` // positions per session
	Sessions    int    `json:"sessions"`

	Stages []Stage `json:"stages"`

	// What was predicted when the plan was made, for people and for comparing with the run.
	Prediction *Prediction `json:"prediction,omitempty"`
	Options    []Option    `json:"options,omitempty"` // the same model on 1, 2, ... of the devices, this plan among them
	Advice     string      `json:"advice,omitempty"`
}

// Stage is one machine of a plan.
type Stage struct {
	Name        string `json:"name"`
	Head        bool   `json:"head,omitempty"`
	Addr        string `json:"addr,omitempty"`        // host:port; empty for the head
	Fingerprint string `json:"fingerprint,omitempty"` // of the peer's key
	Range       Range  `json:"layers"`
	Readout     bool   `json:"readout,omitempty"` // the last stage, which holds the readout in place of the head

	GPU         bool    `json:"gpu,omitempty"`         // the head computes on one; of other stages it is not known
	WeightBytes int64   `json:"weight_bytes"`          // quantised weights, with the readout where that is held
	KVBytes     int64   `json:"kv_bytes"`              // KV cache for Context positions of Sessions sessions
	TableBytes  int64   `json:"table_bytes,omitempty"` // the embedding beside them, where there is room to spare (Need.HoldsTable)
	Score       float64 `json:"score,omitempty"`
	Memory      int64   `json:"memory_bytes,omitempty"` // free memory the plan counted on; 0 = not known
	RoundTrip   float64 `json:"rtt_seconds,omitempty"`  // between the head and this stage, measured; 0 = not known
}

// label is how errors name a stage.
func (s Stage) label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Addr != "":
		return s.Addr
	case s.Head:
		return "the head"
	}
	return "an unnamed stage"
}

// Read parses a plan as written by the plan command and checks it against its own layer count.
func Read(data []byte) (*Plan, error) {
	var p Plan
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("reading plan: %w", err)
	}
	if dec.More() {
		return nil, errors.New("reading plan: more than one JSON value")
	}
	if err := p.Validate(p.Layers); err != nil {
		return nil, fmt.Errorf("reading plan: %w", err)
	}
	return &p, nil
}

// reader is the index of the stage that holds the readout: the head, unless the last one does.
func reader(stages []Stage) int {
	if last := len(stages) - 1; last > 0 && stages[last].Readout {
		return last
	}
	return 0
}

// FromRanges completes base with a plan for peers that already hold layers, given in any order: the head first, the
// others by layer. base.Layers must be set; base.Stages is ignored.
func FromRanges(base Plan, head Stage, peers []Stage) (*Plan, error) {
	head.Head = true
	p := base
	p.Stages = append([]Stage{head}, peers...)
	rest := p.Stages[1:]
	slices.SortStableFunc(rest, func(a, b Stage) int {
		if c := a.Range.First - b.Range.First; c != 0 {
			return c
		}
		if c := a.Range.Last - b.Range.Last; c != 0 {
			return c
		}
		return strings.Compare(a.id(), b.id())
	})
	if err := p.Validate(base.Layers); err != nil {
		return nil, err
	}
	return &p, nil
}

// id orders and tells apart peers: the key's fingerprint where there is one, and the address, since the stages of one
// machine may share a key.
func (s Stage) id() string {
	if s.Fingerprint != "" {
		return s.Fingerprint + "@" + s.Addr
	}
	return cmp.Or(s.Addr, s.Name)
}

// Validate checks that the plan runs a model of the given number of layers: every layer is held exactly once, stages
// are in layer order, stage 0 is the head and no other stage is or is without layers, and no peer appears twice.
func (p *Plan) Validate(layers int) error {
	switch {
	case layers <= 0 || layers > maxLayers:
		return fmt.Errorf("the plan is for a model of %s", Plural(layers, "layer"))
	case p.Layers != layers:
		return fmt.Errorf("the plan is for a model of %s, this one has %d", Plural(p.Layers, "layer"), layers)
	case len(p.Stages) == 0:
		return errors.New("the plan has no stages")
	case !p.Stages[0].Head:
		return fmt.Errorf("stage 0 of the plan is %s, which is not the head", p.Stages[0].label())
	}
	seen := map[string]bool{}
	for i, s := range p.Stages {
		if i > 0 && s.Head {
			return fmt.Errorf("stage %d of the plan, %s, is marked as the head; the head is stage 0", i, s.label())
		}
		if i > 0 && s.Range.Len() == 0 {
			return fmt.Errorf("stage %d of the plan, %s, holds no layers", i, s.label())
		}
		if s.Range.Len() > 0 && (s.Range.First < 0 || s.Range.Last >= layers) {
			return fmt.Errorf("%s holds layers %s, but the model has layers %s", s.label(), s.Range, Range{0, layers - 1})
		}
		if id := s.id(); id != "" {
			if seen[id] {
				return fmt.Errorf("%s appears twice in the plan", s.label())
			}
			seen[id] = true
		}
	}
	return p.validateCover(layers)
}

// validateCover checks that the ranges, all within the model, meet end to end.
func (p *Plan) validateCover(layers int) error {
	holders := make([][]int, layers) // stages by layer
	for i, s := range p.Stages {
		for l := s.Range.First; l <= s.Range.Last; l++ {
			holders[l] = append(holders[l], i)
		}
	}
	if shared := runs(holders, func(h []int) bool { return len(h) > 1 }); len(shared) > 0 {
		r := shared[0]
		pair := holders[r.First]
		for r.Last > r.First && !slices.Equal(holders[r.Last], pair) {
			r.Last--
		}
		return fmt.Errorf("%s held by both %s and %s", layersAre(r), p.Stages[pair[0]].label(), p.Stages[pair[1]].label())
	}
	if gaps := runs(holders, func(h []int) bool { return len(h) == 0 }); len(gaps) > 0 {
		first := gaps[0]
		err := fmt.Errorf("%s held by nobody; start a stage with --layers %s and add it to the peers", layersAre(first), first)
		if len(gaps) > 1 {
			err = fmt.Errorf("%w (also missing: %s)", err, joinRanges(gaps[1:]))
		}
		return err
	}
	for i, s := range p.Stages[1:] {
		if before := p.Stages[i]; before.Range.Len() > 0 && before.Range.Last > s.Range.First {
			return fmt.Errorf("%s (layers %s) comes after %s (layers %s): stages must be in layer order, the head first",
				s.label(), s.Range, before.label(), before.Range)
		}
	}
	return nil
}

// runs finds the maximal runs of layers whose holders satisfy is.
func runs(holders [][]int, is func([]int) bool) []Range {
	var found []Range
	for l, h := range holders {
		if !is(h) {
			continue
		}
		if n := len(found); n > 0 && found[n-1].Last == l-1 {
			found[n-1].Last = l
		} else {
			found = append(found, Range{l, l})
		}
	}
	return found
}

func layersAre(r Range) string {
	if r.Len() == 1 {
		return fmt.Sprintf("layer %d is", r.First)
	}
	return fmt.Sprintf("layers %s are", r)
}

func joinRanges(rs []Range) string {
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = r.String()
	}
	return strings.Join(parts, ", ")
}
