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
}

// Begin leaves it to Wait to run a step that is to be audited, or that one submission does not take.
func (e *vulkanExecutable) Begin(rows []Row, in, out []float32) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.busy.Store(false)
	if len(e.flights) > 0 {
		return errUnderWay
	}
	if err := e.prog.checkRows(rows, in, out); err != nil {
		return fmt.Errorf("running a program: %w", err)
	}
	f := flight{rows: slices.Clone(rows), in: slices.Clone(in), out: out}
	if len(rows) <= e.maxRows && (e.audit == nil || !e.audit.dueNext()) {
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
	if len(e.flights) != 1 || e.flights[0].pending == nil || e.alone || e.audit != nil && e.audit.dueNext() {
		return false
	}
	before := &e.flights[0]
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
		if e.dev.note != nil && !errors.Is(err, vk.ErrDeviceLost) {
			e.dev.note(fmt.Sprintf("steps wait for each other: %v", err))
		}
		return false
	}
	e.flights = append(e.flights, f)
	return true
}

// fly submits a step.
func (e *vulkanExecutable) fly(f *flight) (err error) {
	if e.audit != nil {
		e.audit.due() // counts it
	}
	f.pending, err = e.launch(f.rows, f.in, f.lane)
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
	if err == nil {
		err = e.dev.verdict.allow() // another program may have met a wrong bit in the meantime
	}
	if err != nil {
		e.abandon()
		return e.failing(err)
	}
	if len(e.flights) > 0 {
		e.flights[0].in = e.carried(&f)
	}
	return nil
}

// land waits for a step that is no longer one of the flights.
func (e *vulkanExecutable) land(f *flight) error {
	if f.pending != nil {
		if err := f.pending.Wait(); err != nil {
			return err
		}
		if l := &e.lanes[f.lane]; !l.stalled() {
			return e.collect(l, len(f.rows), f.out)
		}
		e.dev.unchain()
		if len(e.flights) > 0 { // what it has followed is wrong
			if err := e.ground(&e.flights[0]); err != nil {
				return err
			}
		}
	}
	return e.submitAll(f.rows, f.in, f.out)
}

// ground waits for a step and leaves it to Wait to run it anew.
func (e *vulkanExecutable) ground(f *flight) error {
	if f.pending == nil {
		return nil
	}
	Metrics.Abandoned.Add(1)
	err := f.pending.Wait()
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

// carry records what carried computes.
func (r *recording) carry() {
	e := r.exec
	before, next := r.prog.Out, r.prog.In
	from, to := r.prog.Bufs[before].Width, r.prog.Bufs[next].Width
	switch {
	case before == next:
	case r.rows == 1 || from == to:
		r.cmds.Copy(e.bufs[next], 0, e.bufs[before], 0, 4*int64(r.rows*to))
	default:
		const threads = 64
		s := shader{name: "carry", constants: []uint32{threads}}
		groups := min(ceilDiv(r.rows*to, threads), r.dev.info.MaxGroups[0])
		r.dispatch(s, pushConstants(r.rows*to, from, to), groups, 1, 1, read(r.buffer(before)), write(r.buffer(next)))
		r.pending = r.pending[:0] // the barrier after the copies orders it
	}
}

// followable says whether Out of a row can be In of the next.
func followable(p *Program) bool {
	in, out := p.Bufs[p.In], p.Bufs[p.Out]
	return in.Kind == F32 && out.Kind == F32 && in.Width <= out.Width
}
