package inspect_test

import (
	"os"
	"testing"

	"dchain/inspect"
	"dchain/inspect/inspecttest"
)

// newBigHub serves synthetic:qwen2.5-0.5b (988 MB) in four shards.
func newBigHub(t *testing.T) *inspecttest.Hub {
	t.Helper()
	src, err := inspect.NewSynthetic("qwen2.5-0.5b")
	if err != nil {
		t.Fatal(err)
	}
	files, err := inspecttest.FromSource(t.Context(), src, 4)
	if err != nil {
		t.Fatal(err)
	}
	h := inspecttest.NewHub()
	t.Cleanup(h.Close)
	h.AddCommit(repoID, commit, files, "main")
	return h
}

func modelSize(m *inspect.Model) (n int64) {
	for _, f := range m.Index.Files {
		n += f.Size
	}
	return n
}

// TestBigInspect bounds what opening a sharded model of 1 GB reads.
func TestBigInspect(t *testing.T) {
	h := newBigHub(t)
	home := t.TempDir()
	m := open(t, repoID, options(h, home))
	if size := modelSize(m); size < 980e6 || m.Spec.Layers != 24 || len(m.Index.Files) != 4 {
		t.Fatalf("model has %d bytes in %d files", size, len(m.Index.Files))
	}
	config := int64(len(m.Config))
	if sent := h.Sent() - config; sent >= 1<<20 {
		t.Errorf("inspecting read %d bytes beyond the config", sent)
	}
	t.Logf("read %d bytes in %d requests", h.Sent(), len(h.Requests()))
	h.Reset()
	open(t, repoID+"@"+commit, options(h, home))
	if n := len(h.Requests()); n != 0 {
		t.Errorf("a second time: %d requests", n)
	}
}

// TestBigStages loads the model in three stages on machines of their own: together they read little more than the
// model, each with about one request per file.
func TestBigStages(t *testing.T) {
	h := newBigHub(t)
	stages := []struct {
		first, last    int
		embed, readout bool
	}{{0, 7, true, true}, {8, 15, false, false}, {16, 23, false, false}}
	sent, size := int64(0), int64(0)
	for _, s := range stages {
		home := t.TempDir()
		m := open(t, repoID+"@"+commit, options(h, home))
		size = modelSize(m)
		tensors, err := m.StageTensors(s.first, s.last, s.embed, s.readout)
		if err != nil {
			t.Fatal(err)
		}
		ranges := inspect.CoalesceRanges(tensors, inspect.FetchGap)
		files := map[string]bool{}
		for _, r := range ranges {
			files[r.File] = true
		}
		opening := len(h.Requests())
		if err := m.Source.Fetch(t.Context(), ranges, nil); err != nil {
			t.Fatal(err)
		}
		requests := len(h.Requests()) - opening
		// By name, layers 10 to 19 follow layer 1, so a stage's layers are up to four runs.
		if limit := len(files) + 3; requests > limit {
			t.Errorf("layers %d-%d: %d requests for %d files", s.first, s.last, requests, len(files))
		}
		t.Logf("layers %d-%d: %d ranges in %d files, %d requests", s.first, s.last, len(ranges), len(files), requests)
		if s.first > 0 { // the first and largest stage is compared by count only
			checkStage(t, m, tensors[:4])
		}
		sent += h.Sent()
		h.Reset()
		again := open(t, repoID+"@"+commit, options(h, home))
		if err := again.Source.Fetch(t.Context(), ranges, nil); err != nil {
			t.Fatal(err)
		}
		if n := len(h.Requests()); n != 0 {
			t.Errorf("layers %d-%d: a restart made %d requests", s.first, s.last, n)
		}
		if err := os.RemoveAll(home); err != nil {
			t.Fatal(err)
		}
	}
	if float64(sent) > 1.02*float64(size) {
		t.Errorf("stages read %d bytes of a model of %d", sent, size)
	}
	t.Logf("stages read %.4f x the model", float64(sent)/float64(size))
}

// checkStage compares fetched tensors with the ones they were made of.
func checkStage(t *testing.T, m *inspect.Model, tensors []inspect.Tensor) {
	t.Helper()
	want := open(t, "synthetic:qwen2.5-0.5b", inspect.Options{})
	for _, x := range tensors {
		n := x.Elems()
		a, b := make([]float32, n), make([]float32, n)
		if err := m.Floats(t.Context(), x, 0, n, a); err != nil {
			t.Fatal(err)
		}
		if err := want.Floats(t.Context(), want.Index.Tensors[x.Name], 0, n, b); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if a[i] != b[i] {
				t.Fatalf("tensor %q differs at element %d", x.Name, i)
			}
		}
	}
}
