package units

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
)

// gateCommon is what the checks of a device share.
type gateCommon struct {
	ctx      context.Context // when it ends, no more is run
	dev, ref *scope
	turn     sync.Mutex // held while dev runs, so that it has all its threads

	mu       sync.Mutex
	matrices map[gateMatrix]func() (Linear, error) // guarded by mu
}

// gateMatrix names a random matrix of a device: the i-th of its shape.
type gateMatrix struct {
	LinearShape
	i   int
	ref bool
}

func newGateCommon(ctx context.Context, dev, ref Device) *gateCommon {
	return &gateCommon{ctx: ctx, dev: &scope{Device: dev}, ref: &scope{Device: ref}, matrices: map[gateMatrix]func() (Linear, error){}}
}

// close gives back the matrices, when all checks are closed.
func (c *gateCommon) close() error { return errors.Join(c.dev.Close(), c.ref.Close()) }

// gate is one of the checks.
type gate struct {
	dev, ref  *scope
	common    *gateCommon
	preparing sync.WaitGroup // programs of dev
	seed      uint64
	checks    []GateCheck
	err       error

	batch, got []float32 // of repeated
	cos, sin   []float32 // of rotations
}

func newGate(c *gateCommon) *gate {
	return &gate{dev: &scope{Device: c.dev.Device}, ref: &scope{Device: c.ref.Device}, common: c, seed: 1}
}

// close gives back what the check made on the devices.
func (g *gate) close() error {
	g.preparing.Wait()
	g.batch, g.got, g.cos, g.sin = nil, nil, nil, nil
	return errors.Join(g.dev.Close(), g.ref.Close())
}

// matrix is the i-th random matrix of a shape on a device, one for all checks: to load it takes the reference about as long as to
// multiply a batch with it.
func (g *gate) matrix(d Device, i, n, k int, mode WeightMode) (Linear, error) {
	c, of := g.common, g.common.dev
	if d == g.ref {
		of = g.common.ref
	}
	key := gateMatrix{LinearShape{n, k, mode}, i, of == c.ref}
	c.mu.Lock()
	load := c.matrices[key]
	if load == nil {
		load = sync.OnceValues(func() (Linear, error) {
			s := gateSeries(i + 1)
			return s.linear(of, n, k, mode)
		})
		c.matrices[key] = load
	}
	c.mu.Unlock()
	return load()
}

// builder makes the program to compare on one of the two devices; it must draw the same numbers each time.
type builder func(d Device, s *gateSeries) (Program, error)

// gatePair is a program on both devices.
type gatePair struct {
	dev, ref Executable
	width    int  // of its result
	alone    bool // no row depends on its position or on others
	prepared chan error
}

// pair compiles the program on both devices. That of dev gets ready for these batches meanwhile: see ready.
func (g *gate) pair(build builder, batches ...[]Row) (*gatePair, error) {
	if err := g.common.ctx.Err(); err != nil {
		return nil, err
	}
	compile := func(d Device) (Executable, Program, error) {
		s := gateSeries(g.seed)
		p, err := build(d, &s)
		if err != nil {
			return nil, p, err
		}
		e, err := d.Compile(p)
		return e, p, err
	}
	e := &gatePair{prepared: make(chan error, 1)}
	var p Program
	var err error
	if e.dev, p, err = compile(g.dev); err != nil {
		return nil, err
	}
	e.width, e.alone = p.Bufs[p.Out].Width, p.positions() == 0
	g.preparing.Go(func() { e.prepared <- prepare(e.dev, batches...) })
	e.ref, _, err = compile(g.ref)
	return e, err
}

// ready awaits, once, that dev can run.
func (e *gatePair) ready() error { return <-e.prepared }

// gateRows is the size of the batch of every kind of row: gateKinds rows that differ, the first of which come again.
const gateRows, gateKinds = 14, 10

// check compares the two for each kind of input row, together and alone.
func (g *gate) check(op OpKind, shape string, inWidth int, build builder) error {
	// All rows in one batch, then the first alone, two, four, ...
	rows, steps := rowsAt(0, gateRows), g.stepsOf(op)
	parts := [][]Row{rows}
	for first, count := 0, 1; first < gateRows; count = min(2*count, gateRows-first) {
		parts = append(parts, rows[first:first+count])
		first += count
	}
	batches := slices.Clone(parts)
	for _, size := range steps {
		batches = append(batches, make([]Row, size))
	}
	e, err := g.pair(build, batches...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", op, shape, err)
	}
	width := e.width
	s := gateSeries(g.seed + 1)
	in, want, got := make([]float32, gateRows*inWidth), make([]float32, gateRows*width), make([]float32, gateRows*width)
	for i := range gateKinds {
		gateInputs[i].fill(in[i*inWidth:(i+1)*inWidth], &s)
	}
	copy(in[gateKinds*inWidth:], in)
	differ := gateRows
	if e.alone {
		differ = gateKinds
	}
	if err := e.ref.Run(rows[:differ], in[:differ*inWidth], want[:differ*width]); err != nil {
		return fmt.Errorf("%s %s, reference: %w", op, shape, err)
	}
	copy(want[differ*width:], want)
	if err := e.ready(); err != nil {
		return fmt.Errorf("%s %s: %w", op, shape, err)
	}
	for _, part := range parts {
		first, end := part[0].Pos, part[0].Pos+len(part)
		if err := g.run(e.dev, part, in[first*inWidth:end*inWidth], got[first*width:end*width]); err != nil {
			return fmt.Errorf("%s %s: %w", op, shape, err)
		}
		if err := g.compare(op, shape, first, got[first*width:end*width], want[first*width:end*width], width); err != nil {
			return err
		}
	}
	g.checks = append(g.checks, GateCheck{op, shape, 2 * gateRows * width})
	for _, kinds := range []int{gateKinds, 1} {
		if err := g.repeated(e.dev, op, shape, steps, in[:kinds*inWidth], want[:kinds*width], inWidth); err != nil {
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

// repeated compares large batches of the input rows in turn: of all, in which wide rows are everywhere, or of the first, without.
func (g *gate) repeated(dev Executable, op OpKind, shape string, sizes []int, in, want []float32, inWidth int) error {
	kinds := len(in) / inWidth
	width := len(want) / kinds
	if len(sizes) == 0 {
		return nil
	}
	largest := slices.Max(sizes)
	g.batch, g.got = grow(g.batch, largest*inWidth), grow(g.got, largest*width)
	for at := 0; at < len(g.batch); {
		at += copy(g.batch[at:], in)
	}
	for _, size := range sizes {
		got := g.got[:size*width]
		shape := fmt.Sprintf("%s, batch of %d", shape, size)
		if err := g.run(dev, make([]Row, size), g.batch[:size*inWidth], got); err != nil {
			return fmt.Errorf("%s %s: %w", op, shape, err)
		}
		if err := g.compare(op, shape, 0, got, want, width); err != nil {
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
	g.common.turn.Lock()
	defer g.common.turn.Unlock()
	if err := g.common.ctx.Err(); err != nil {
		return err
	}
	return dev.Run(rows, in, out)
}

// compare holds the rows of got, counted from first, against those of want, in turn where it has fewer.
func (g *gate) compare(op OpKind, shape string, first int, got, want []float32, width int) error {
	for at := 0; at < len(got); at += len(want) {
		part := got[at:min(at+len(want), len(got))]
		for i, v := range want[:len(part)] {
			if math.Float32bits(part[i]) != math.Float32bits(v) {
				row := first + (at+i)/width
				return &GateError{g.dev.Name(), op, shape, gateInputs[row%gateKinds].name, row, i % width, part[i], v}
			}
		}
	}
	return nil
}
