package inspect

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSyntheticModels(t *testing.T) {
	if _, err := NewSynthetic("gpt5"); err == nil || !strings.Contains(err.Error(), "llama-3.1-8b, llama-3.2-1b") {
		t.Errorf("unknown name: %v", err)
	}
	sizes := map[string]int64{"qwen2.5-0.5b": 494_032_768, "llama-3.1-8b": 8_030_261_248, "gpt2": 124_439_808,
		"llama-3.2-1b": 1_235_814_400, "qwen2.5-1.5b": 1_543_714_304, "qwen2.5-7b": 7_615_616_512}
	for name := range syntheticModels {
		src, err := NewSynthetic(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := readModel(t.Context(), src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := sizes[name]; want != 0 && src.index.Files[0].Size != 2*want {
			t.Errorf("%s has %d parameters, the real one %d", name, src.index.Files[0].Size/2, want)
		}
		tensors, err := m.StageTensors(0, m.Spec.Layers-1, true, true)
		if err != nil || len(tensors) != len(m.Index.Tensors) {
			t.Errorf("%s: %d of %d tensors are used: %v", name, len(tensors), len(m.Index.Tensors), err)
		}
		if _, err := src.ReadFile(t.Context(), "tokenizer.json"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s has a tokenizer: %v", name, err)
		}
	}
}

// TestSyntheticBytes reads pieces of every alignment, across tensors.
func TestSyntheticBytes(t *testing.T) {
	src, err := NewSynthetic("tiny")
	if err != nil {
		t.Fatal(err)
	}
	size := src.index.Files[0].Size
	all := make([]byte, size)
	if err := src.ReadAt(t.Context(), singleFile, all, 0); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		off := rng.Int64N(size)
		p := make([]byte, min(size-off, rng.Int64N(300)))
		if err := src.ReadAt(t.Context(), singleFile, p, off); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(p, all[off:off+int64(len(p))]) {
			t.Fatalf("%d bytes at %d differ", len(p), off)
		}
	}
	for _, off := range []int64{-1, size, math.MaxInt64} {
		if err := src.ReadAt(t.Context(), singleFile, make([]byte, 1), off); err == nil {
			t.Errorf("read at %d: no error", off)
		}
	}
}

// TestSyntheticValues holds the distribution, and the exact bytes, on which every machine must agree.
func TestSyntheticValues(t *testing.T) {
	src, err := NewSynthetic("qwen2.5-tiny")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name        string
		mean, sigma float64
	}{
		{"model.embed_tokens.weight", 0, 0.02},
		{"model.layers.0.mlp.down_proj.weight", 0, 1 / math.Sqrt(704)},
		{"model.layers.3.self_attn.q_proj.weight", 0, 1.0 / 16},
		{"model.layers.7.input_layernorm.weight", 1, 1.0 / 16},
	}
	for _, tt := range tests {
		x := src.index.Tensors[tt.name]
		v := make([]float32, x.Elems())
		if err := readFloats(t.Context(), src, x, 0, x.Elems(), v); err != nil {
			t.Fatal(err)
		}
		var sum, squares float64
		for _, f := range v {
			sum += float64(f)
		}
		mean := sum / float64(len(v))
		for _, f := range v {
			squares += (float64(f) - mean) * (float64(f) - mean)
		}
		sigma := math.Sqrt(squares / float64(len(v)))
		tolerance := 5 * tt.sigma / math.Sqrt(float64(len(v)))
		if math.Abs(mean-tt.mean) > tolerance || math.Abs(sigma-tt.sigma) > tolerance+tt.sigma/100 {
			t.Errorf("%s: mean %g sigma %g, want %g and %g", tt.name, mean, sigma, tt.mean, tt.sigma)
		}
	}
	all := make([]byte, src.index.Files[0].Size)
	if err := src.ReadAt(t.Context(), singleFile, all, 0); err != nil {
		t.Fatal(err)
	}
	if got, want := hashName(string(all)), uint64(0xf4768642c8b7d8c6); got != want {
		t.Errorf("hash of all tensors is %#x, want %#x", got, want)
	}
}

func BenchmarkSynthetic(b *testing.B) {
	src, err := NewSynthetic("qwen2.5-0.5b")
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 1<<20)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		if err := src.ReadAt(b.Context(), singleFile, p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
