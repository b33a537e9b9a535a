package stage_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
)

// cutAt makes ranges that end after the given layers, the last one at the model's end.
func cutAt(layers int, ends ...int) []plan.Range {
	var out []plan.Range
	first := 0
	for _, end := range append(ends, layers-1) {
		out = append(out, plan.Range{First: first, Last: end})
		first = end + 1
	}
	return out
}

func everyLayer(layers int) []plan.Range {
	var ends []int
	for i := range layers - 1 {
		ends = append(ends, i)
	}
	return cutAt(layers, ends...)
}

// longPrompt is n tokens of the held-out text.
func longPrompt(t testing.TB, m *inspect.Model, n int) []int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testdata, "heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return tokenize(t, m, string(text[:n*8]))[:n]
}

// splitHead runs each range on an engine of its own, as machines would.
func splitHead(t testing.TB, m *inspect.Model, ranges []plan.Range, o localOptions, trace func(stage.Boundary)) *stage.Head {
	t.Helper()
	ctx := context.Background()
	var stages []stage.Stage
	for i, rng := range ranges {
		w, err := stage.Load(ctx, m, newDeviceWith(t, units.CPUOptions{Threads: o.threads, Kernels: o.kernels}), stage.LoadOptions{Range: rng, Mode: o.mode, Context: o.context})
		if err != nil {
			t.Fatal(err)
		}
		e, err := stage.NewEngine(w, stage.EngineOptions{Context: o.context, Sessions: o.sessions, ReturnAll: i < len(ranges)-1, Trace: trace})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		stages = append(stages, e)
	}
	w, err := stage.Load(ctx, m, newDevice(t, o.threads), stage.LoadOptions{Range: plan.None, Readout: true, Mode: o.mode, Context: o.context})
	if err != nil {
		t.Fatal(err)
	}
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: stages, Chunk: o.chunk})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestExactness: token ids and every boundary hash are the same for every split, thread count, prefill chunking and
// company of other sessions.
func TestExactness(t *testing.T) {
	const promptLen, answerLen = 100, 12
	for _, name := range talesModels {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, name)
			layers := m.Spec.Layers
			opts := stage.GenerateOptions{Prompt: longPrompt(t, m, promptLen), MaxTokens: answerLen}
			ctx := context.Background()
			base := localOptions{mode: units.Int8, threads: 1, context: 256, sessions: 4}

			plain, _ := localHead(t, m, base)
			want, err := plain.Generate(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			reference := stage.NewRecorder()
			cut := base
			cut.cuts, cut.trace = everyLayer(layers), reference.Trace
			observed, _ := localHead(t, m, cut)

			splits := [][]plan.Range{
				cutAt(layers), cutAt(layers, layers/2-1), cutAt(layers, 0), cutAt(layers, layers-2),
				cutAt(layers, 1, 2), cutAt(layers, layers/3, layers-2), everyLayer(layers),
			}
			for i, ranges := range splits {
				chunks := []int{64}
				if i == 1 {
					chunks = []int{1, 7, 64, 128}
				}
				for _, chunk := range chunks {
					for _, threads := range []int{1, 2} {
						o := base
						o.threads, o.chunk = threads, chunk
						t.Run(fmt.Sprintf("stages=%v/chunk=%d/threads=%d", ranges, chunk, threads), func(t *testing.T) {
							rec := stage.NewRecorder()
							h := splitHead(t, m, ranges, o, rec.Trace)
							diff, got, err := stage.Compare(ctx, stage.Run{Head: h, Recorder: rec}, stage.Run{Head: observed, Recorder: reference}, opts)
							if err != nil {
								t.Fatal(err)
							}
							if diff != nil {
								t.Fatal(diff)
							}
							if !slices.Equal(got.IDs, want.IDs) {
								t.Fatalf("ids %v, the unsplit run gives %v", got.IDs, want.IDs)
							}
							if n := rec.Rows(); n != len(ranges)*(promptLen+answerLen-1) {
								t.Fatalf("%d boundary rows were compared", n)
							}
						})
					}
				}
			}
		})
	}
}

// TestCompany: a session gives the same ids alone and beside others that run at the same time.
func TestCompany(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	o := localOptions{mode: units.Int8, threads: 2, context: 256, sessions: 8}
	h := splitHead(t, m, cutAt(m.Spec.Layers, 2), o, nil)
	ctx := context.Background()
	prompts := make([][]int, 8)
	alone := make([][]int, len(prompts))
	all := longPrompt(t, m, 200)
	for i := range prompts {
		prompts[i] = all[i*7 : i*7+3+i*9]
		res, err := h.Generate(ctx, stage.GenerateOptions{Prompt: prompts[i], MaxTokens: 16})
		if err != nil {
			t.Fatal(err)
		}
		alone[i] = res.IDs
	}
	var wg sync.WaitGroup
	for i := range prompts {
		wg.Go(func() {
			res, err := h.Generate(ctx, stage.GenerateOptions{Prompt: prompts[i], MaxTokens: 16})
			if err != nil {
				t.Error(err)
			} else if !slices.Equal(res.IDs, alone[i]) {
				t.Errorf("session %d beside others gives %v, alone %v", i, res.IDs, alone[i])
			}
		})
	}
	wg.Wait()
}

// pinnedBits are a hash over every boundary row, and the token ids, of a short run. They are the same on every machine and
// backend; a change of arithmetic changes them, and must then change units.NumericsVersion.
var pinnedBits = map[string]string{
	"tales-qwen2/int8":   "9efcc59722b1c1f1ef21cb58 [704 292 771 261 1024 14]",
	"tales-qwen2/int8x2": "339ff5d34c2ed1110e49926c [704 292 771 261 1024 14]",
	"tales-llama/int8":   "623fbd3320f496f010339b6f [704 292 262 1315 292 262]",
	"tales-gpt2/int8":    "8cbed73079a4a0ab6dc682ac [704 292 321 14 272 330]",
}

// TestPinnedBits holds every kernel set of this processor to them, in small and large chunks.
func TestPinnedBits(t *testing.T) {
	for name, want := range pinnedBits {
		model, format, _ := strings.Cut(name, "/")
		mode, err := units.ParseWeightMode(format)
		if err != nil {
			t.Fatal(err)
		}
		m := openModel(t, model)
		for i, kernels := range units.CPUKernels() {
			t.Run(name+"/"+kernels, func(t *testing.T) {
				rec := stage.NewRecorder()
				h, _ := localHead(t, m, localOptions{mode: mode, kernels: kernels, context: 128, cuts: everyLayer(m.Spec.Layers), trace: rec.Trace, chunk: []int{16, 64}[i%2]})
				res, err := h.Generate(context.Background(), stage.GenerateOptions{Prompt: longPrompt(t, m, 70), MaxTokens: 6})
				if err != nil {
					t.Fatal(err)
				}
				digest := rec.Digest()
				if got := fmt.Sprintf("%x %v", digest[:12], res.IDs); got != want {
					t.Errorf("the bits are %s, pinned are %s", got, want)
				}
			})
		}
	}
}
