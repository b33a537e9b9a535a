package stage

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"dchain/units"
)

// readout turns hidden rows into scores. The language-model head is a large part of the weights, so the rows of sequences
// that decode at the same time go through it together: the first one to come leads, gathers the others and computes for
// all.
type readout struct {
	hidden int // width of a row

	run   sync.Mutex // held while one of forms runs
	forms *forms

	mu      sync.Mutex // guards what follows
	crowd   crowd
	waiting []*readoutCall
	led     bool          // somebody gathers or computes
	come    chan struct{} // capacity 1; a call joined
}

// readoutCall is one row on its way through.
type readoutCall struct {
	sequence int32
	hidden   []float32
	ask      *ask
	lead     chan struct{} // capacity 1; the call is to lead the next batch
	done     chan error    // capacity 1; another call has computed this one
}

// row reads out one hidden row of a sequence.
func (r *readout) row(sequence int32, hidden []float32, a *ask) error {
	c := &readoutCall{sequence: sequence, hidden: hidden, ask: a, lead: make(chan struct{}, 1), done: make(chan error, 1)}
	if !r.join(c) {
		select {
		case err := <-c.done:
			return err
		case <-c.lead:
		}
	}
	return r.compute(r.gather(), c)
}

// join adds a call to the next batch and says whether it leads that one.
func (r *readout) join(c *readoutCall) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.come == nil {
		r.come = make(chan struct{}, 1)
	}
	r.waiting = append(r.waiting, c)
	if !r.led {
		r.led = true
		return true
	}
	select {
	case r.come <- struct{}{}:
	default:
	}
	return false
}

// gather waits a moment for the sequences that are likely to come and takes those that have.
func (r *readout) gather() []*readoutCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	want := r.crowd.expect()
	if len(r.waiting) < want {
		r.crowd.waited(r.await(want, r.crowd.patience()))
	}
	n := min(len(r.waiting), maxBatchRows)
	if r.crowd.full(n) {
		n = want
	}
	batch := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	return batch
}

// await waits until want calls are there and says whether they came in time. It is called with mu held.
func (r *readout) await(want int, patience time.Duration) bool {
	late := time.After(patience)
	for len(r.waiting) < want {
		r.mu.Unlock()
		select {
		case <-r.come:
			r.mu.Lock()
		case <-late:
			r.mu.Lock()
			return len(r.waiting) >= want
		}
	}
	return true
}

// compute runs a batch for its calls, hands the lead on and returns the error of its own call.
func (r *readout) compute(batch []*readoutCall, own *readoutCall) error {
	errs := r.rows(batch)

	r.mu.Lock()
	members := map[int32]bool{}
	for _, c := range batch {
		members[c.sequence] = true
	}
	r.crowd.ran(members)
	r.led = len(r.waiting) > 0
	if r.led {
		r.waiting[0].lead <- struct{}{}
	}
	r.mu.Unlock()

	var err error
	for i, c := range batch {
		if c == own {
			err = errs[i]
		} else {
			c.done <- errs[i]
		}
	}
	return err
}

// forget says that a sequence has ended.
func (r *readout) forget(sequence int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crowd.forget(sequence)
}

// rows computes a batch; when that fails, each row on its own, so that a sequence that cannot be computed does not take
// the others down. After a wrong result nothing of the batch can be trusted.
func (r *readout) rows(batch []*readoutCall) []error {
	errs := make([]error, len(batch))
	hidden := make([]float32, 0, len(batch)*r.hidden)
	asks := make([]*ask, len(batch))
	for i, c := range batch {
		hidden, asks[i] = append(hidden, c.hidden...), c.ask
	}
	err := r.scores(hidden, asks)
	if err == nil {
		return errs
	}
	var audit *units.AuditError
	alone := len(batch) > 1 && !errors.As(err, &audit)
	for i := range batch {
		if errs[i] = err; alone {
			errs[i] = r.scores(hidden[i*r.hidden:][:r.hidden], asks[i:i+1])
		}
	}
	return errs
}

// scores reads out hidden rows [len(asks)][Hidden].
func (r *readout) scores(hidden []float32, asks []*ask) error {
	r.run.Lock()
	defer r.run.Unlock()
	if err := r.forms.run(make([]units.Row, len(asks)), hidden, asks); err != nil {
		return fmt.Errorf("reading out logits: %w", err)
	}
	return nil
}
