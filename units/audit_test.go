package units

import (
	"errors"
	"slices"
	"testing"
)

const (
	testHidden, testInter = 32, 40
	testHeads, testKV     = 4, 2
	testHeadDim, testCtx  = 16, 96
)

// testLayer compiles a layer with every kind of operation, model layer 11.
func testLayer(t *testing.T, d Device) Executable {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := gateSeries(2)
	vector := func(v []float32) Vector {
		h, err := d.NewVector("v", v)
		must(err)
		return h
	}
	linear := func(n, k int) Linear {
		l, err := d.NewLinear("w", n, k, Int8x2)
		must(err)
		must(l.PutRows(0, s.values(n*k, 0.3)))
		must(l.Finish())
		return l
	}
	cache, err := d.NewCache(CacheSpec{Layers: 1, Slots: 1, Context: testCtx, KVHeads: testKV, HeadDim: testHeadDim})
	must(err)
	cos, sin := RopeTables(testCtx, testHeadDim, 10000)
	rope := Op{Kind: OpRope, A: None, B: None, HeadDim: testHeadDim, RotaryDim: testHeadDim, Cos: vector(cos), Sin: vector(sin)}
	ropeQ, ropeK := rope, rope
	ropeQ.Dst, ropeQ.Heads = 3, testHeads
	ropeK.Dst, ropeK.Heads = 4, testKV
	const q, kv = testHeads * testHeadDim, testKV * testHeadDim
	experts := Op{Kind: OpExperts, Dst: 9, A: 10, B: 12, TopK: 2}
	for range 5 {
		experts.Experts = append(experts.Experts,
			Expert{linear(testInter, testHidden), linear(testInter, testHidden), linear(testHidden, testInter)})
	}
	table, err := s.table(d, TableSpec{Rows: 5, Width: testHidden, Type: TableF16})
	must(err)
	p := Program{Cache: cache, In: 0, Out: 9,
		Bufs: []BufSpec{{F32, testHidden}, {F32, testHidden}, {Limbs, testHidden}, {F32, q}, {F32, kv}, {F32, kv}, {F32, q},
			{Limbs, q}, {F32, testHidden}, {F32, testHidden}, {Limbs, testHidden}, {F32, 5}, {F32, 4}, {F32, 6}, {F32, testHidden}},
		Ops: []Op{
			{Kind: OpNorm, Dst: 1, A: 0, B: None, Groups: 1, Weight: vector(s.values(testHidden, 1)), Eps: 1e-5},
			{Kind: OpQuantize, Dst: 2, A: 1, B: None},
			{Kind: OpLinear, Dst: 3, A: 2, B: None, Linear: linear(q, testHidden)},
			{Kind: OpLinear, Dst: 4, A: 2, B: None, Linear: linear(kv, testHidden)},
			{Kind: OpLinear, Dst: 5, A: 2, B: None, Linear: linear(kv, testHidden)},
			ropeQ, ropeK,
			{Kind: OpStoreKV, Dst: None, A: 4, B: 5},
			{Kind: OpAttend, Dst: 6, A: 3, B: None, Heads: testHeads, KVHeads: testKV, HeadDim: testHeadDim, Scale: 0.25,
				Cap: 30, Slopes: vector(s.values(testHeads, 1))},
			{Kind: OpQuantize, Dst: 7, A: 6, B: None},
			{Kind: OpLinear, Dst: 8, A: 7, B: None, Linear: linear(testHidden, q)},
			{Kind: OpAct, Dst: 8, A: 8, B: 1},
			{Kind: OpScale, Dst: 8, A: 8, B: None, Scale: 0.5},
			{Kind: OpSoftcap, Dst: 8, A: 8, B: None, Cap: 20},
			{Kind: OpQuantize, Dst: 10, A: 8, B: None},
			{Kind: OpLinear, Dst: 11, A: 10, B: None, Linear: linear(5, testHidden)},
			{Kind: OpTop, Dst: 13, A: 11, B: None, TopK: 3},
			{Kind: OpRoute, Dst: 12, A: 11, B: None, TopK: 2, Normalise: true},
			experts,
			{Kind: OpEmbed, Dst: 14, A: 13, B: None, Table: table, Scale: 3},
			{Kind: OpAdd, Dst: 9, A: 14, B: 9},
			{Kind: OpAdd, Dst: 9, A: 0, B: 9},
		}}
	for i := range p.Ops {
		p.Ops[i].Layer = 11
	}
	e, err := d.Compile(p)
	must(err)
	return e
}

// runLayer runs the layer on batches of several sizes until it fails.
func runLayer(e Executable) error {
	s := gateSeries(3)
	for range 24 {
		for pos := 0; pos < testCtx; {
			n := min(testCtx-pos, 1+int(s>>60))
			rows := make([]Row, n)
			for i := range rows {
				rows[i].Pos = pos + i
			}
			in := s.values(n*testHidden, 1)
			in[len(in)/2] = 900
			if err := e.Run(rows, in, make([]float32, len(in))); err != nil {
				return err
			}
			pos += n
		}
	}
	return nil
}

func newTestDevice(t *testing.T, o CPUOptions, k *kernels) *cpuDevice {
	t.Helper()
	d, err := newCPU(o, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestAuditAgrees(t *testing.T) {
	for _, k := range kernelSets() {
		if err := runLayer(testLayer(t, newTestDevice(t, CPUOptions{Threads: 2, AuditEvery: 1}, k))); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}

// brokenKernels are the best table of this processor with one fault each, and the operations that may notice it.
func brokenKernels() map[string]struct {
	k   kernels
	ops []OpKind
} {
	best := *kernelSets()[0]
	panel := best
	panel.panel = func(dst, init []int32, w []uint8, a []int8, tile, groups int) {
		best.panel(dst, init, w, a, tile, groups)
		dst[panelRows+3] ^= 1 << 14
	}
	values := best
	values.headScores, values.headValues, values.pairs = nil, nil, nil // which would take the place of panel
	values.panel = func(dst, init []int32, w []uint8, a []int8, tile, groups int) {
		best.panel(dst, init, w, a, tile, groups)
		if groups == blockPositions/groupK && tile != 2 {
			dst[7] += 1 << 20
		}
	}
	split := best
	split.split2 = func(hi, lo []int8, x []float32, scale float32) (a, b uint32, c, d int32) {
		a, b, c, d = best.split2(hi, lo, x, scale)
		lo[len(x)-1] ^= 1
		return
	}
	combine := best
	combine.combine = func(dst []float32, stride int, u, u2 []int32, rows []quantised, scale, bias []float32) {
		best.combine(dst, stride, u, u2, rows, scale, bias)
		for r := range rows {
			dst[r*stride+len(scale)-1] *= 1.0000002
		}
	}
	type fault = struct {
		k   kernels
		ops []OpKind
	}
	faults := map[string]fault{
		"panel":   {panel, []OpKind{OpLinear, OpAttend, OpExperts}},
		"values":  {values, []OpKind{OpAttend, OpLinear}},
		"split":   {split, []OpKind{OpQuantize, OpStoreKV, OpAttend, OpExperts}},
		"combine": {combine, []OpKind{OpLinear, OpExperts}},
	}
	if best.block != nil {
		block := best
		block.block = func(dst []unitSums, init []int32, w []uint8, panels int, a []int8, rows, groups int) {
			best.block(dst, init, w, panels, a, rows, groups)
			for i := range dst {
				dst[i][panels-1][panelRows+3] ^= 1 << 14
			}
		}
		faults["block"] = fault{block, []OpKind{OpLinear, OpExperts}}
	}
	return faults
}

func TestAuditCatchesFaults(t *testing.T) {
	for name, fault := range brokenKernels() {
		if err := runLayer(testLayer(t, newTestDevice(t, CPUOptions{Threads: 1}, &fault.k))); err != nil {
			t.Errorf("%s, no audit: %v", name, err)
		}
		d := newTestDevice(t, CPUOptions{Threads: 2, AuditEvery: 2}, &fault.k)
		e, other := testLayer(t, d), testLayer(t, d)
		err := runLayer(e)
		var ae *AuditError
		if !errors.As(err, &ae) || ae.Layer != 11 || !slices.Contains(fault.ops, ae.Op) {
			t.Errorf("%s: the audit says %v", name, err)
		}
		refuses(t, other, ae)
	}
}

// refuses holds a program of a device that gave a wrong bit to fail with that.
func refuses(t *testing.T, e Executable, wrong *AuditError) {
	t.Helper()
	var ae *AuditError
	if err := e.Run(make([]Row, 1), make([]float32, testHidden), make([]float32, testHidden)); !errors.As(err, &ae) || ae != wrong {
		t.Errorf("after %v: %v", wrong, err)
	}
}

// TestAuditCatchesMemory changes what an operation stored before the audit looks at it.
func TestAuditCatchesMemory(t *testing.T) {
	d := newTestDevice(t, CPUOptions{Threads: 1, AuditEvery: 1}, &genericKernels)
	e := testLayer(t, d).(*cpuExecutable)
	if err := e.Run([]Row{{}, {Pos: 1}}, make([]float32, 2*testHidden), make([]float32, 2*testHidden)); err != nil {
		t.Fatal(err)
	}
	a := e.audit
	for i := range e.steps {
		s := &e.steps[i]
		a.op, a.row = &s.ops[0], 1
		a.snapshot(e.st)
		e.dispatch(e.st, s)
		if err := a.verify(e.st); err != nil {
			t.Fatalf("op %d: %v", i, err)
		}
		switch op := &s.ops[0]; op.Kind {
		case OpStoreKV:
			e.st.cache.block(0, 0, 1, 0).v[inPanel(3, 1)] ^= 4
		case OpQuantize:
			e.st.limbs[op.Dst].data[9] ^= 1 << 8
			e.st.limbs[op.Dst].data[8] ^= 1 << 8
			e.st.limbs[op.Dst].data[10] ^= 1 << 8
			e.st.limbs[op.Dst].data[11] ^= 1 << 8
		default:
			e.st.f32[op.Dst][len(e.st.f32[op.Dst])-1] += 1
		}
		var ae *AuditError
		if err := a.verify(e.st); !errors.As(err, &ae) || ae.Row != 1 || ae.Op != s.ops[0].Kind {
			t.Errorf("op %d (%s): changed result passes: %v", i, s.ops[0].Kind, err)
		}
		a.snapshot(e.st)
		e.dispatch(e.st, s)
	}
}
