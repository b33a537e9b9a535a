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
