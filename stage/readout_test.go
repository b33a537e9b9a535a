package stage_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"dchain/plan"
	"dchain/stage"
)

// TestReadoutTogether: logits of sequences that ask at the same time are those each gets alone, and one whose hidden
// state is not finite fails alone.
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
			if _, err := alone.Logits(hidden[i]); err == nil {
				t.Fatal("an infinite hidden state gave logits")
			}
			continue
		}
		logits, err := alone.Logits(hidden[i])
		if err != nil {
			t.Fatal(err)
		}
		want[i] = slices.Clone(logits)
	}
	var wg sync.WaitGroup
	for i := range hidden {
		s := open()
		wg.Go(func() {
			for range rounds {
				logits, err := s.Logits(hidden[i])
				switch {
				case want[i] == nil && err == nil:
					t.Errorf("sequence %d: an infinite hidden state gave logits", i)
				case want[i] != nil && err != nil:
					t.Errorf("sequence %d: %v", i, err)
				case want[i] != nil && !slices.Equal(logits, want[i]):
					t.Errorf("sequence %d: other logits than alone", i)
				}
			}
		})
	}
	wg.Wait()
}
