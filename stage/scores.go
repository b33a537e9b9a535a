package stage

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"dchain/transport"
	"dchain/units"
)

// Candidates is how many of the most probable tokens a readout gives a sampler that asks for several.
const Candidates = 64

// ask is what somebody wants of the readout of a row, and the answer.
type ask struct {
	top    int  // the most probable tokens; 0 is the logits of all
	more   bool // if top is 1, that token will be pushed next
	scores scores
}

// wire is the number of tokens as a stage is asked for it.
func (a *ask) wire() int {
	if a.top > Candidates {
		return 0 // only all logits will do
	}
	return a.top
}

// scores are a row read out. Its memory is used again for the next answer.
type scores struct {
	top    int       // 0: values are all logits
	values []float32 // [vocab], or [2*top]: ids, most probable first, then logits
}

// sealScores are scores as a frame of their row carries them to the head: the number of tokens, then the values.
func sealScores(seq int32, pos int, model uint32, s *scores) *transport.Activation {
	a := transport.NewActivation(1 + len(s.values))
	a.Hidden[0] = float32(s.top)
	copy(a.Hidden[1:], s.values)
	a.Seq, a.TokenIdx, a.NextIndex, a.ModelHash = seq, int32(pos), transport.Return, model
	a.Seal()
	return a
}

// parseScores are scores from a stage, which may be of more tokens than the top that were asked for, or of all of vocab. A
// sampler relies on their order, and on finite logits. There is at least one number: no activation is without.
func parseScores(numbers []float32, top, vocab int) (scores, error) {
	s := scores{top: int(numbers[0]), values: numbers[1:]}
	want := 2 * s.top
	if s.top == 0 {
		want = vocab
	}
	all := s.top == 0 || s.top == vocab
	if n := numbers[0]; n != float32(s.top) || s.top < 0 || s.top > vocab || len(s.values) != want || top == 0 && s.top != 0 || s.top < top && !all {
		return s, fmt.Errorf("%d numbers for %v tokens came back, not the scores of %d of %d", len(s.values), n, top, vocab)
	}
	ids, logits := s.values[:s.top], s.values[s.top:]
	for i, l := range logits {
		if l-l != 0 {
			return s, fmt.Errorf("a logit of %v came back", l)
		}
		if i > 0 && s.top != 0 && !(l < logits[i-1] || l == logits[i-1] && ids[i] > ids[i-1]) {
			return s, fmt.Errorf("scores came back out of order: token %v after %v", ids[i], ids[i-1])
		}
	}
	seen := make(map[float32]bool, s.top)
	for _, id := range ids {
		if !(id >= 0 && id < float32(vocab)) || id != float32(int(id)) || seen[id] {
			return s, fmt.Errorf("a score of token %v came back, which is outside the vocabulary of %d or has one already", id, vocab)
		}
		seen[id] = true
	}
	return s, nil
}

// forms are a program that ends in a readout, once for each kind of scores, compiled when it is first asked for. One of them
// runs at a time.
type forms struct {
	vocab   int
	compile func(top int) (units.Executable, error)
	made    map[int]units.Executable
	out     []float32 // of a batch
}

// readout is the readout of w alone, of hidden rows.
func (w *Weights) readout() *forms {
	return &forms{vocab: w.Model.Spec.Vocab, compile: func(top int) (units.Executable, error) {
		p, err := readoutProgram(w, top)
		if err != nil {
			return nil, err
		}
		return w.dev.Compile(p)
	}}
}

// whole is all layers of w, with their cache, and the readout.
func (w *Weights) whole(cache units.Cache) *forms {
	return &forms{vocab: w.Model.Spec.Vocab, compile: func(top int) (units.Executable, error) {
		p, err := modelProgram(w, cache, top)
		if err != nil {
			return nil, err
		}
		return w.dev.Compile(p)
	}}
}

// topOf is the least that the programs give and that answers the asks: 1 token, Candidates of them, or 0, all logits.
func (f *forms) topOf(asks []*ask) int {
	most := 1
	for _, a := range asks {
		if a.top == 0 || a.top > Candidates {
			return 0
		}
		most = max(most, a.top)
	}
	if most > 1 {
		return min(Candidates, f.vocab)
	}
	return most
}

// of is the program that gives so many tokens, or with 0 all logits.
func (f *forms) of(top int) (units.Executable, error) {
	if exec := f.made[top]; exec != nil {
		return exec, nil
	}
	exec, err := f.compile(top)
	if err != nil {
		return nil, fmt.Errorf("compiling the readout: %w", err)
	}
	if f.made == nil {
		f.made = map[int]units.Executable{}
	}
	f.made[top] = exec
	return exec, nil
}

// run answers one ask for each row.
func (f *forms) run(rows []units.Row, hidden []float32, asks []*ask) error {
	top := f.topOf(asks)
	exec, err := f.of(top)
	if err != nil {
		return err
	}
	width := f.vocab
	if top > 0 {
		width = 2 * top
	}
	for _, a := range asks {
		a.scores.top, a.scores.values = top, slices.Grow(a.scores.values[:0], width)[:width]
	}
	if len(asks) == 1 {
		return exec.Run(rows, hidden, asks[0].scores.values)
	}
	f.out = slices.Grow(f.out[:0], len(asks)*width)[:len(asks)*width]
	if err := exec.Run(rows, hidden, f.out); err != nil {
		return err
	}
	if top > 0 {
		for i, a := range asks {
			copy(a.scores.values, f.out[i*width:])
		}
		return nil
	}
	var copies sync.WaitGroup // megabytes
	for i, a := range asks {
		copies.Go(func() { copy(a.scores.values, f.out[i*width:]) })
	}
	copies.Wait()
	return nil
}

// close gives back the programs.
func (f *forms) close() error {
	var errs []error
	for _, exec := range f.made {
		errs = append(errs, exec.Close())
	}
	return errors.Join(errs...)
}
