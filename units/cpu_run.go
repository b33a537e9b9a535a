package units

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// OpError says which operation failed on which row of the batch.
type OpError struct {
	Op    OpKind
	Layer int // model layer
	Row   int // of the batch
	Err   error
}

func (e *OpError) Error() string {
	return fmt.Sprintf("%s of layer %d, row %d: %v", e.Op, e.Layer, e.Row, e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// state is what the operations of a program work on.
type state struct {
	prog  *Program
	kern  *kernels
	cache *cpuCache
	rows  []Row
	f32   [][]float32   // per buffer, [rows][width]; nil for limbs
	limbs []*limbBuffer // per buffer; nil for float32

	experts *expertState // of OpExperts; made when the first one runs

	mu  sync.Mutex
	err *OpError // guarded by mu: of the lowest row that failed
}

// fail records an error; of several the one with the lowest row is kept, so that threads do not decide.
func (st *state) fail(op *Op, row int, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil || row < st.err.Row {
		st.err = &OpError{op.Kind, op.Layer, row, err}
	}
}

// resize makes room for n rows in every buffer.
func (st *state) resize(n int) {
	for i, b := range st.prog.Bufs {
		if b.Kind == Limbs {
			st.limbs[i].resize(n)
		} else {
			st.f32[i] = grow(st.f32[i], n*b.Width)
		}
	}
}

func newState(p *Program, kern *kernels) *state {
	st := &state{prog: p, kern: kern, f32: make([][]float32, len(p.Bufs)), limbs: make([]*limbBuffer, len(p.Bufs))}
	st.cache, _ = p.Cache.(*cpuCache)
	for i, b := range p.Bufs {
		if b.Kind == Limbs {
			st.limbs[i] = newLimbBuffer(kern, b.Width)
		}
	}
	return st
}

// cpuExecutable interprets a program.
type cpuExecutable struct {
	dev     *cpuDevice
	prog    Program
	st      *state
	steps   []step
	scratch []scratch // per worker
	job     *job
	busy    atomic.Bool
	runs    uint64
	audit   *auditor // nil for none
}

// step is one dispatch: a single operation, or a group of linear ones.
type step struct {
	ops   []Op
	group *linearGroup
}

// audits says whether the audit of this run falls on the step.
func (s *step) audits(a *auditor) bool {
	if a != nil && a.op != nil {
		for i := range s.ops {
			if &s.ops[i] == a.op {
				return true
			}
		}
	}
	return false
}

func (d *cpuDevice) Compile(p Program) (Executable, error) {
	p.Bufs = append([]BufSpec(nil), p.Bufs...)
	p.Ops = append([]Op(nil), p.Ops...)
	if err := (&checker{dev: d, p: &p}).check(); err != nil {
		return nil, fmt.Errorf("compiling a program: %w", err)
	}
	e := &cpuExecutable{dev: d, prog: p, scratch: make([]scratch, d.threads), job: newJob()}
	e.st = newState(&e.prog, d.kern)
	if d.auditEvery > 0 {
		e.audit = newAuditor(&e.prog, d.auditEvery, d.compiled.Add(1))
	}
	for i := 0; i < len(p.Ops); {
		s := step{ops: e.prog.Ops[i : i+1]}
		if s.ops[0].Kind == OpLinear {
			s.group = e.groupFrom(i)
			s.ops = e.prog.Ops[i : i+len(s.group.ops)]
		}
		e.steps = append(e.steps, s)
		i += len(s.ops)
	}
	return e, nil
}

// groupFrom gathers the linear operations from index i on that read the same rows and write different ones.
func (e *cpuExecutable) groupFrom(i int) *linearGroup {
	g := &linearGroup{}
	panels := 0
	seen := map[Buf]bool{}
	for ; i < len(e.prog.Ops); i++ {
		op := &e.prog.Ops[i]
		if op.Kind != OpLinear || (len(g.ops) > 0 && op.A != g.ops[0].A) || seen[op.Dst] {
			break
		}
		seen[op.Dst] = true
		panels += len(op.Linear.(*cpuLinear).scale) / panelRows
		g.ops = append(g.ops, op)
		g.panelEnd = append(g.panelEnd, panels)
	}
	return g
}

// Close has nothing to do: all of it is Go memory.
func (e *cpuExecutable) Close() error { return nil }

func (e *cpuExecutable) Run(rows []Row, in, out []float32) error {
	if !e.busy.CompareAndSwap(false, true) {
		return errRunning
	}
	defer e.busy.Store(false)
	if err := e.dev.verdict.allow(); err != nil {
		return err
	}
	if err := e.prog.checkRows(rows, in, out); err != nil {
		return fmt.Errorf("running a program: %w", err)
	}
	st := e.st
	st.rows, st.err = rows, nil
	st.resize(len(rows))
	copy(st.f32[e.prog.In], in)
	e.runs++
	if e.audit != nil {
		e.audit.choose(&e.prog, e.runs, len(rows))
	}
	e.dev.pool.begin()
	defer e.dev.pool.end()
	for i := range e.steps {
		if err := e.runStep(&e.steps[i]); err != nil {
			e.dev.verdict.note(err)
			return fmt.Errorf("running a program: %w", err)
		}
	}
	width := e.prog.Bufs[e.prog.Out].Width
	first := len(rows) - len(out)/width
	for r := first; r < len(rows); r++ {
		y := st.f32[e.prog.Out][r*width : (r+1)*width]
		if st.kern.absMax(y) >= infBits {
			op := e.prog.lastWriter()
			return fmt.Errorf("running a program: %w", &OpError{op.Kind, op.Layer, r, errNotFinite})
		}
		copy(out[(r-first)*width:], y)
	}
	return nil
}
