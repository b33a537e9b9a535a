package units

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
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
	gateWeights = 3 << 18
	// gateBiased is the same for one with a bias.
	gateBiased = 1 << 19
	// gateContext bounds the positions filled before the longest attention row.
	gateContext = 2048
)

// Gate runs every kind of operation at the given shapes on seeded random and extreme inputs, in batches and row by row,
// and compares with the plain reference bit for bit. It returns *GateError on the first wrong bit.
func Gate(ctx context.Context, dev Device, shapes GateShapes) (GateReport, error) {
	start := time.Now()
	report := GateReport{Device: dev.Name()}
	// Weights are no memory of the collector's: what it has not collected when they come, it leaves beside all of them.
	defer debug.FreeOSMemory()
	threads, atOnce := gateThreads(dev)
	// Some checks take several times as long as others: there are threads to help those that are left.
	ref, err := newCPU(CPUOptions{Threads: max(1, threads/4)}, &genericKernels)
	if err != nil {
		return report, err
	}
	defer ref.Close()
	common := newGateCommon(ctx, dev, ref)
	checks := gateChecks(shapes)
	gates := make([]*gate, len(checks))
	var failed atomic.Int64 // the first in order
	failed.Store(int64(len(checks)))
	var run errgroup.Group
	run.SetLimit(atOnce)
	for i := range int64(len(checks)) {
		i = int64(len(checks)) - 1 - i // the last ones take longest
		run.Go(func() error {
			if i > failed.Load() {
				return nil
			}
			g := newGate(common)
			gates[i] = g
			if g.err = errors.Join(checks[i](g), g.close()); g.err != nil {
				for at := failed.Load(); i < at && !failed.CompareAndSwap(at, i); at = failed.Load() {
				}
			}
			return nil
		})
	}
	run.Wait()
	if err := common.close(); err != nil && failed.Load() == int64(len(checks)) {
		return report, fmt.Errorf("gating %s: %w", dev.Name(), err)
	}
	Metrics.Gates.Add(1)
	for _, g := range gates[:min(len(gates), 1+int(failed.Load()))] {
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

// gateThreads is how many threads the reference has, into which nearly all the time goes, and how many checks run at a time: some
// of those that are not of a CPU await their shaders.
func gateThreads(dev Device) (threads, checks int) {
	if d, ok := dev.(*cpuDevice); ok {
		return d.threads, d.threads
	}
	return DefaultThreads(), 2 * DefaultThreads()
}

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
				for _, c := range normedCases {
					add(func(g *gate) error { return g.normedMatrices(w, norm, mode, c) })
				}
			}
		}
	}
	for _, w := range s.Acts {
		add(func(g *gate) error { return g.elementwise(w) })
		for _, act := range []ActKind{SiLU, GELUTanh, GELU, ReLU} {
			add(func(g *gate) error { return g.act(w, act) })
		}
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
			add(func(g *gate) error { return g.headsOfPrompt(s, bias) })
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

// linear gates OpQuantize and OpLinear, without and with a bias, and outputs that are added to a row where the device merges that.
func (g *gate) linear(l LinearShape) error {
	const outputs = 16 // of those
	for _, bias := range []bool{false, true} {
		most := gateWeights
		if bias {
			most = gateBiased
		}
		n := l.N
		if n*l.K > most {
			n = min(n, max(1, most/l.K/64)*64+n%64)
		}
		matrix := func(d Device, s *gateSeries, n int) (Op, error) {
			op := Op{Kind: OpLinear, Dst: 2, A: 1, B: None}
			var err error
			if op.Linear, err = g.matrix(d, 0, n, l.K, l.Mode); err == nil && bias {
				op.Bias, err = d.NewVector("gate", s.values(n, 1))
			}
			return op, err
		}
		quantise := Op{Kind: OpQuantize, Dst: 1, A: 0, B: None}
		err := g.check(OpLinear, fmt.Sprintf("%dx%d %v, %d rows of it, bias %v", l.N, l.K, l.Mode, n, bias), l.K,
			func(d Device, s *gateSeries) (Program, error) {
				op, err := matrix(d, s, n)
				return Program{In: 0, Out: 2, Bufs: []BufSpec{{F32, l.K}, {Limbs, l.K}, {F32, n}}, Ops: []Op{quantise, op}}, err
			})
		if err != nil {
			return err
		}
		if !g.merges() {
			continue
		}
		err = g.check(OpLinear, fmt.Sprintf("%dx%d %v, %d rows of it, bias %v, added", l.N, l.K, l.Mode, outputs, bias), l.K,
			func(d Device, s *gateSeries) (Program, error) {
				op, err := matrix(d, s, outputs)
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
			cos, sin := RopeTables(gateRows, s.RotaryDim, 10000)
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
