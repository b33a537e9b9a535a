package inspect_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"dchain/inspect"
)

func TestOpenForms(t *testing.T) {
	abs, err := filepath.Abs("../testdata/tales-qwen2")
	if err != nil {
		t.Fatal(err)
	}
	opts := inspect.Options{Builtin: os.DirFS("../testdata/tales-qwen2"), Env: func(name string) string {
		return map[string]string{"HOME": filepath.Dir(abs)}[name]
	}}
	want := open(t, "builtin", opts)
	if id := want.Source.ID(); !strings.HasPrefix(id, "sha256:") {
		t.Errorf("ID is %q", id)
	}
	for _, model := range []string{abs, "../testdata/tales-qwen2", "../testdata/tales-qwen2/", "~/tales-qwen2"} {
		m := open(t, model, opts)
		if m.Source.ID() != want.Source.ID() || m.Fingerprint("int8", 1) != want.Fingerprint("int8", 1) {
			t.Errorf("%s is not the same model: %s", model, m.Source.ID())
		}
	}
	if m := open(t, "synthetic:tiny", opts); m.Source.ID() != "synthetic:tiny" || m.Spec.Layers != 4 {
		t.Errorf("synthetic model is %s, %+v", m.Source.ID(), m.Spec)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "half")
	if err := os.CopyFS(half, os.DirFS("../testdata/tales-qwen2")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(half, "model.safetensors"), 3<<20); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		model string
		opts  inspect.Options
		want  []string
	}{
		{"", inspect.Options{}, []string{`opening model ""`, "org/name[@revision]"}},
		{"gpt2", inspect.Options{}, []string{`opening model "gpt2"`, "neither a folder, nor builtin, synthetic:NAME", "no org/"}},
		{"a/b/c", inspect.Options{}, []string{"no valid repository name"}},
		{"a/b@x y", inspect.Options{}, []string{`"x y" is no valid revision`}},
		{"./nothing", inspect.Options{}, []string{`"./nothing"`, "no such file"}},
		{filepath.Join(dir, "file"), inspect.Options{}, []string{"not a folder"}},
		{dir, inspect.Options{}, []string{"there is no config.json in it"}},
		{half, inspect.Options{}, []string{`"model.safetensors"`, "truncated: its header describes 7493160 bytes, found 3145728"}},
		{"builtin", inspect.Options{}, []string{"built without one"}},
		{"builtin", inspect.Options{Revision: "main"}, []string{"only hub models have revisions"}},
		{"synthetic:huge", inspect.Options{}, []string{`"huge"`, "qwen2.5-0.5b"}},
		{"a/b", inspect.Options{Retries: -1}, []string{"must not be negative"}},
	}
	for _, tt := range tests {
		_, err := inspect.Open(t.Context(), tt.model, tt.opts)
		if err == nil {
			t.Errorf("%q: no error", tt.model)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error is %v, want %q in it", tt.model, err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error has several lines: %v", tt.model, err)
		}
	}
}

func TestFingerprint(t *testing.T) {
	m := open(t, "synthetic:tiny", inspect.Options{})
	want := m.Fingerprint("int8", 1)
	clone := func() *inspect.Model {
		c := *m
		c.Index = &inspect.Index{Tensors: map[string]inspect.Tensor{}, Files: m.Index.Files}
		for name, x := range m.Index.Tensors {
			c.Index.Tensors[name] = x
		}
		return &c
	}
	same := clone()
	same.Config = []byte(strings.Join(strings.Fields(string(m.Config)), ""))
	if same.Fingerprint("int8", 1) != want {
		t.Error("white space in config.json changes the fingerprint")
	}
	config := clone()
	config.Config = []byte(strings.Replace(string(m.Config), "10000.0", "10001.0", 1))
	shape := clone()
	norm := shape.Index.Tensors["model.norm.weight"]
	norm.Shape = []int{8, 8}
	shape.Index.Tensors[norm.Name] = norm
	name := clone()
	delete(name.Index.Tensors, norm.Name)
	other := open(t, "synthetic:llama-tiny", inspect.Options{})
	for what, got := range map[string][32]byte{
		"weight format": m.Fingerprint("int8x2", 1), "numerics version": m.Fingerprint("int8", 2),
		"config": config.Fingerprint("int8", 1), "shape": shape.Fingerprint("int8", 1),
		"tensor list": name.Fingerprint("int8", 1), "model": other.Fingerprint("int8", 1),
	} {
		if got == want {
			t.Errorf("another %s has the same fingerprint", what)
		}
	}
}

func TestStageTensors(t *testing.T) {
	for _, model := range []string{"tales-qwen2", "tales-llama", "tales-gpt2", "families/gpt2", "families/llama", "families/qwen2"} {
		m := open(t, "../testdata/"+model, inspect.Options{})
		seen := map[string]int{}
		collect := func(first, last int, embed, readout bool) int {
			tensors, err := m.StageTensors(first, last, embed, readout)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range tensors {
				seen[x.Name]++
			}
			return len(tensors)
		}
		if n := collect(0, -1, false, false); n != 0 {
			t.Errorf("%s: no layers take %d tensors", model, n)
		}
		collect(0, 0, true, false)
		collect(1, m.Spec.Layers-2, false, false)
		collect(m.Spec.Layers-1, m.Spec.Layers-1, false, false)
		collect(0, -1, false, true)
		embed := m.Spec.Tensor(inspect.RoleEmbed, 0) + ".weight"
		for name := range m.Index.Tensors {
			want := 1
			if name == embed && m.Spec.Tie {
				want = 2
			}
			if seen[name] != want {
				t.Errorf("%s: tensor %q is read %d times, want %d", model, name, seen[name], want)
			}
		}
		for _, r := range [][2]int{{-1, 0}, {0, m.Spec.Layers}, {m.Spec.Layers, m.Spec.Layers}} {
			if _, err := m.StageTensors(r[0], r[1], false, false); err == nil {
				t.Errorf("%s: layers %v: no error", model, r)
			}
		}
		for name := range m.Index.Tensors {
			delete(m.Index.Tensors, name)
		}
		_, err := m.StageTensors(0, 1, true, false)
		if err == nil || !strings.Contains(err.Error(), embed) || !strings.Contains(err.Error(), "more") {
			t.Errorf("%s: missing tensors: %v", model, err)
		}
	}
}

func TestCoalesceRanges(t *testing.T) {
	tensor := func(file string, begin, end int64) inspect.Tensor {
		return inspect.Tensor{Range: inspect.Range{File: file, Begin: begin, End: end}}
	}
	in := []inspect.Tensor{tensor("b", 0, 5), tensor("a", 20, 30), tensor("a", 0, 10), tensor("a", 10, 15),
		tensor("a", 31, 31), tensor("a", 36, 40), tensor("a", 21, 22)}
	for gap, want := range map[int64][]inspect.Range{
		0: {{File: "a", Begin: 0, End: 15}, {File: "a", Begin: 20, End: 30}, {File: "a", Begin: 36, End: 40}, {File: "b", Begin: 0, End: 5}},
		5: {{File: "a", Begin: 0, End: 30}, {File: "a", Begin: 36, End: 40}, {File: "b", Begin: 0, End: 5}},
		6: {{File: "a", Begin: 0, End: 40}, {File: "b", Begin: 0, End: 5}},
	} {
		if got := inspect.CoalesceRanges(in, gap); !reflect.DeepEqual(got, want) {
			t.Errorf("gap %d: %v, want %v", gap, got, want)
		}
	}
	if in[0].File != "b" {
		t.Error("the argument was sorted")
	}
}
