package stage

import (
	"sync/atomic"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

// countingDevice counts the handles it makes.
type countingDevice struct {
	units.Device
	handles atomic.Int32
}

func (d *countingDevice) NewLinear(name string, n, k int, mode units.WeightMode) (units.Linear, error) {
	d.handles.Add(1)
	return d.Device.NewLinear(name, n, k, mode)
}

func (d *countingDevice) NewVector(name string, v []float32) (units.Vector, error) {
	d.handles.Add(1)
	return d.Device.NewVector(name, v)
}

// TestWeightsCloseHandles: weights close all that was loaded, so that a stage that is given other layers does not keep those
// it had; on a device nothing else would free them.
func TestWeightsCloseHandles(t *testing.T) {
	for _, family := range []string{"gpt2", "qwen2", "mixtral"} { // biases, rotary tables, experts
		m, err := inspect.Open(t.Context(), "../testdata/families/"+family, inspect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		cpu, err := units.NewCPU(units.CPUOptions{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer cpu.Close()
		d := &countingDevice{Device: cpu}
		w, err := Load(t.Context(), m, d, LoadOptions{Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Context: 16})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := len(w.handles), int(d.handles.Load()); got != want || want == 0 {
			t.Errorf("%s: %d handles made, %d will be closed", family, want, got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
}
