package units

import (
	"errors"
	"testing"
)

// runAudited runs the layer of testLayer in batches of n rows, which the device has recorded once, until it fails.
func runAudited(e Executable, times, n int) error {
	s := gateSeries(3)
	for range times {
		for pos := 0; pos+n <= testCtx; pos += n {
			rows := make([]Row, n)
			for i := range rows {
				rows[i].Pos = pos + i
			}
			in := s.values(n*testHidden, 1)
			in[len(in)/2] = 900
			if err := e.Run(rows, in, make([]float32, len(in))); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestVulkanAuditAgrees(t *testing.T) {
	old := matrixPlans
	defer func() { matrixPlans = old }()
	matrixPlans = []matrixPlan{{maxVulkanRows, linearTile{1, 1, 1, 1, 4}, linearTile{1, 1, 1, 1, 2}, 100, 1}}
	d := vulkanTest(t, VulkanOptions{AuditEvery: 1})
	agrees := func(name string, x Executable, rows int) {
		t.Helper()
		e := x.(*vulkanExecutable)
		if err := runAudited(e, 6, rows); err != nil {
			t.Errorf("%s, %d rows: %v", name, rows, err)
		}
		if e.audit.runs == 0 || Metrics.Audits.Load() < int64(e.audit.runs) {
			t.Errorf("%d runs were audited, %d counted", e.audit.runs, Metrics.Audits.Load())
		}
	}
	for _, n := range []int{1, 3} { // of one row more is merged
		agrees("layer", testLayer(t, d), n)
	}
	// Of many rows what follows matrices takes their sums.
	d.tiled = true
	d.useMatrices()
	agrees("layer", testLayer(t, d), matrixBatch)
	s := gateSeries(4)
	norm := Op{Kind: OpNorm, Dst: 1, A: 0, B: None, Groups: 1, Eps: 1e-5}
	var err error
	if norm.Weight, err = d.NewVector("weight", s.values(testHidden, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := vulkanGate(t, d).normedLinears(d, &s, norm, testHidden, Int8, normedCase{gated: true, act: SiLU})
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	agrees("feed-forward", e, matrixBatch)
}

// TestVulkanAuditCatches makes the device's parameters differ from what the host knows of them.
func TestVulkanAuditCatches(t *testing.T) {
	each := func(v []float32) {
		for i := range v {
			v[i] = 1.5*v[i] + 0.25
		}
	}
	eachExpert := func(ops []Op, matrix func(e *Expert) Linear) {
		for i := range ops[18].Experts {
			each(matrix(&ops[18].Experts[i]).(*vulkanLinear).scales)
		}
	}
	for _, c := range []struct {
		name  string
		fault func(ops []Op)
		op    OpKind
	}{
		{"norm", func(ops []Op) { each(vectorOf(ops[0].Weight)) }, OpQuantize}, // which ends the dispatch
		{"linear", func(ops []Op) { each(ops[3].Linear.(*vulkanLinear).scales) }, OpLinear},
		{"rotary positions", func(ops []Op) { each(vectorOf(ops[6].Cos)) }, OpStoreKV},
		{"attention", func(ops []Op) { each(vectorOf(ops[8].Slopes)) }, OpAttend},
		{"gates of experts", func(ops []Op) { eachExpert(ops, func(e *Expert) Linear { return e.Gate }) }, OpExperts},
		{"the last matrices of experts", func(ops []Op) { eachExpert(ops, func(e *Expert) Linear { return e.Down }) }, OpExperts},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := vulkanTest(t, VulkanOptions{AuditEvery: 2})
			e := testLayer(t, d).(*vulkanExecutable)
			c.fault(e.prog.Ops)
			var wrong *AuditError
			before := Metrics.WrongBits.Load()
			defer func() {
				if n := Metrics.WrongBits.Load() - before; n != 1 {
					t.Errorf("%d wrong bits are counted", n)
				}
			}()
			if err := runAudited(e, 40, 3); !errors.As(err, &wrong) || wrong.Op != c.op || wrong.Layer != 11 || wrong.Row < 0 || wrong.Row > 2 {
				t.Errorf("%v", err)
			}
			refuses(t, testLayer(t, d), wrong)
		})
	}
}

// TestVulkanAuditCatchesEmbed makes a program differ from what its recordings hold.
func TestVulkanAuditCatchesEmbed(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{AuditEvery: 1})
	e := testLayer(t, d).(*vulkanExecutable)
	if err := runAudited(e, 1, 3); err != nil {
		t.Fatal(err)
	}
	for i := range e.prog.Ops {
		if op := &e.prog.Ops[i]; op.Kind == OpEmbed {
			op.Scale++
		}
	}
	var wrong *AuditError
	if err := runAudited(e, 20, 3); !errors.As(err, &wrong) || wrong.Op != OpEmbed {
		t.Errorf("%v", err)
	}
}

// TestVulkanAuditRow: the row of an audit is counted within the batch, whatever submissions it takes.
func TestVulkanAuditRow(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{AuditEvery: 3})
	e := testLayer(t, d).(*vulkanExecutable)
	e.maxRows = 1
	scales := e.prog.Ops[3].Linear.(*vulkanLinear).scales
	for i := range scales {
		scales[i] *= 1.5
	}
	var wrong *AuditError
	if err := runAudited(e, 40, 3); !errors.As(err, &wrong) || wrong.Row != 2 {
		t.Errorf("%v, want row 2", err)
	}
}
