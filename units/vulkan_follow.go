package units

import (
	"errors"
	"fmt"
	"slices"

	"dchain/units/vk"
)

// flight is a step that has begun and has not been awaited.
type flight struct {
	rows    []Row
	in      []float32 // nil until the step before has been awaited
	out     []float32
	lane    int
	pending *vk.Pending // nil for one that is run by Wait
	audited bool
}

// Begin leaves it to Wait to run what one submission does not take.
func (e *vulkanExecutable) Begin(rows []Row, in, out []float32) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.busy.Store(false)
	if err := e.takes(rows, in, out); err != nil {
		return err
	}
	f := flight{rows: slices.Clone(rows), in: slices.Clone(in), out: out}
	if len(rows) <= e.maxRows {
		if err := e.fly(&f); err != nil {
			return e.failing(err)
		}
	}
	e.flights = append(e.flights, f)
	return nil
}

func (e *vulkanExecutable) Follow(out []float32) bool {
	if e.enter() != nil {
		return false
	}
	defer e.busy.Store(false)
	if len(e.flights) != 1 || e.alone {
		return false
	}
	before := &e.flights[0]
	if before.pending == nil || e.lastOnly(before) || before.audited && e.audit.due() { // one audit at a time
		return false
	}
	if len(out) != len(before.out) {
		panic(fmt.Sprintf("units: out has %d values, in the step before %d", len(out), len(before.out)))
	}
	f := flight{rows: slices.Clone(before.rows), out: out, lane: 1 - before.lane}
	for i := range f.rows {
		if f.rows[i].Pos++; e.positions > 0 && f.rows[i].Pos == e.positions {
			return false
		}
	}
	if err := e.fly(&f); err != nil {
		// The step under way reports that the device is lost. Where there is no room for a second step, the program goes on without.
		e.alone = true
		if f.audited {
			e.audit.forgo()
		}
		if e.dev.note != nil && !errors.Is(err, vk.ErrDeviceLost) {
			e.dev.note(fmt.Sprintf("steps wait for each other: %v", err))
		}
		return false
	}
	e.flights = append(e.flights, f)
	return true
}

// fly submits a step. Without in it takes that from the step before.
func (e *vulkanExecutable) fly(f *flight) error {
	r, err := e.recordingOf(f)
	if err != nil {
		return err
	}
	e.fill(&e.lanes[f.lane], f.rows, f.in)
	if e.audit != nil {
		f.audited = e.audit.due()
		e.audit.runs++
	}
	if f.audited {
		f.pending, err = e.audit.submit(r, f.rows)
	} else {
		f.pending, err = e.dev.vk.Submit(r.cmds)
	}
	return err
}

func (e *vulkanExecutable) Wait() error {
	if !e.busy.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.busy.Store(false)
	if len(e.flights) == 0 {
		return errNoStep
	}
	f := e.flights[0]
	e.flights = slices.Delete(e.flights, 0, 1)
	err := e.land(&f)
	if err != nil {
		err = e.failing(err)
	} else {
		err = e.dev.verdict.allow() // another program may have met a wrong bit in the meantime
	}
	if err != nil {
		e.abandon()
		return err
	}
	if len(e.flights) > 0 {
		e.flights[0].in = e.carried(&f)
	}
	return nil
}

// land waits for a step, which is none of the flights any more, and reads what it has computed.
func (e *vulkanExecutable) land(f *flight) error {
	if f.pending == nil {
		return e.submitAll(f.rows, f.in, f.out)
	}
	if err := f.pending.Wait(); err != nil {
		return err
	}
	l := &e.lanes[f.lane]
	if f.audited {
		if err := e.audit.end(l); err != nil {
			return err
		}
	}
	if l.stalled() {
		// Its rows are wrong, and so are those of the step after it. What they have stored in the cache is stored again at the same
		// positions.
		e.dev.unchain()
		for i := range e.flights {
			if err := e.ground(&e.flights[i]); err != nil {
				return err
			}
		}
		return e.submit(f.rows, f.in, f.out)
	}
	return e.collect(l, len(f.rows), f.out)
}

// ground waits for a step and leaves it to Wait to run it anew.
func (e *vulkanExecutable) ground(f *flight) error {
	if f.pending == nil {
		return nil
	}
	Metrics.Abandoned.Add(1)
	err := f.pending.Wait()
	if f.audited {
		e.audit.forgo()
	}
	f.pending = nil
	return err
}

func (e *vulkanExecutable) Abandon() { e.abandon() }

// abandon is Abandon; whoever frees what a step uses calls it before.
func (e *vulkanExecutable) abandon() {
	for i := range e.flights {
		if err := e.ground(&e.flights[i]); err != nil {
			e.dev.verdict.note(err)
		}
	}
	e.flights = nil
}

// carried is In of the step after f.
func (e *vulkanExecutable) carried(f *flight) []float32 {
	from, to := e.prog.Bufs[e.prog.Out].Width, e.prog.Bufs[e.prog.In].Width
	in := make([]float32, 0, len(f.rows)*to)
	for row := range slices.Chunk(f.out, from) {
		in = append(in, row[:to]...)
	}
	return in
}

// followable says whether Out of a row can be In of the next.
func followable(p *Program) bool {
	in, out := p.Bufs[p.In], p.Bufs[p.Out]
	return in.Kind == F32 && out.Kind == F32 && in.Width <= out.Width
}
