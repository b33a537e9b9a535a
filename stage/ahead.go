package stage

import (
	"errors"
	"time"

	"dchain/units"
)

// Steps ahead. Where every row of a batch is the last of a session that asks for the most probable token and goes on with it, the
// device has all that the next step needs before the host has seen anything of this one: the engine begins the step before anybody
// has asked for it, and the device need not wait for tokens to be looked at. Those who ask then for just that are answered by it,
// and the results are what they would be otherwise: whatever does not match is thrown away and computed anew, and what it has
// stored in the cache lies at positions that are stored again before they are read. That holds for a slot that another session
// has got in the meantime too, since the device executes all of an engine in order.

// ahead is a step that has begun before it was asked for.
type ahead struct {
	exec units.Follower
	rows []aheadRow // in the order of the step
	out  []float32  // [rows][2]: the most probable token and its logit, once the step has been awaited
	from time.Time  // when the device could begin it
}

// aheadRow is what must be asked for to be answered by a row.
type aheadRow struct {
	session   int32
	slot, pos int
	id        float32
}

// row is the index of the row that answers a request, -1 for none.
func (a *ahead) row(r *request) int {
	if !single(r) {
		return -1
	}
	want := aheadRow{r.session, r.slot, r.pos, r.ids[0]}
	for i := range a.rows {
		if a.rows[i] == want {
			return i
		}
	}
	return -1
}

// single says that a request is of one id, after which the most probable token is asked for, and of nothing else.
func single(r *request) bool {
	return len(r.ids) == 1 && r.ask != nil && r.ask.top == 1 && !r.keep
}

// step executes one batch and completes its requests. steady says that the batch before was of the same sessions.
func (e *Engine) step(batch []*request, steady bool) {
	if e.ahead != nil {
		if batch = e.answer(batch); len(batch) == 0 {
			return
		}
	} else if exec := e.leads(batch, steady); exec != nil {
		e.lead(exec, batch)
		return
	}
	n := 0
	for _, r := range batch {
		n += r.n
	}
	e.run(batch, n)
}

// leads is the program of a batch that steps ahead are to follow; nil for one that is run by itself.
func (e *Engine) leads(batch []*request, steady bool) units.Follower {
	if !steady || e.ofIDs == nil || len(e.segments) > 1 || e.opts.Trace != nil || !goesOn(batch) {
		return nil
	}
	for _, r := range batch {
		if !single(r) {
			return nil
		}
	}
	exec, err := e.ofIDs.of(1)
	if err != nil {
		return nil // run meets it too, and reports it
	}
	f, _ := exec.(units.Follower)
	return f
}

// goesOn says that all of a batch are going to ask for what follows.
func goesOn(batch []*request) bool {
	for _, r := range batch {
		if r.ask == nil || !r.ask.more {
			return false
		}
	}
	return true
}

// lead runs a batch and begins the step after it.
func (e *Engine) lead(exec units.Follower, batch []*request) {
	a := &ahead{exec: exec, rows: make([]aheadRow, len(batch)), out: make([]float32, 2*len(batch)), from: time.Now()}
	rows, ids := make([]units.Row, len(batch)), make([]float32, len(batch))
	for i, r := range batch {
		rows[i], ids[i] = units.Row{Slot: r.slot, Pos: r.pos}, r.ids[0]
		a.rows[i] = aheadRow{r.session, r.slot, r.pos, r.ids[0]}
	}
	err := exec.Begin(rows, ids, a.out)
	if err == nil {
		err = e.finish(a, batch, true)
	}
	if err != nil {
		e.run(batch, len(batch)) // says which of them cannot be computed
	}
}

// answer completes those of a batch that ask for the step ahead, and returns the others.
func (e *Engine) answer(batch []*request) (rest []*request) {
	a := e.ahead
	e.ahead = nil
	asked := make([]*request, len(a.rows))
	for _, r := range batch {
		if i := a.row(r); i >= 0 {
			asked[i] = r
		} else {
			rest = append(rest, r)
		}
	}
	if len(rest) == len(batch) {
		a.exec.Abandon()
		return batch
	}
	if err := e.finish(a, asked, len(batch) == len(a.rows) && rest == nil && goesOn(batch)); err != nil {
		var row *units.OpError
		if errors.As(err, &row) {
			return batch // it may be a row that nobody has asked for
		}
		for _, r := range asked {
			if r != nil {
				r.done(nil, 0, err)
			}
		}
	}
	return rest
}

// finish waits for a step and completes the requests that its rows answer; nil is a row that nobody has asked for. If the step is
// to be followed the next is begun before. After an error no request is completed and nothing is under way.
func (e *Engine) finish(a *ahead, asked []*request, follow bool) error {
	var next *ahead
	if follow {
		if out := make([]float32, len(a.out)); a.exec.Follow(out) {
			next = &ahead{exec: a.exec, rows: make([]aheadRow, len(a.rows)), out: out}
		}
	}
	if err := a.exec.Wait(); err != nil {
		return err
	}
	end := time.Now()
	if next != nil {
		next.from = end
		for i, r := range a.rows {
			next.rows[i] = aheadRow{r.session, r.slot, r.pos + 1, a.out[2*i]}
		}
		e.ahead = next
	}
	n := 0
	for _, r := range asked {
		if r != nil {
			n++
		}
	}
	took := end.Sub(a.from)
	e.count(n, took)
	for i, r := range asked {
		if r != nil {
			r.ask.scores.top, r.ask.scores.values = 1, append(r.ask.scores.values[:0], a.out[2*i:2*i+2]...)
			r.done(nil, took, nil)
		}
	}
	return nil
}
