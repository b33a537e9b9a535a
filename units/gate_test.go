package units

import (
	"context"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
)

// probeHashWant is the probe hash of numerics version 1.
const probeHashWant = "2d635bcb48db68d7480a517d348c107d705c6f28a4d28dae376551d30ed17e06"

var gateShapes = GateShapes{
	Linears: []LinearShape{{130, 96, Int8}, {130, 96, Int8x2}, {70, 300, Int8}, {3000, 700, Int8}, {130, 96, Int8}},
	Norms:   []int{96, 64}, Acts: []int{300}, Embeds: []int{130, 75},
	Heads: 6, KVHeads: 2, HeadDim: 16, RotaryDim: 12, Context: 400,
	Experts: ExpertShape{Count: 20, TopK: 3, Hidden: 48, Inter: 70, Mode: Int8x2},
	Tops:    []TopShape{{3000, 1}, {3000, 64}},
}

// A stage's peak of memory is its weights' and not the gates' beside them.
func TestGateLeavesNoMemory(t *testing.T) {
	dev := newTestDevice(t, CPUOptions{Threads: 2}, &genericKernels)
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapSys - m.HeapReleased)
	}
	debug.FreeOSMemory()
	before := inUse()
	_, err := Gate(t.Context(), dev, GateShapes{Linears: []LinearShape{{4864, 896, Int8}, {896, 4864, Int8}}, Acts: []int{4864}})
	if err != nil {
		t.Fatal(err)
	}
	if left := inUse() - before; left > 8<<20 {
		t.Errorf("gates left %d MiB in use", left>>20)
	}
}

func TestGatePasses(t *testing.T) {
	for _, k := range kernelSets() {
		r, err := Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 2}, k), gateShapes)
		if err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
		seen := map[OpKind]bool{}
		for _, c := range r.Checks {
			seen[c.Op] = true
			if c.Values < 1 || c.Shape == "" {
				t.Errorf("empty check %+v", c)
			}
		}
		for _, op := range []OpKind{OpNorm, OpLinear, OpRope, OpAttend, OpAct, OpAdd, OpScale, OpSoftcap, OpRoute, OpExperts, OpTop, OpEmbed} {
			if !seen[op] {
				t.Errorf("%s: %s is not gated", k.name, op)
			}
		}
		for _, variant := range []GateShapes{
			{Heads: 6, KVHeads: 2, HeadDim: 16, Context: 400, Cap: 5, ALiBi: true},
			{Heads: 14, KVHeads: 2, HeadDim: 64, Context: 300}, // many heads share keys
			{Heads: 6, KVHeads: 1, HeadDim: 128, Context: 200},
		} {
			if _, err := Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 2}, k), variant); err != nil {
				t.Errorf("%s: attention of %+v: %v", k.name, variant, err)
			}
		}
		t.Logf("%s: %d checks in %v", k.name, len(r.Checks), r.Took)
	}
}

func TestGateCatchesFaults(t *testing.T) {
	for name, fault := range brokenKernels() {
		_, err := Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 2}, &fault.k), gateShapes)
		var ge *GateError
		if !errors.As(err, &ge) || ge.Shape == "" || !(slices.Contains(fault.ops, ge.Op) || ge.Op == OpLinear) {
			t.Errorf("%s: the gate says %v", name, err)
		}
	}
	// Batches that fill several block tiles.
	if best := kernelSets()[0]; best.block != nil {
		k := *best
		k.block = func(dst []unitSums, init []int32, w []uint8, panels int, a []int8, rows, groups int) {
			best.block(dst, init, w, panels, a, rows, groups)
			if len(dst) == blockSums {
				dst[blockSums-1][panels-1][panelRows+3] ^= 1 << 14
			}
		}
		_, err := Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 1}, &k), GateShapes{Linears: []LinearShape{{N: 40, K: 100}}})
		var ge *GateError
		if !errors.As(err, &ge) || ge.Op != OpLinear {
			t.Errorf("several block tiles: the gate says %v", err)
		}
	}
	// Attention alone where heads that share keys fill block tiles.
	if best := kernelSets()[0]; best.pairs != nil {
		pairs, scores, values, weights := *best, *best, *best, *best
		pairs.pairs = func(dst []unitSums, init []int32, w []uint8, a []int8, rows, groups int) {
			best.pairs(dst, init, w, a, rows, groups)
			dst[len(dst)-1][1][panelRows+3] ^= 1 << 16
		}
		scores.headScores = func(h *headScores) {
			best.headScores(h)
			for i := range blockPositions { // of the last query with the first block
				h.dst[(h.n-1)*blockPositions+i] += float32(i % 2)
			}
		}
		values.headValues = func(h *headSums, blocks []headValues) {
			best.headValues(h, blocks)
			h.near[len(h.near)-1][1][3] ^= 1 << 16
		}
		weights.weighTile = func(x []float32, low []int8, parts []blockWeights, m []float32, exps []int16, sums []weightSums) {
			best.weighTile(x, low, parts, m, exps, sums)
			sums[len(sums)-1][0][7] += 1 << 10
		}
		for name, k := range map[string]*kernels{"pairs": &pairs, "scores": &scores, "values": &values, "weights": &weights} {
			_, err := Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 1}, k), GateShapes{Heads: 5, KVHeads: 1, HeadDim: 64, Context: 200})
			var ge *GateError
			if !errors.As(err, &ge) || ge.Op != OpAttend {
				t.Errorf("%s of whole heads: the gate says %v", name, err)
			}
		}
	}
	// Attention alone: the stored keys of a context of several blocks.
	d := newTestDevice(t, CPUOptions{Threads: 1}, kernelSets()[0])
	k := *d.kern
	k.headScores, k.headValues, k.pairs = nil, nil, nil // which would take the place of panel
	k.panel = func(dst, init []int32, w []uint8, a []int8, tile, groups int) {
		d.kern.panel(dst, init, w, a, tile, groups)
		if tile == 24 && groups == blockPositions/groupK {
			dst[23*panelRows]++
		}
	}
	wide := GateShapes{Heads: 8, KVHeads: 1, HeadDim: 48, Context: 300}
	_, err := Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 1}, &k), wide)
	var ge *GateError
	if !errors.As(err, &ge) || ge.Op != OpAttend {
		t.Errorf("values: the gate says %v", err)
	}
	// Values whose exponents lie far apart.
	k = *d.kern
	k.accumulate = func(total []int64, stride int, u, low []unitSums, parts []blockWeights, tops []int32) {
		d.kern.accumulate(total, stride, u, low, parts, tops)
		for i := range parts {
			if n := parts[i].shift(tops[i]); n >= leastShift && n < -3 {
				total[i*stride+1] += 1 << 40
			}
		}
	}
	_, err = Gate(t.Context(), newTestDevice(t, CPUOptions{Threads: 1}, &k), GateShapes{Heads: 14, KVHeads: 2, HeadDim: 64, Context: 80})
	if !errors.As(err, &ge) || ge.Op != OpAttend {
		t.Errorf("values far apart: the gate says %v", err)
	}
}

func TestProbe(t *testing.T) {
	for _, k := range kernelSets() {
		p, err := Probe(newTestDevice(t, CPUOptions{Threads: 2}, k))
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(p.Hash[:]); got != probeHashWant {
			t.Errorf("%s: probe hash %s, want %s", k.name, got, probeHashWant)
		}
		if p.GMACs <= 0 || p.PrefillGMACs <= 0 || p.Device == "" {
			t.Errorf("%s: %+v", k.name, p)
		}
		t.Logf("%s: decode %.1f GMAC/s, prefill %.1f GMAC/s, %v", k.name, p.GMACs, p.PrefillGMACs, p.Took)
	}
}

func TestMemoryBandwidth(t *testing.T) {
	if b, err := MemoryBandwidth(2); err != nil || b < 0.1 || b > 1e5 {
		t.Errorf("%v GB/s", b)
	} else {
		t.Logf("%.1f GB/s", b)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, k := range kernelSets() {
		for n := range 100 {
			x := make([]uint64, n)
			want := uint64(0)
			for i := range x {
				x[i] = rng.Uint64()
				want += x[i]
			}
			if got := k.sum(x); got != want {
				t.Fatalf("%s: sum of %d words is %d, want %d", k.name, n, got, want)
			}
		}
	}
}

// TestGateEnds: a gate that nobody waits for any more stops between the runs of its programs.
func TestGateEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dev := newTestDevice(t, CPUOptions{Threads: 1}, &genericKernels)
	g := newGate(newGateCommon(ctx, dev, dev))
	e, err := g.pair(func(Device, *gateSeries) (Program, error) {
		return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, 8}, {F32, 8}}, Ops: []Op{{Kind: OpScale, Dst: 1, A: 0, B: None, Scale: 2}}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 8)
	if err := g.run(e.dev, rowsAt(0, 1), x, x); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := g.run(e.dev, rowsAt(0, 1), x, x); !errors.Is(err, context.Canceled) {
		t.Errorf("running: %v", err)
	}
	if _, err := Gate(ctx, dev, gateShapes); !errors.Is(err, context.Canceled) {
		t.Errorf("gating: %v", err)
	}
}
