package units

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// GateShapes are the shapes a stage is going to use; a part that is zero is not gated.
type GateShapes struct {
	Linears []LinearShape
	// Norms, Acts and Embeds are widths of normalised rows, of activations and of the rows of tables.
	Norms, Acts, Embeds []int
	// Heads x HeadDim queries over KVHeads, RotaryDim rotated channels, up to Context positions.
	Heads, KVHeads, HeadDim int
	RotaryDim               int
	Interleaved             bool // channels that are rotated together are neighbours
	Context                 int
	// Cap and ALiBi are the variants of attention in use; the window is always tried.
	Cap     float32
	ALiBi   bool
	Experts ExpertShape
	Tops    []TopShape
}

// TopShape is the K largest of Width values.
type TopShape struct{ Width, K int }

// ExpertShape is a mixture of Count experts, TopK of them for each row; the zero value is none.
type ExpertShape struct {
	Count, TopK   int
	Hidden, Inter int
	Mode          WeightMode
	Act           ActKind
}

// LinearShape is an N x K matrix in a weight format.
type LinearShape struct {
	N, K int
	Mode WeightMode
}

// GateReport lists what a device has computed bit for bit like the plain reference.
type GateReport struct {
	Device string
	Checks []GateCheck
	Took   time.Duration
}

// GateCheck is one comparison: Values results for inputs of every kind.
type GateCheck struct {
	Op     OpKind
	Shape  string
	Values int
}

// GateError is the first wrong bit.
type GateError struct {
	Device      string
	Op          OpKind
	Shape       string
	Input       string // kind of input of the row
	Row, Column int
	Got, Want   float32
}

func (e *GateError) Error() string {
	return fmt.Sprintf("%s: %s %s, %s input, row %d, column %d: computed %v (%08x), the reference gives %v (%08x)", e.Device, e.Op,
		e.Shape, e.Input, e.Row, e.Column, e.Got, math.Float32bits(e.Got), e.Want, math.Float32bits(e.Want))
}

const (
	// gateWeights bounds the weights of a gated matrix: of a larger one fewer output rows are tried, all of the inputs
	// and the same remainder of rows.
	gateWeights = 1 << 20
	// gateContext bounds the positions filled before the longest attention row.
	gateContext = 2048
)

// Gate runs every kind of operation at the given shapes on seeded random and extreme inputs, in batches and row by row,
// and compares with the plain reference bit for bit. It returns *GateError on the first wrong bit.
func Gate(dev Device, shapes GateShapes) (GateReport, error) {
	start := time.Now()
	report := GateReport{Device: dev.Name()}
	// Weights are no memory of the collector's: what it has not collected when they come, it leaves beside all of them.
	defer debug.FreeOSMemory()
	threads := gateThreads(dev)
	// Some checks take several times as long as others: there are threads to help those that are left.
	ref, err := newCPU(CPUOptions{Threads: max(1, threads/4)}, &genericKernels)
	if err != nil {
		return report, err
	}
	defer ref.Close()
	gates := make([]*gate, 0, 32)
	var failed atomic.Bool
	var run errgroup.Group
	run.SetLimit(threads)
	var turn sync.Mutex
	for _, check := range gateChecks(shapes) {
		if failed.Load() { // the first wrong bit in order is among those that run
			break
		}
		g := newGate(dev, ref, &turn)
		gates = append(gates, g)
		run.Go(func() error {
			if g.err = errors.Join(check(g), g.close()); g.err != nil {
				failed.Store(true)
			}
			return nil
		})
	}
	run.Wait()
	Metrics.Gates.Add(1)
	for _, g := range gates {
		report.Checks = append(report.Checks, g.checks...)
		if g.err != nil {
			if WrongBit(g.err) {
				Metrics.WrongBits.Add(1)
			}
			return report, fmt.Errorf("gating %s: %w", dev.Name(), g.err)
		}
	}
	report.Took = time.Since(start)
	return report, nil
}

// gateThreads is how many checks run at a time: nearly all their time goes into the reference.
func gateThreads(dev Device) int {
	if d, ok := dev.(*cpuDevice); ok {
		return d.threads
	}
	return DefaultThreads()
}

// gate is one of the checks.
type gate struct {
	dev, ref *scope
	turn     *sync.Mutex // held while dev runs, so that it has all its threads
	seed     uint64
	checks   []GateCheck
	err      error
}

func newGate(dev, ref Device, turn *sync.Mutex) *gate {
	return &gate{dev: &scope{Device: dev}, ref: &scope{Device: ref}, turn: turn, seed: 1}
}

// close gives back what the check made on the devices.
func (g *gate) close() error { return errors.Join(g.dev.Close(), g.ref.Close()) }

// gateChecks are the checks of the shapes, which do not depend on each other.
func gateChecks(s GateShapes) []func(*gate) error {
	var checks []func(*gate) error
	add := func(check func(*gate) error) { checks = append(checks, check) }
	seen := map[LinearShape]bool{}
	linears := slices.Clone(s.Linears)
	for _, l := range s.Linears {
		// So few inputs no device shares out, as it may those of all the others.
		linears = append(linears, LinearShape{130, 64, l.Mode})
	}
	for _, l := range linears {
		if !seen[l] {
			seen[l] = true
			add(func(g *gate) error { return g.linear(l) })
		}
	}
	modes := s.modes()
	for _, w := range s.Norms {
		for _, norm := range gateNorms {
			add(func(g *gate) error { return g.norms(w, norm) })
			for _, mode := range modes {
				add(func(g *gate) error { return g.normedMatrices(w, norm, mode) })
			}
		}
	}
	for _, w := range s.Acts {
		add(func(g *gate) error { return g.acts(w) })
	}
	for _, w := range s.Embeds {
		add(func(g *gate) error { return g.embeds(w) })
	}
	if len(s.Embeds) > 0 {
		add((*gate).follows)
	}
	for _, t := range s.Tops {
		add(func(g *gate) error { return g.top(t) })
	}
	if s.Experts.Count > 0 {
		add(func(g *gate) error { return g.experts(s.Experts) })
	}
	if s.Heads > 0 && s.RotaryDim > 0 {
		add(func(g *gate) error { return g.rope(s) })
		for _, bias := range []bool{false, true} {
			add(func(g *gate) error { return g.heads(s, bias) })
		}
	}
	if s.Heads > 0 {
		ctx := min(s.Context, gateContext)
		for _, window := range []int{0, max(1, ctx/3)} {
			add(func(g *gate) error { return g.attention(s, ctx, window) })
		}
	}
	return checks
}

// modes are the formats of the matrices that follow norms.
func (s *GateShapes) modes() []WeightMode {
	var modes []WeightMode
	for _, l := range s.Linears {
		modes = append(modes, l.Mode)
	}
	if s.Experts.Count > 0 {
		modes = append(modes, Int8x2) // of routers
	}
	if len(modes) == 0 {
		modes = []WeightMode{Int8}
	}
	slices.Sort(modes)
	return slices.Compact(modes)
}

// builder makes the program to compare on one of the two devices; it must draw the same numbers each time.
type builder func(d Device, s *gateSeries) (Program, error)

// pair compiles the program on both devices.
func (g *gate) pair(build builder) (dev, ref Executable, width int, err error) {
	var e [2]Executable
	for i, d := range []*scope{g.dev, g.ref} {
		s := gateSeries(g.seed)
		p, err := build(d, &s)
		if err != nil {
			return nil, nil, 0, err
		}
		if e[i], err = d.Compile(p); err != nil {
			return nil, nil, 0, err
		}
		width = p.Bufs[p.Out].Width
	}
	return e[0], e[1], width, nil
}

// check compares the two for each kind of input row, together and alone.
func (g *gate) check(op OpKind, shape string, inWidth int, build builder) error {
	dev, ref, width, err := g.pair(build)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, shape, err)
	}
	s := gateSeries(g.seed + 1)
	n := len(gateInputs)
	in := make([]float32, n*inWidth)
	rows := make([]Row, n)
	for i, input := range gateInputs {
		input.fill(in[i*inWidth:(i+1)*inWidth], &s)
		rows[i] = Row{Pos: i}
	}
	steps := g.stepsOf(op)
	batches := [][]Row{rows}
	for count := 1; count < n; count *= 2 {
		batches = append(batches, rows[:count])
	}
	for _, size := range steps {
		batches = append(batches, make([]Row, size))
	}
	if err := prepare(dev, batches...); err != nil {
		return fmt.Errorf("%s %s: %w", op, shape, err)
	}
	want, got := make([]float32, n*width), make([]float32, n*width)
	if err := ref.Run(rows, in, want); err != nil {
		return fmt.Errorf("%s %s, reference: %w", op, shape, err)
	}
	// All rows in one batch, then the first alone, two, four, ...
	for first, count := 0, n; first < n; {
		part := got[first*width : (first+count)*width]
		if err := g.run(dev, rows[first:first+count], in[first*inWidth:(first+count)*inWidth], part); err != nil {
			return fmt.Errorf("%s %s: %w", op, shape, err)
		}
		if err := g.compare(op, shape, first, part, want[first*width:(first+count)*width], width); err != nil {
			return err
		}
		if count == n {
			count = 1
			continue
		}
		first += count
		count = min(2*count, n-first)
	}
	g.checks = append(g.checks, GateCheck{op, shape, 2 * n * width})
	for _, size := range steps {
		if err := g.repeated(dev, op, shape, size, in, want); err != nil {
			return err
		}
	}
	return nil
}

// batchStepper is a device that computes linear operations, experts, and norms if it merges them, in other ways from certain sizes
// of batch on.
type batchStepper interface{ batchSteps() []int }

// merger is a device that computes some operations together with their neighbours.
type merger interface{ merges() bool }

func (g *gate) merges() bool {
	d, ok := g.dev.Device.(merger)
	return ok && d.merges()
}

// stepsOf are those sizes, for an operation that has some.
func (g *gate) stepsOf(op OpKind) []int {
	if b, ok := g.dev.Device.(batchStepper); ok && (op == OpLinear || op == OpExperts || op == OpNorm && g.merges()) {
		return b.batchSteps()
	}
	return nil
}

// repeated compares a large batch of the input rows in turn, and then of the first alone: one in which wide rows are
// everywhere, and one without.
func (g *gate) repeated(dev Executable, op OpKind, shape string, size int, in, want []float32) error {
	n := len(gateInputs)
	inWidth, width := len(in)/n, len(want)/n
	rows, batch := make([]Row, size), make([]float32, 0, size*inWidth)
	expect, got := make([]float32, 0, size*width), make([]float32, size*width)
	for _, kinds := range []int{n, 1} {
		batch, expect = batch[:0], expect[:0]
		for i := range size {
			k := i % kinds
			batch = append(batch, in[k*inWidth:(k+1)*inWidth]...)
			expect = append(expect, want[k*width:(k+1)*width]...)
		}
		shape := fmt.Sprintf("%s, batch of %d", shape, size)
		if err := g.run(dev, rows, batch, got); err != nil {
			return fmt.Errorf("%s %s: %w", op, shape, err)
		}
		if err := g.compare(op, shape, 0, got, expect, width); err != nil {
			if wrong, ok := err.(*GateError); ok {
				wrong.Input = gateInputs[wrong.Row%kinds].name
			}
			return err
		}
		g.checks = append(g.checks, GateCheck{op, shape, size * width})
	}
	return nil
}

// preparer is a program that has much to do before the first runs with batches like these, which may be done while others run.
type preparer interface{ prepare(batches ...[]Row) error }

func prepare(dev Executable, batches ...[]Row) error {
	if p, ok := dev.(preparer); ok {
		return p.prepare(batches...)
	}
	return nil
}

// run is Run of the device to be gated.
func (g *gate) run(dev Executable, rows []Row, in, out []float32) error {
	g.turn.Lock()
	defer g.turn.Unlock()
	return dev.Run(rows, in, out)
}

func (g *gate) compare(op OpKind, shape string, first int, got, want []float32, width int) error {
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			row := first + i/width
			return &GateError{g.dev.Name(), op, shape, gateInputs[row%len(gateInputs)].name, row, i % width, got[i], want[i]}
		}
	}
	return nil
}

// linear gates OpQuantize and OpLinear, without and with a bias, and outputs that are added to a row where the device merges that.
func (g *gate) linear(l LinearShape) error {
	const outputs = 16 // of those
	n := l.N
	if n*l.K > gateWeights {
		n = min(n, max(1, gateWeights/l.K/64)*64+n%64)
	}
	matrices := map[Device]Linear{}
	for _, bias := range []bool{false, true} {
		err := g.check(OpLinear, fmt.Sprintf("%dx%d %v, %d rows of it, bias %v", l.N, l.K, l.Mode, n, bias), l.K,
			func(d Device, s *gateSeries) (Program, error) {
				var err error
				if matrices[d] == nil {
					if matrices[d], err = s.linear(d, n, l.K, l.Mode); err != nil {
						return Program{}, err
					}
				}
				op := Op{Kind: OpLinear, Dst: 2, A: 1, B: None, Linear: matrices[d]}
				if bias {
					if op.Bias, err = d.NewVector("gate", s.values(n, 1)); err != nil {
						return Program{}, err
					}
				}
				return Program{In: 0, Out: 2, Bufs: []BufSpec{{F32, l.K}, {Limbs, l.K}, {F32, n}},
					Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}, op}}, nil
			})
		if err != nil {
			return err
		}
		if !g.merges() {
			continue
		}
		err = g.check(OpLinear, fmt.Sprintf("%dx%d %v, %d rows of it, bias %v, added", l.N, l.K, l.Mode, outputs, bias), l.K,
			func(d Device, s *gateSeries) (Program, error) {
				matrix, err := s.linear(d, outputs, l.K, l.Mode)
				quantise, op := Op{Kind: OpQuantize, Dst: 1, A: 0, B: None}, Op{Kind: OpLinear, Dst: 2, A: 1, B: None, Linear: matrix}
				if bias && err == nil {
					op.Bias, err = d.NewVector("gate", s.values(outputs, 1))
				}
				row := op
				row.Dst = 3
				return Program{In: 0, Out: 3, Bufs: []BufSpec{{F32, l.K}, {Limbs, l.K}, {F32, outputs}, {F32, outputs}},
					Ops: []Op{quantise, row, {Kind: OpScale, Dst: 3, A: 3, B: None, Scale: -0.7}, quantise, op, {Kind: OpAdd, Dst: 3, A: 3, B: 2}}}, err
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// top gates OpTop, on rows of values that are all different and of few.
func (g *gate) top(s TopShape) error {
	return g.check(OpTop, fmt.Sprintf("%d of %d", s.K, s.Width), s.Width, func(Device, *gateSeries) (Program, error) {
		return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, s.Width}, {F32, 2 * s.K}},
			Ops: []Op{{Kind: OpTop, Dst: 1, A: 0, B: None, TopK: s.K}}}, nil
	})
}

func (g *gate) rope(s GateShapes) error {
	width := s.Heads * s.HeadDim
	for _, interleaved := range []bool{false, true} {
		shape := fmt.Sprintf("%d heads of %d, %d rotary, interleaved %v", s.Heads, s.HeadDim, s.RotaryDim, interleaved)
		err := g.check(OpRope, shape, width, func(d Device, _ *gateSeries) (Program, error) {
			op := Op{Kind: OpRope, Dst: 0, A: None, B: None, Heads: s.Heads, HeadDim: s.HeadDim, RotaryDim: s.RotaryDim, Interleaved: interleaved}
			cos, sin := RopeTables(len(gateInputs), s.RotaryDim, 10000)
			var err error
			if op.Cos, err = d.NewVector("gate", cos); err != nil {
				return Program{}, err
			}
			if op.Sin, err = d.NewVector("gate", sin); err != nil {
				return Program{}, err
			}
			return Program{In: 0, Out: 0, Bufs: []BufSpec{{F32, width}}, Ops: []Op{op}}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
