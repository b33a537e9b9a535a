package stage_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"dchain/plan"
	"dchain/stage"
	"dchain/units"
)

// TestReadoutTogether: scores of sequences that ask at the same time, each for as many as it needs, are those each gets alone,
// and one whose hidden state is not finite fails alone.
func TestReadoutTogether(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	w, err := stage.Load(context.Background(), m, newDevice(t, 2), stage.LoadOptions{
		Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Context: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	const sequences, rounds = 9, 20
	e, err := stage.NewEngine(w, stage.EngineOptions{Context: 8, Sessions: sequences + 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}})
	if err != nil {
		t.Fatal(err)
	}
	open := func() *stage.Sequence {
		s, err := h.Open(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	hidden := make([][]float32, sequences)
	want := make([][]float32, sequences)
	alone := open()
	for i := range hidden {
		hidden[i] = make([]float32, m.Spec.Hidden)
		for k := range hidden[i] {
			hidden[i][k] = float32(math.Sin(float64(i*1000 + k)))
		}
		if i == sequences-1 {
			hidden[i][3] = float32(math.Inf(1))
			if _, err := alone.Scores(hidden[i], 0); err == nil {
				t.Fatal("an infinite hidden state gave logits")
			}
			continue
		}
		logits, err := alone.Scores(hidden[i], 0)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = slices.Clone(logits)
	}
	var wg sync.WaitGroup
	for i := range hidden {
		s := open()
		wg.Go(func() {
			for round := range rounds {
				top := []int{0, 1, 5}[(i+round/5)%3]
				scores, err := s.Scores(hidden[i], top)
				switch {
				case want[i] == nil && err == nil:
					t.Errorf("sequence %d: an infinite hidden state gave scores", i)
				case want[i] != nil && err != nil:
					t.Errorf("sequence %d: %v", i, err)
				case want[i] != nil && !sameScores(scores, want[i], top):
					t.Errorf("sequence %d: other scores than alone, of the most probable %d", i, top)
				}
			}
		})
	}
	wg.Wait()
}

// sameScores compares all logits, or at least the top most probable ones, with all logits.
func sameScores(scores, logits []float32, top int) bool {
	if len(scores) == len(logits) {
		return slices.Equal(scores, logits)
	}
	given := len(scores) / 2
	if top == 0 || given < top {
		return false
	}
	left := slices.Clone(logits)
	for i, id := range scores[:given] {
		if best := stage.Argmax(left); int(id) != best || scores[given+i] != left[best] {
			return false
		}
		left[int(id)] = float32(math.Inf(-1))
	}
	return true
}

// TestNextSamples: whether layers and readout are one program, two, or on two machines, and whatever a sampler looks at, the
// ids are those picked from all logits.
func TestNextSamples(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	o := localOptions{mode: units.Int8, context: 64, sessions: 2}
	near, _ := localHead(t, m, o)
	cut := o
	cut.cuts = cutAt(m.Spec.Layers, 2)
	cutHead, _ := localHead(t, m, cut)
	o.table = true
	ofIDs, _ := localHead(t, m, o)
	heads := []*stage.Head{near, cutHead, ofIDs, splitHead(t, m, cutAt(m.Spec.Layers, 2), o, nil)}
	prompt := longPrompt(t, m, 20)
	ctx := context.Background()
	for _, sampling := range []stage.Sampling{
		{}, {RepeatPenalty: 1.3}, {Temperature: 1.5, TopK: 1}, {Temperature: 1.5, TopK: 5}, {Temperature: 2, TopK: 64, MinP: 0.01},
		{Temperature: 2, TopK: 65}, {Temperature: 1, TopP: 0.9}, {Temperature: 1.2, TopK: 20, TopP: 0.8, RepeatPenalty: 1.1}, {Temperature: 1e-30, TopK: 3},
	} {
		seq, err := heads[3].Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sampler, history := stage.NewSampler(sampling), slices.Clone(prompt)
		for input := prompt; len(history) < len(prompt)+12; input = history[len(history)-1:] {
			hidden, err := seq.Forward(ctx, input)
			if err != nil {
				t.Fatal(err)
			}
			logits, err := seq.Scores(hidden, 0)
			if err != nil {
				t.Fatal(err)
			}
			history = append(history, sampler.Pick(logits, history))
		}
		seq.Close()
		for i, h := range heads {
			res, err := h.Generate(ctx, stage.GenerateOptions{Prompt: prompt, MaxTokens: 12, Sampling: sampling})
			if err != nil {
				t.Fatal(err)
			}
			if want := history[len(prompt):]; !slices.Equal(res.IDs, want) {
				t.Errorf("%+v, head %d: ids %v, want %v", sampling, i, res.IDs, want)
			}
		}
	}
}

// TestEachLogitsCancelled: the readout of a long text ends when it is told to.
func TestEachLogitsCancelled(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	h, _ := localHead(t, m, localOptions{mode: units.Int8, context: 128, sessions: 1, returnAll: true})
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stop")
	last := 0
	err := h.EachLogits(ctx, longPrompt(t, m, 120), func(pos int, _ []float32) error {
		last = pos
		cancel(stop)
		return nil
	})
	if !errors.Is(err, stop) || last > 64 {
		t.Errorf("went on to position %d, error %v", last, err)
	}
}
