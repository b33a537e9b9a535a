package cmd

import (
	"bytes"
	"strings"
	"testing"

	"dchain/plan"
)

// The embedding that a GPU keeps is shown beside the rest of its memory, and no column of it where there is none.
func TestShowPlanTable(t *testing.T) {
	for _, c := range []struct {
		table int64
		want  string
	}{
		{0, "stage machine layers count weights KV cache memory GB/s\n0 laptop (head) 0-7 8 3.00 MiB 1.00 MiB 1.00 GiB 20\n"},
		{2 << 20, "stage machine layers count weights KV cache embedding memory GB/s\n0 laptop (head) 0-7 8 3.00 MiB 1.00 MiB 2.00 MiB 1.00 GiB 20\n"},
	} {
		var out bytes.Buffer
		a := &app{ui: newUI(&out, &bytes.Buffer{})}
		p := plan.Plan{Model: "builtin", Layers: 8, Weights: "int8", Context: 64, Sessions: 1, Stages: []plan.Stage{{
			Name: "laptop", Head: true, Range: plan.Range{First: 0, Last: 7}, WeightBytes: 3 << 20, KVBytes: 1 << 20, TableBytes: c.table, Memory: 1 << 30, Score: 20,
		}}}
		if err := a.showPlan(&p); err != nil {
			t.Fatal(err)
		}
		_, table, _ := strings.Cut(out.String(), "\n\n")
		var got strings.Builder
		for line := range strings.Lines(table) {
			got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
		if got.String() != c.want {
			t.Errorf("%q, want %q", got.String(), c.want)
		}
	}
}

// A plan of stages that hold their layers already is among its options, and none of these stands twice: a share by capacity
// would give the slow ones nothing.
func TestPredictOptions(t *testing.T) {
	need := plan.Need{Layers: 8, Limbs: 1, Layer: plan.Tensors{Weights: 1 << 20}, Head: plan.Tensors{Weights: 1 << 20}, Context: 64, Sessions: 1}
	p := plan.Plan{Layers: 8, Stages: []plan.Stage{{Name: "head", Head: true, Range: plan.None, Score: 20}}}
	devices := []plan.Device{{ID: "head", Name: "head", Head: true, Score: 20}}
	for i, r := range []plan.Range{{First: 0, Last: 2}, {First: 3, Last: 5}, {First: 6, Last: 7}} {
		s := plan.Stage{Name: string(rune('a' + i)), Range: r, Score: []float64{0.1, 0.1, 14}[i]}
		p.Stages = append(p.Stages, s)
		devices = append(devices, plan.Device{ID: s.Name, Name: s.Name, Score: s.Score})
	}
	if err := predict(&p, need, devices, linksOf(p.Stages)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range p.Options {
		got = append(got, strings.Join(o.Devices, " "))
	}
	if want := "head, head c, head a b c"; strings.Join(got, ", ") != want {
		t.Fatalf("options %q, want %q", strings.Join(got, ", "), want)
	}
	if own := p.Options[2]; !own.Fits || own.Prediction != *p.Prediction {
		t.Errorf("its own option is %+v, want %+v", own, *p.Prediction)
	}
}
