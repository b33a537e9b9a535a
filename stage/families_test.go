package stage_test

import (
	"context"
	"flag"
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

var update = flag.Bool("update", false, "write the generated tables of families")

// familyReference is reference.json of testdata/families: float32 outputs of the reference implementation.
type familyReference struct {
	IDs    []int       `json:"ids"`
	Logits [][]float32 `json:"logits"`
	Greedy []int       `json:"greedy"`
	Margin []float64   `json:"greedy_margin"`
}

// int8Figures are the relative RMS errors of the logits that weights of one byte cost by themselves, measured with the
// reference implementation: linear layers quantised as units/NUMERICS.md says, attention in float32.
var int8Figures = map[string]float64{
	"bloom": 0.01721, "gemma2": 0.02136, "gemma3_text": 0.01229, "gpt2": 0.01153, "gpt_neox": 0.01474, "llama": 0.03966,
	"llama3-rope": 0.04738, "mistral": 0.03971, "opt": 0.01717, "phi3": 0.04375, "qwen2": 0.04915, "qwen3": 0.02801,
}

// Bounds on the relative RMS error of int8x2 logits: anything above is a fault, not rounding. In a mixture of experts
// rounding may also send a row to other experts.
const (
	maxExactError   = 0.002
	maxMixtureError = 0.005
	maxInt8Excess   = 1.2 // over int8Figures
)

// familyModels are the folders of testdata/families.
func familyModels(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(testdata, "families", "*"))
	if err != nil || len(dirs) < 14 {
		t.Fatalf("found %d family folders: %v", len(dirs), err)
	}
	for i, dir := range dirs {
		dirs[i] = filepath.Base(dir)
	}
	return dirs
}

// variedFamilies are familyModels; in short mode a few, which have operations of all kinds: the race detector takes minutes for all.
func variedFamilies(t testing.TB) []string {
	t.Helper()
	if testing.Short() {
		return []string{"bloom", "gemma2", "gptj", "qwen3_moe"}
	}
	return familyModels(t)
}

// familyError measures the relative RMS error of a family's logits over every position of its reference.
func familyError(t testing.TB, m *inspect.Model, ref *familyReference, mode units.WeightMode) (float64, *stage.Head) {
	t.Helper()
	h, _ := localHead(t, m, localOptions{mode: mode, returnAll: true, context: len(ref.IDs) + len(ref.Greedy)})
	var got, want []float32
	err := h.EachLogits(context.Background(), ref.IDs, func(pos int, logits []float32) error {
		got, want = append(got, logits...), append(want, ref.Logits[pos]...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return relativeRMS(got, want), h
}

// measured is what TestFamiliesMatchReference found out about a folder of testdata/families.
type measured struct {
	name, family string
	exact, int8  float64
}

func TestFamiliesMatchReference(t *testing.T) {
	var all []measured
	for _, name := range familyModels(t) {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, "families/"+name)
			var ref familyReference
			readReference(t, "families/"+name, &ref)
			exact, h := familyError(t, m, &ref, units.Int8x2)
			bound := maxExactError
			if m.Spec.Experts > 0 {
				bound = maxMixtureError
			}
			if !(exact <= bound) {
				t.Errorf("int8x2: relative RMS %.5f is over %.3f", exact, bound)
			}
			checkTeacherForced(t, h, ref.IDs, ref.Greedy, ref.Margin)
			rough, _ := familyError(t, m, &ref, units.Int8)
			if figure := int8Figures[name]; figure != 0 && !(rough <= maxInt8Excess*figure) {
				t.Errorf("int8: relative RMS %.5f is over %.1f times %.5f", rough, maxInt8Excess, figure)
			}
			t.Logf("relative RMS: int8x2 %.5f, int8 %.5f", exact, rough)
			all = append(all, measured{name, m.Spec.Family, exact, rough})
		})
	}
	if !t.Failed() && len(all) == len(familyModels(t)) {
		checkFamilyTables(t, all)
	}
}

// checkFamilyTables holds docs/FAMILIES.md and the list of README.md to what was measured; -update writes them. The
// errors are the same bits on every machine, so the text is, too.
func checkFamilyTables(t *testing.T, all []measured) {
	t.Helper()
	worst := make(map[string]measured)
	for _, m := range all {
		w := worst[m.family]
		worst[m.family] = measured{m.family, m.family, max(w.exact, m.exact), max(w.int8, m.int8)}
	}
	var doc, list strings.Builder
	doc.WriteString("| model_type | class | models | int8x2 | int8 |\n|---|---|---|---|---|\n")
	for i, f := range inspect.Families() {
		w, ok := worst[f.Name]
		if !ok {
			t.Errorf("family %s has no model in testdata/families", f.Name)
		}
		fmt.Fprintf(&doc, "| %s | %s | %s | %.3f %% | %.1f %% |\n", f.Name, f.Architecture, f.Models, 100*w.exact, 100*w.int8)
		if i > 0 {
			list.WriteString("; ")
		}
		fmt.Fprintf(&list, "%s (%.3f%%)", f.Models, 100*w.exact)
	}
	list.WriteString(".\n")
	replaceGenerated(t, "../docs/FAMILIES.md", "families", doc.String())
	replaceGenerated(t, "../README.md", "families", wrap(list.String(), 120))
}

// wrap breaks text into lines of at most width bytes.
func wrap(text string, width int) string {
	var b strings.Builder
	line := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case line+1+len(word) > width:
			b.WriteByte('\n')
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += len(word)
	}
	b.WriteByte('\n')
	return b.String()
}

// replaceGenerated compares the part of a file between two comments with what it should be, or writes it.
func replaceGenerated(t *testing.T, file, name, want string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	head, rest, ok := strings.Cut(string(b), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no part %q", file, strings.TrimSpace(begin))
	}
	if have == want {
		return
	}
	if !*update {
		t.Errorf("%s is out of date: run go test ./stage -run TestFamiliesMatchReference -update\nhave:\n%s\nwant:\n%s", file, have, want)
		return
	}
	if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// familyIDs is a prompt of n ids that look random.
func familyIDs(m *inspect.Model, n int) []int {
	ids := make([]int, n)
	x := uint32(1)
	for i := range ids {
		x = x*1664525 + 1013904223
		ids[i] = 2 + int(x>>8)%(m.Spec.Vocab-2)
	}
	return ids
}

// TestFamiliesExactness: for every family, beyond its window, ids and boundary hashes are the same for every cut point,
// prefill chunking, number of threads and kernel set of this processor, and in company.
func TestFamiliesExactness(t *testing.T) {
	const promptLen, answerLen = 70, 5
	ctx := context.Background()
	for _, name := range variedFamilies(t) {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, "families/"+name)
			layers := m.Spec.Layers
			if w := m.Spec.Window; w >= promptLen {
				t.Fatalf("a prompt of %d does not go beyond the window of %d", promptLen, w)
			}
			opts := stage.GenerateOptions{Prompt: familyIDs(m, promptLen), MaxTokens: answerLen}
			base := localOptions{mode: units.Int8, threads: 1, context: promptLen + answerLen, sessions: 8}
			reference := stage.NewRecorder()
			whole := base
			whole.cuts, whole.trace = everyLayer(layers), reference.Trace
			observed, _ := localHead(t, m, whole)

			compare := func(ranges []plan.Range, o localOptions, h *stage.Head, rec *stage.Recorder) {
				t.Helper()
				diff, got, err := stage.Compare(ctx, stage.Run{Head: h, Recorder: rec}, stage.Run{Head: observed, Recorder: reference}, opts)
				if err != nil {
					t.Fatal(err)
				}
				if diff != nil {
					t.Fatalf("stages %v, chunk %d, kernels %q: %v", ranges, o.chunk, o.kernels, diff)
				}
				if n := rec.Rows(); len(got.IDs) == 0 || n != len(ranges)*(promptLen+len(got.IDs)-1) {
					t.Fatalf("stages %v: %d boundary rows of %d ids were compared", ranges, n, len(got.IDs))
				}
			}
			try := func(ranges []plan.Range, o localOptions) *stage.Head {
				t.Helper()
				rec := stage.NewRecorder()
				h := splitHead(t, m, ranges, o, rec.Trace)
				compare(ranges, o, h, rec)
				return h
			}
			// An engine that embeds, where the family lets it.
			for _, ranges := range [][]plan.Range{cutAt(layers), everyLayer(layers)} {
				rec := stage.NewRecorder()
				o := base
				o.table, o.chunk, o.cuts, o.trace = true, 33, ranges, rec.Trace
				h, _ := localHead(t, m, o)
				compare(ranges, o, h, rec)
			}
			var split *stage.Head
			for i, chunk := range []int{1, 7, 128} {
				o := base
				o.chunk, o.threads = chunk, 1+i%2
				split = try(everyLayer(layers), o)
			}
			for end := range layers - 1 {
				try(cutAt(layers, end), base)
			}
			for _, kernels := range units.CPUKernels() {
				if testing.Short() { // the plain ones take minutes under the race detector
					break
				}
				o := base
				o.chunk, o.kernels = 33, kernels
				try(cutAt(layers), o)
			}
			checkFamilyCompany(t, split, opts)
			embeds := base
			embeds.table = true
			together, _ := localHead(t, m, embeds)
			checkFamilyCompany(t, together, opts)
		})
	}
}

// checkFamilyCompany runs sessions of different lengths at once and compares each with itself alone.
func checkFamilyCompany(t *testing.T, h *stage.Head, opts stage.GenerateOptions) {
	t.Helper()
	ctx := context.Background()
	var group sync.WaitGroup
	for _, n := range []int{len(opts.Prompt), 33, 3} {
		o := opts
		o.Prompt = opts.Prompt[:n]
		alone, err := h.Generate(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			group.Go(func() {
				got, err := h.Generate(ctx, o)
				if err != nil {
					t.Error(err)
				} else if !slices.Equal(got.IDs, alone.IDs) {
					t.Errorf("a session of %d beside others gives %v, alone %v", n, got.IDs, alone.IDs)
				}
			})
		}
	}
	group.Wait()
}
