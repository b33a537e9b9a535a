package stage

import (
	"context"
	"fmt"
	"math"
	"time"

	"dchain/plan"
)

// Evaluation is a negative log-likelihood over a text.
type Evaluation struct {
	NLL        float64 `json:"nll"` // mean over the scored tokens, in nats
	Perplexity float64 `json:"perplexity"`
	Tokens     int     `json:"tokens"` // tokens read, the first of each window included
	Scored     int     `json:"scored"`
	Seconds    float64 `json:"seconds"`
	TokensPerS float64 `json:"tokens_per_second"`
}

// Evaluate cuts ids into windows without overlap and averages -log p of every token but the first of its window, which is
// context only. A last window of one token scores nothing. The head's last stage must return all rows.
func (h *Head) Evaluate(ctx context.Context, ids []int, window int, progress func(done, total int)) (Evaluation, error) {
	var ev Evaluation
	if window < 2 {
		return ev, fmt.Errorf("evaluating: a window of %s scores nothing, take at least 2", plan.Plural(window, "token"))
	}
	start := time.Now()
	var sum float64
	for at := 0; at < len(ids); at += window {
		part := ids[at:min(at+window, len(ids))]
		err := h.EachLogits(ctx, part, func(pos int, logits []float32) error {
			if pos+1 < len(part) {
				sum -= LogProbability(logits, part[pos+1])
				ev.Scored++
			}
			return nil
		})
		if err != nil {
			return ev, fmt.Errorf("evaluating tokens %d-%d: %w", at, at+len(part)-1, err)
		}
		ev.Tokens += len(part)
		if progress != nil {
			progress(ev.Tokens, len(ids))
		}
	}
	if ev.Scored == 0 {
		return ev, fmt.Errorf("evaluating %s: nothing to score, at least 2 are needed", plan.Plural(len(ids), "token"))
	}
	ev.NLL = sum / float64(ev.Scored)
	ev.Perplexity = math.Exp(ev.NLL)
	ev.Seconds = time.Since(start).Seconds()
	ev.TokensPerS = float64(ev.Tokens) / ev.Seconds
	return ev, nil
}

// readoutRows bounds the logits held at a time.
const readoutRows = 32

// EachLogits runs ids as one sequence and calls each with the logits of every position, which may be altered but not kept.
func (h *Head) EachLogits(ctx context.Context, ids []int, each func(pos int, logits []float32) error) error {
	seq, err := h.Open(ctx)
	if err != nil {
		return err
	}
	defer seq.Close()
	hidden, err := seq.Forward(ctx, ids)
	if err != nil {
		return err
	}
	width := h.Model.Spec.Hidden
	if len(hidden) != len(ids)*width {
		return fmt.Errorf("reading out %d positions: the last stage returned %d", len(ids), len(hidden)/width)
	}
	asks := make([]*ask, min(readoutRows, len(ids)))
	for i := range asks {
		asks[i] = &ask{}
	}
	for at := 0; at < len(ids); at += readoutRows {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(readoutRows, len(ids)-at)
		if err := h.readout.scores(hidden[at*width:][:n*width], asks[:n]); err != nil {
			return err
		}
		for i := range n {
			if err := each(at+i, asks[i].scores.values); err != nil {
				return err
			}
		}
	}
	return nil
}

// LogProbability is the log-softmax of logits at id, in float64. It measures the model and never feeds back into it.
func LogProbability(logits []float32, id int) float64 {
	top := float64(logits[Argmax(logits)])
	var sum float64
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}
