package units

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestVulkanOps wants every kind of operation that a program may have to be recorded by something.
func TestVulkanOps(t *testing.T) {
	for k := range opNames {
		if kind := OpKind(k); k >= len(vulkanOps) || vulkanOps[kind] == nil {
			t.Errorf("%s has no function in vulkanOps", kind)
		}
	}
}

// TestVulkanAttendPasses tries every way of sharing attention out, which sizes would choose otherwise: whole rows or
// tiles, one part of the context or several, all rows or a few at a time.
func TestVulkanAttendPasses(t *testing.T) {
	shapes := []GateShapes{
		{Heads: 6, KVHeads: 2, HeadDim: 16, Context: 400, Cap: 5, ALiBi: true},
		{Heads: 9, KVHeads: 1, HeadDim: 72, Context: 1200},
	}
	for _, c := range []struct {
		name        string
		rows        int // of the short way
		tiled       int // rows from which they share tiles
		groups      int
		scratchRows int64
		matrices    bool
		grouped     bool
	}{
		{"short", 1 << 16, 1, 1, 1 << 16, false, false}, {"rows", 0, 1 << 16, 1, 1 << 16, false, false}, {"tiles", 0, 1, 1, 1 << 16, false, false},
		{"tiles and parts", 0, 1, 1 << 16, 1 << 16, false, false}, {"tiles and parts of a few rows", 0, 1, 1 << 16, 5, false, false},
		{"matrix tiles", 0, 1, 1, 1 << 16, true, false}, {"matrix tiles and parts of a few rows", 0, 1, 1 << 16, 5, true, false},
		{"grouped heads", 0, 1 << 16, 1, 1 << 16, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := vulkanTest(t, VulkanOptions{})
			oldGroup := groupTile
			defer func() { groupTile = oldGroup }()
			if groupTile = 0; c.grouped {
				groupTile = 4
			}
			oldRows, oldTiled, oldScratch, oldGroups, oldMatrixGroups := shortRows, tiledRows, attendScratch, attendGroups, matrixGroups
			defer func() {
				shortRows, tiledRows, attendScratch, attendGroups, matrixGroups, attendTiled = oldRows, oldTiled, oldScratch, oldGroups, oldMatrixGroups, false
			}()
			attendTiled = c.matrices
			for _, s := range shapes {
				perRow := 4 * s.Heads * padded(s.Context, blockPositions)
				shortRows, tiledRows, attendScratch, attendGroups, matrixGroups = c.rows, c.tiled, int64(perRow)*c.scratchRows, c.groups, c.groups
				if _, err := Gate(t.Context(), d, s); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestVulkanAttendSlots has tiles with rows of several sessions, and heads that do not fit into shared memory at once.
func TestVulkanAttendSlots(t *testing.T) {
	const heads, kvHeads, hd, width = 6, 2, 144, 60
	build := func(d Device) (Program, error) {
		cache, err := d.NewCache(CacheSpec{Layers: 1, Slots: 3, Context: 200, KVHeads: kvHeads, HeadDim: hd})
		if err != nil {
			return Program{}, err
		}
		const in, limbs, q, k, v, out = 0, 1, 2, 3, 4, 5
		p := Program{In: in, Out: out, Cache: cache, Bufs: []BufSpec{{F32, width}, {Limbs, width}, {F32, heads * hd}, {F32, kvHeads * hd}, {F32, kvHeads * hd}, {F32, heads * hd}},
			Ops: []Op{{Kind: OpQuantize, Dst: limbs, A: in, B: None}}}
		s := gateSeries(3)
		for dst := Buf(q); dst <= v; dst++ {
			l, err := s.linear(d, p.Bufs[dst].Width, width, Int8)
			if err != nil {
				return Program{}, err
			}
			p.Ops = append(p.Ops, Op{Kind: OpLinear, Dst: dst, A: limbs, B: None, Linear: l})
		}
		p.Ops = append(p.Ops, Op{Kind: OpStoreKV, Dst: None, A: k, B: v},
			Op{Kind: OpAttend, Dst: out, A: q, B: None, Heads: heads, KVHeads: kvHeads, HeadDim: hd, Scale: 0.05, Window: 75})
		return p, nil
	}
	for _, matrices := range []bool{false, true} {
		oldRows, oldTiled, oldWord := shortRows, tiledRows, wordRows
		defer func() { shortRows, tiledRows, wordRows, attendTiled = oldRows, oldTiled, oldWord, false }()
		shortRows, tiledRows, wordRows, attendTiled = 0, 1, 1, matrices
		var runs [2]Executable
		for i, d := range []Device{vulkanTest(t, VulkanOptions{}), newTestDevice(t, CPUOptions{Threads: 1}, &genericKernels)} {
			p, err := build(d)
			if err == nil {
				runs[i], err = d.Compile(p)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s := gateSeries(4)
		var next [3]int
		for _, batch := range [][][2]int{{{0, 40}, {2, 70}, {1, 3}}, {{2, 60}, {1, 1}, {0, 5}}, {{1, 90}}} { // slots and rows
			var rows []Row
			for _, b := range batch {
				for range b[1] {
					rows = append(rows, Row{Slot: b[0], Pos: next[b[0]]})
					next[b[0]]++
				}
			}
			x := s.values(len(rows)*width, 2)
			var out [2][]float32
			for i, e := range runs {
				out[i] = make([]float32, len(rows)*heads*hd)
				if err := e.Run(rows, x, out[i]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range out[0] {
				if math.Float32bits(out[0][i]) != math.Float32bits(out[1][i]) {
					t.Fatalf("matrices %v, row %+v, column %d: computed %v, the reference gives %v", matrices, rows[i/(heads*hd)], i%(heads*hd), out[0][i], out[1][i])
				}
			}
		}
	}
}

// TestVulkanGateOps gates every operation but the linear ones, which have a test of their own.
func TestVulkanGateOps(t *testing.T) {
	vulkanTiersTest(t, func(t *testing.T, d *vulkanDevice) {
		s := gateShapes
		s.Linears = nil
		s.Norms, s.Acts = []int{96}, []int{300}
		if _, err := Gate(t.Context(), d, s); err != nil {
			t.Fatal(err)
		}
	})
}

// normedVariety are norms and what follows them, in each of the ways that the input of a matrix is made.
var normedVariety = []struct {
	norm gateNorm
	next normedCase
}{
	{gateNorm{RMSNorm, false}, normedCase{added: true}},
	{gateNorm{RMSNorm, false}, normedCase{gated: true, act: SiLU, added: true, bias: true}},
	{gateNorm{RMSNorm, false}, normedCase{gated: true, act: SiLU, bare: true}},
	{gateNorm{LayerNorm, false}, normedCase{gated: true, act: GELUTanh}},
	{gateNorm{LayerNorm, true}, normedCase{after: true}},
}

// vulkanNormed checks all of normedVariety at a width, and each norm by itself.
func vulkanNormed(t *testing.T, d *vulkanDevice, width int, mode WeightMode) {
	t.Helper()
	g := vulkanGate(t, d)
	for _, n := range gateNorms {
		vulkanCheck(t, d, OpNorm, fmt.Sprintf("%d, %+v", width, n), width, func(d Device, s *gateSeries) (Program, error) {
			op, err := s.norm(d, width, n)
			return Program{In: 0, Out: 1, Bufs: []BufSpec{{F32, width}, {F32, width}}, Ops: []Op{op}}, err
		})
	}
	for _, c := range normedVariety {
		err := g.check(OpLinear, fmt.Sprintf("norm of %d, %+v, with matrices of %v", width, c, mode), width, func(d Device, s *gateSeries) (Program, error) {
			op, err := s.norm(d, width, c.norm)
			if err != nil {
				return Program{}, err
			}
			return g.normedLinears(d, s, op, width, mode, c.next)
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestVulkanWideRows has rows of which the invocations of the largest workgroup take more than one vector each.
func TestVulkanWideRows(t *testing.T) {
	vulkanNormed(t, vulkanTest(t, VulkanOptions{}), 4100, Int8)
}

// vulkanGate is a gate of the device, which the end of the test closes.
func vulkanGate(t *testing.T, d *vulkanDevice) *gate {
	c := newGateCommon(t.Context(), d, newTestDevice(t, CPUOptions{Threads: 1}, &genericKernels))
	g := newGate(c)
	t.Cleanup(func() {
		if err := errors.Join(g.close(), c.close()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// vulkanCheck compares a program with the plain reference on rows of every kind.
func vulkanCheck(t *testing.T, d *vulkanDevice, op OpKind, shape string, width int, build builder) {
	t.Helper()
	if err := vulkanGate(t, d).check(op, shape, width, build); err != nil {
		t.Error(err)
	}
}

// TestVulkanMergedHeads has rotations, store and attention in the order that one dispatch takes together, and with a
// buffer read afterwards, which keeps it from doing so.
func TestVulkanMergedHeads(t *testing.T) {
	const heads, kvHeads, hd, rotary, width, kv = 6, 2, 20, 12, 6 * 20, 2 * 20
	d := vulkanTest(t, VulkanOptions{})
	for _, c := range []struct {
		name        string
		interleaved bool
		out         Buf
	}{{"halves", false, 5}, {"interleaved", true, 5}, {"queries read", false, 2}, {"keys read", true, 3}} {
		vulkanCheck(t, d, OpAttend, c.name, width, func(d Device, s *gateSeries) (Program, error) {
			cache, err := d.NewCache(CacheSpec{Layers: 2, Slots: 1, Context: 64, KVHeads: kvHeads, HeadDim: hd})
			if err != nil {
				return Program{}, err
			}
			p := Program{In: 0, Out: c.out, Cache: cache,
				Bufs: []BufSpec{{F32, width}, {Limbs, width}, {F32, width}, {F32, kv}, {F32, kv}, {F32, width}},
				Ops:  []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}, {Kind: OpScale, Dst: 2, A: 0, B: None, Scale: 0.7}}}
			for dst := Buf(3); dst <= 4; dst++ {
				l, err := s.linear(d, kv, width, Int8)
				if err != nil {
					return Program{}, err
				}
				p.Ops = append(p.Ops, Op{Kind: OpLinear, Dst: dst, A: 1, B: None, Linear: l})
			}
			for i, theta := range []float64{100, 10000} { // tables of their own
				cos, sin := RopeTables(64, rotary, theta)
				op := Op{Kind: OpRope, Dst: Buf(2 + i), A: None, B: None, Heads: [2]int{heads, kvHeads}[i], HeadDim: hd, RotaryDim: rotary, Interleaved: c.interleaved}
				if op.Cos, err = d.NewVector("cos", cos); err == nil {
					op.Sin, err = d.NewVector("sin", sin)
				}
				if err != nil {
					return Program{}, err
				}
				p.Ops = append(p.Ops, op)
			}
			p.Ops = append(p.Ops, Op{Kind: OpStoreKV, Dst: None, A: 3, B: 4, CacheLayer: 1},
				Op{Kind: OpAttend, Dst: 5, A: 2, B: None, Heads: heads, KVHeads: kvHeads, HeadDim: hd, Scale: 0.1, CacheLayer: 1})
			return p, nil
		})
	}
}

// TestVulkanMergedNorms has additions, norms and quantising in the orders of pre-norm and post-norm layers.
func TestVulkanMergedNorms(t *testing.T) {
	const width = 300
	d := vulkanTest(t, VulkanOptions{})
	for _, kind := range []NormKind{RMSNorm, LayerNorm} {
		for name, c := range map[string]struct {
			sum, norm Buf // what the addition and the norm write
			groups    int
			out       Buf
		}{
			"pre-norm": {0, 2, 1, 4}, "sum": {0, 2, 1, 0}, "norm": {0, 2, 1, 2}, "post-norm": {0, 0, 1, 4}, "post-norm sum": {0, 0, 1, 0},
			"other sum": {5, 2, 1, 5}, "over the addend": {0, 1, 1, 4}, "groups": {0, 2, 5, 4},
		} {
			vulkanCheck(t, d, OpNorm, name, width, func(d Device, s *gateSeries) (Program, error) {
				norm := Op{Kind: OpNorm, Norm: kind, Dst: 1, A: 1, B: None, Groups: 1, Eps: 1e-5}
				var err error
				if norm.Weight, err = d.NewVector("weight", s.values(width, 2)); err != nil {
					return Program{}, err
				}
				after := norm
				after.Dst, after.A, after.Groups = c.norm, c.sum, c.groups
				if after.Weight, err = d.NewVector("weight", s.values(width/c.groups, 2)); err != nil {
					return Program{}, err
				}
				if kind == LayerNorm {
					if after.Bias, err = d.NewVector("bias", s.values(width/c.groups, 2)); err != nil {
						return Program{}, err
					}
				}
				l, err := s.linear(d, 70, width, Int8)
				return Program{In: 0, Out: c.out,
					Bufs: []BufSpec{{F32, width}, {F32, width}, {F32, width}, {Limbs, width}, {F32, 70}, {F32, width}},
					Ops: []Op{
						{Kind: OpScale, Dst: 1, A: 0, B: None, Scale: -3},
						norm,
						{Kind: OpAdd, Dst: c.sum, A: 0, B: 1},
						after,
						{Kind: OpQuantize, Dst: 3, A: c.norm, B: None},
						{Kind: OpLinear, Dst: 4, A: 3, B: None, Linear: l},
					}}, err
			})
		}
	}
}

// TestVulkanBesides has matrices of one quantised row that a dispatch takes side by side, and some that it must not.
func TestVulkanBesides(t *testing.T) {
	const width = 84
	type matrix struct {
		dst  Buf
		mode WeightMode
		bias bool
	}
	d := vulkanTest(t, VulkanOptions{})
	for name, matrices := range map[string][]matrix{
		"three":          {{2, Int8, true}, {3, Int8, true}, {4, Int8, true}},
		"four":           {{2, Int8, false}, {3, Int8, false}, {4, Int8, false}, {5, Int8, false}},
		"two limbs":      {{2, Int8x2, false}, {3, Int8x2, false}, {4, Int8x2, false}},
		"other format":   {{2, Int8, false}, {3, Int8x2, false}, {4, Int8, false}},
		"other biases":   {{2, Int8, true}, {3, Int8, false}, {4, Int8, false}},
		"over the first": {{2, Int8, false}, {3, Int8, false}, {2, Int8, false}, {4, Int8, false}},
		"over the row":   {{2, Int8, false}, {0, Int8, false}, {3, Int8, false}, {4, Int8, false}},
	} {
		vulkanCheck(t, d, OpLinear, name, width, func(d Device, s *gateSeries) (Program, error) {
			p := Program{In: 0, Out: 6, Bufs: []BufSpec{{F32, width}, {Limbs, width}, {F32, width}, {F32, width}, {F32, width}, {F32, width}, {F32, width}},
				Ops: []Op{{Kind: OpQuantize, Dst: 1, A: 0, B: None}}}
			sum := []Op{{Kind: OpScale, Dst: 6, A: 0, B: None, Scale: 0.3}}
			for _, m := range matrices {
				l, err := s.linear(d, width, width, m.mode)
				if err != nil {
					return p, err
				}
				op := Op{Kind: OpLinear, Dst: m.dst, A: 1, B: None, Linear: l}
				if m.bias {
					if op.Bias, err = d.NewVector("bias", s.values(width, 2)); err != nil {
						return p, err
					}
				}
				p.Ops = append(p.Ops, op)
				sum = append(sum, Op{Kind: OpAdd, Dst: 6, A: 6, B: m.dst})
			}
			p.Ops = append(p.Ops, sum...)
			return p, nil
		})
	}
}

// TestVulkanHeadsOverwritten: attention that takes the place of its keys or values is none of the dispatch that reads these.
func TestVulkanHeadsOverwritten(t *testing.T) {
	const heads, hd, rotary, width = 3, 40, 20, 3 * 40
	d, ref := vulkanTest(t, VulkanOptions{}), newTestDevice(t, CPUOptions{Threads: 1}, &genericKernels)
	cos, sin := RopeTables(64, rotary, 100)
	for _, c := range []struct {
		out   Buf
		ropes int
	}{{2, 0}, {3, 0}, {3, 2}} { // keys that are rotated are taken from where they were
		var runs [2]Executable
		for i, d := range []Device{d, ref} {
			cache, err := d.NewCache(CacheSpec{Layers: 1, Slots: 1, Context: 64, KVHeads: heads, HeadDim: hd})
			if err != nil {
				t.Fatal(err)
			}
			p := Program{In: 0, Out: c.out, Cache: cache, Bufs: []BufSpec{{F32, width}, {F32, width}, {F32, width}, {F32, width}}}
			for b := Buf(1); b <= 3; b++ {
				p.Ops = append(p.Ops, Op{Kind: OpScale, Dst: b, A: 0, B: None, Scale: 0.3 * float32(b)})
			}
			for b := range Buf(c.ropes) {
				op := Op{Kind: OpRope, Dst: 1 + b, A: None, B: None, Heads: heads, HeadDim: hd, RotaryDim: rotary}
				if op.Cos, err = d.NewVector("cos", cos); err == nil {
					op.Sin, err = d.NewVector("sin", sin)
				}
				if err != nil {
					t.Fatal(err)
				}
				p.Ops = append(p.Ops, op)
			}
			p.Ops = append(p.Ops, Op{Kind: OpStoreKV, Dst: None, A: 2, B: 3},
				Op{Kind: OpAttend, Dst: c.out, A: 1, B: None, Heads: heads, KVHeads: heads, HeadDim: hd, Scale: 0.1})
			if runs[i], err = d.Compile(p); err != nil {
				t.Fatal(err)
			}
		}
		s := gateSeries(2)
		for pos := range 20 {
			in, out := s.values(width, 3), [2][]float32{make([]float32, width), make([]float32, width)}
			for i, e := range runs {
				if err := e.Run([]Row{{Pos: pos}}, in, out[i]); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(out[0], out[1]) {
				t.Fatalf("%+v, position %d: other values than those of the reference", c, pos)
			}
		}
		e := runs[0].(*vulkanExecutable)
		groups, last := e.recordings[e.order[0]].groups, len(e.prog.Ops)-1
		if g := groups[len(groups)-1]; g != (opGroup{last, last + 1}) {
			t.Errorf("%+v: attention is in a dispatch with operation %d", c, g.first)
		}
	}
}
