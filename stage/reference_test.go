package stage_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
)

const testdata = "../testdata"

// openModel opens a model folder of testdata.
func openModel(t testing.TB, dir string) *inspect.Model {
	t.Helper()
	m, err := inspect.Open(context.Background(), filepath.Join(testdata, dir), inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func newDevice(t testing.TB, threads int) units.Device {
	t.Helper()
	return newDeviceWith(t, units.CPUOptions{Threads: threads})
}

func newDeviceWith(t testing.TB, o units.CPUOptions) units.Device {
	t.Helper()
	dev, err := units.NewCPU(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// localHead is a head with all layers in this process.
type localOptions struct {
	mode      units.WeightMode
	threads   int
	kernels   string // "" for the fastest
	context   int
	sessions  int
	chunk     int
	cuts      []plan.Range
	returnAll bool
	table     bool
	trace     func(stage.Boundary)
}

func localHead(t testing.TB, m *inspect.Model, o localOptions) (*stage.Head, *stage.Engine) {
	t.Helper()
	if o.context == 0 {
		o.context = min(512, m.Spec.MaxPos)
	}
	if o.threads == 0 {
		o.threads = 2
	}
	all := plan.Range{First: 0, Last: m.Spec.Layers - 1}
	w, err := stage.Load(context.Background(), m, newDeviceWith(t, units.CPUOptions{Threads: o.threads, Kernels: o.kernels}), stage.LoadOptions{Range: all, Readout: true, Table: o.table, Mode: o.mode, Context: o.context})
	if err != nil {
		t.Fatal(err)
	}
	e, err := stage.NewEngine(w, stage.EngineOptions{Context: o.context, Sessions: max(o.sessions, 1), Cuts: o.cuts, ReturnAll: o.returnAll, Trace: o.trace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}, Chunk: o.chunk})
	if err != nil {
		t.Fatal(err)
	}
	return h, e
}

// relativeRMS is |got - want| / |want|, both centred on want's scale.
func relativeRMS(got, want []float32) float64 {
	var diff, norm float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		diff += d * d
		norm += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(diff / norm)
}

// talesReference is reference.json of testdata/tales-*.
type talesReference struct {
	NLL     float64 `json:"heldout_nll_fp32"`
	Window  int     `json:"heldout_window"`
	Tokens  int     `json:"heldout_tokens"`
	Prompts []struct {
		Text   string    `json:"text"`
		IDs    []int     `json:"ids"`
		Greedy []int     `json:"greedy"`
		Margin []float64 `json:"greedy_margin"`
		Logits []float32 `json:"last_logits"`
	} `json:"prompts"`
}

func readReference(t testing.TB, dir string, dst any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, dir, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, dst); err != nil {
		t.Fatal(err)
	}
}

// checkTeacherForced feeds the reference's own tokens and compares the greedy choice after each, wherever the
// reference is sure.
func checkTeacherForced(t *testing.T, h *stage.Head, prompt, greedy []int, margin []float64) {
	t.Helper()
	ids := append(append([]int{}, prompt...), greedy...)
	checked := 0
	err := h.EachLogits(context.Background(), ids[:len(ids)-1], func(pos int, logits []float32) error {
		i := pos + 1 - len(prompt)
		if i < 0 || margin[i] <= 0.02 {
			return nil
		}
		checked++
		if got := stage.Argmax(logits); got != greedy[i] {
			t.Errorf("greedy token %d is %d, the reference has %d with margin %v", i, got, greedy[i], margin[i])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < len(greedy)/2 {
		t.Fatalf("only %d of %d greedy tokens have a margin", checked, len(greedy))
	}
}

var talesModels = []string{"tales-qwen2", "tales-llama", "tales-gpt2"}

func TestTalesMatchReference(t *testing.T) {
	for _, name := range talesModels {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			var ref talesReference
			readReference(t, name, &ref)
			h, _ := localHead(t, m, localOptions{mode: units.Int8x2, returnAll: true})
			if len(ref.Prompts) == 0 {
				t.Fatal("the reference has no prompts")
			}
			for _, p := range ref.Prompts {
				var last []float32
				err := h.EachLogits(context.Background(), p.IDs, func(_ int, logits []float32) error {
					last = append(last[:0], logits...)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				rms := relativeRMS(last, p.Logits)
				t.Logf("%q: relative RMS %.5f", p.Text, rms)
				if !(rms <= maxExactError) {
					t.Errorf("%q: relative RMS %.5f is over %.3f", p.Text, rms, maxExactError)
				}
				checkTeacherForced(t, h, p.IDs, p.Greedy, p.Margin)
			}
		})
	}
}

// TestHeldOutLikelihood holds the default int8 format to 0.3 % of the float32 model's likelihood.
func TestHeldOutLikelihood(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(testdata, "heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range talesModels {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			var ref talesReference
			readReference(t, name, &ref)
			tokens := ref.Tokens
			if testing.Short() {
				t.Skip("short: the full held-out text")
			}
			ids := tokenize(t, m, string(text))[:tokens]
			h, _ := localHead(t, m, localOptions{mode: units.Int8, returnAll: true})
			ev, err := h.Evaluate(context.Background(), ids, ref.Window, nil)
			if err != nil {
				t.Fatal(err)
			}
			off := ev.NLL/ref.NLL - 1
			t.Logf("int8 NLL %.6f, float32 %.6f: %+.4f %%, %.0f tokens/s", ev.NLL, ref.NLL, 100*off, ev.TokensPerS)
			if math.Abs(off) > 0.003 {
				t.Errorf("int8 NLL is off by %.4f %%, allowed is 0.3 %%", 100*off)
			}
		})
	}
}

func tokenize(t testing.TB, m *inspect.Model, text string) []int {
	t.Helper()
	ctx := context.Background()
	tok, err := m.Source.ReadFile(ctx, "tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	config, err := m.Source.ReadFile(ctx, "tokenizer_config.json")
	if err != nil {
		t.Fatal(err)
	}
	tk, err := inspect.LoadTokenizer(tok, config)
	if err != nil {
		t.Fatal(err)
	}
	return tk.Encode(text, false)
}
