package stage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
)

// packedLoad is a load of all layers and the readout by way of a cache, and what it said.
type packedLoad struct {
	logits []float32
	notes  []string
	read   int64 // bytes of the model
}

func loadCached(t *testing.T, m *inspect.Model, dir string, mode units.WeightMode) packedLoad {
	t.Helper()
	return loadCachedOn(t, m, newDevice(t, 2), dir, mode)
}

func loadCachedOn(t *testing.T, m *inspect.Model, dev units.Device, dir string, mode units.WeightMode) packedLoad {
	t.Helper()
	var l packedLoad
	before := m.Source.Stats().Bytes
	positions := min(64, m.Spec.MaxPos)
	w, err := stage.Load(context.Background(), m, dev, stage.LoadOptions{
		Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Mode: mode, Context: positions,
		Cache: dir, Note: func(text string) { l.notes = append(l.notes, text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.read = m.Source.Stats().Bytes - before
	e, err := stage.NewEngine(w, stage.EngineOptions{Context: positions, Sessions: 1, ReturnAll: true})
	if err != nil {
		t.Fatal(err)
	}
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}})
	if err != nil {
		t.Fatal(err)
	}
	l.logits = allLogits(t, h, familyIDs(m, 20))
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	return l
}

// wrote and took check what a load said of the cache.
func (l *packedLoad) wrote(t *testing.T) {
	t.Helper()
	if len(l.notes) != 1 || !strings.HasPrefix(l.notes[0], "keeping ") {
		t.Errorf("a load that had to write said %q", l.notes)
	}
}

func (l *packedLoad) took(t *testing.T) {
	t.Helper()
	if len(l.notes) != 0 {
		t.Errorf("a load from the cache said %q", l.notes)
	}
}

func packedFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, e := range entries {
		files = append(files, filepath.Join(dir, e.Name()))
	}
	return files
}

// TestPacked: whatever a model's matrices are made of, those from the cache give the same logits, and its matrices are not
// read again.
func TestPacked(t *testing.T) {
	for _, model := range []string{
		"tales-qwen2", "tales-gpt2", "families/gpt_neox", "families/falcon-new", "families/qwen3_moe", "families/granitemoe",
		"families/llama-fp8", "families/phi3", "families/opt-post",
	} {
		for _, mode := range []units.WeightMode{units.Int8, units.Int8x2} {
			t.Run(model+"/"+mode.String(), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "packed")
				m := openModel(t, model)
				plain := loadCached(t, m, "", mode)
				first := loadCached(t, m, dir, mode)
				first.wrote(t)
				second := loadCached(t, m, dir, mode)
				second.took(t)
				if !slices.Equal(first.logits, plain.logits) || !slices.Equal(second.logits, plain.logits) {
					t.Error("the cache changes logits")
				}
				if second.read > plain.read/5 {
					t.Errorf("%d bytes of the model were read again, %d without the cache", second.read, plain.read)
				}
				if files := packedFiles(t, dir); len(files) != 1 {
					t.Errorf("the cache holds %q", files)
				}
			})
		}
	}
}

// TestPackedBytes pins what a packed file holds. Where it changes for another reason than the numerics version, raise
// packedVersion or cpuPacking: files that people have must not be taken for new ones.
func TestPackedBytes(t *testing.T) {
	if !strings.Contains(newDevice(t, 1).(units.Packer).Packing(), "little-endian") {
		t.Skip("the file is that of little-endian machines")
	}
	const want = "5f992d6d011fceeb9350cf1b80c08b0d7ac8809eb26d68ece571532cfd5356b2"
	m, err := inspect.Open(context.Background(), "synthetic:tiny", inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h := sha256.New()
	for _, mode := range []units.WeightMode{units.Int8, units.Int8x2} {
		dir := t.TempDir()
		loadCached(t, m, dir, mode)
		data, err := os.ReadFile(packedFiles(t, dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		h.Write(data)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("packed files have the hash %s, want %s", got, want)
	}
}

// TestPackedDamage: a file with any part damaged is named, not used, and written anew.
func TestPackedDamage(t *testing.T) {
	dir := t.TempDir()
	m := openModel(t, "tales-qwen2")
	want := loadCached(t, m, dir, units.Int8)
	file := packedFiles(t, dir)[0]
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(good) < 3<<20 {
		t.Fatalf("%d bytes are too few for several blocks", len(good))
	}
	flip := func(at int) []byte {
		b := slices.Clone(good)
		b[at] ^= 1
		return b
	}
	hole := slices.Clone(good)
	clear(hole[1<<20 : 1<<20+4096])
	moved := slices.Clone(good)
	copy(moved[:1<<20], good[1<<20:2<<20])
	index := bytes.LastIndex(good, []byte(`"matrices"`))
	for name, bad := range map[string][]byte{
		"empty": {}, "a byte": good[:1], "half": good[:len(good)/2], "last byte lost": good[:len(good)-1],
		"first byte lost": good[1:], "a byte more": append(slices.Clone(good), 0), "first bit": flip(0),
		"second block": flip(2<<20 + 5), "last block": flip(index - 100), "hole": hole, "moved": moved,
		"index": flip(index + 1), "hash of the index": flip(len(good) - 40), "length of the index": flip(len(good) - 16),
		"magic": flip(len(good) - 1),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, bad, 0o644); err != nil {
				t.Fatal(err)
			}
			got := loadCached(t, m, dir, units.Int8)
			if len(got.notes) != 2 || !strings.HasPrefix(got.notes[0], "packed weights "+file+": it is damaged") || !strings.HasPrefix(got.notes[1], "keeping ") {
				t.Errorf("said %q", got.notes)
			}
			if !slices.Equal(got.logits, want.logits) {
				t.Error("other logits")
			}
			if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, good) {
				t.Errorf("the file was not written anew (%v)", err)
			}
			if files := packedFiles(t, dir); len(files) != 1 {
				t.Errorf("the cache holds %q", files)
			}
		})
	}
}

// TestPackedKey: what is kept for one model, part or format is not taken for another.
func TestPackedKey(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(t.TempDir(), "model")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(testdata, "tales-qwen2"))); err != nil {
		t.Fatal(err)
	}
	open := func() *inspect.Model {
		m, err := inspect.Open(context.Background(), folder, inspect.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	load := func(o stage.LoadOptions) (notes int) {
		o.Cache, o.Context, o.Note = dir, 64, func(string) { notes++ }
		w, err := stage.Load(context.Background(), open(), newDevice(t, 1), o)
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
		return notes
	}
	parts := []stage.LoadOptions{
		{Range: plan.Range{First: 0, Last: 1}}, {Range: plan.Range{First: 1, Last: 1}}, {Range: plan.Range{First: 0, Last: 1}, Readout: true},
		{Range: plan.None, Readout: true}, {Range: plan.Range{First: 0, Last: 1}, Mode: units.Int8x2},
	}
	for want := 1; want >= 0; want-- { // written, then taken
		for _, o := range parts {
			if got := load(o); got != want {
				t.Errorf("layers %v, readout %v, %v: %d notes, want %d", o.Range, o.Readout, o.Mode, got, want)
			}
		}
	}
	if files := packedFiles(t, dir); len(files) != len(parts) {
		t.Errorf("%d files for %d parts: %q", len(files), len(parts), files)
	}
	if got := load(stage.LoadOptions{Range: plan.None}); got != 0 {
		t.Errorf("a stage of nothing: %d notes", got)
	}

	// One bit in the middle of a tensor, which the identity of a folder does not see.
	weights := filepath.Join(folder, "model.safetensors")
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	before := open().Source.ID()
	data[len(data)/2] ^= 1
	if err := os.WriteFile(weights, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(weights, time.Time{}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if open().Source.ID() != before {
		t.Fatal("the identity of the folder sees the change: the test tries nothing")
	}
	if got := load(parts[0]); got != 1 {
		t.Errorf("other weights in the same folder: %d notes", got)
	}
}

// TestPackedFolder: a folder that cannot be written does not keep a stage from loading, and says so once.
func TestPackedFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	m := openModel(t, "tales-qwen2")
	want := loadCached(t, m, "", units.Int8)
	got := loadCached(t, m, filepath.Join(file, "packed"), units.Int8)
	warned := slices.DeleteFunc(slices.Clone(got.notes), func(s string) bool { return !strings.HasPrefix(s, "packed weights are not kept") })
	if len(warned) != 1 {
		t.Errorf("said %q", got.notes)
	}
	if !slices.Equal(got.logits, want.logits) {
		t.Error("other logits")
	}
}

// TestPackedDevice: a device that has no packed form is told apart and loads as without a cache.
func TestPackedDevice(t *testing.T) {
	dir := t.TempDir()
	var notes []string
	_, err := stage.Load(context.Background(), openModel(t, "tales-qwen2"), struct{ units.Device }{newDevice(t, 1)}, stage.LoadOptions{
		Range: plan.Range{First: 0, Last: 0}, Context: 64, Cache: dir, Note: func(text string) { notes = append(notes, text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "has no packed form") {
		t.Errorf("said %q", notes)
	}
}

// fullDevice has no room for what is in a cache.
type fullDevice struct{ units.Packer }

var errFull = errors.New("the device is full")

func (fullDevice) OpenLinear(string, int, int, units.WeightMode, []byte) (units.Linear, error) {
	return nil, errFull
}

// TestPackedFull: what a device fails with for reasons of its own does not condemn the file.
func TestPackedFull(t *testing.T) {
	dir := t.TempDir()
	m := openModel(t, "tales-qwen2")
	first := loadCached(t, m, dir, units.Int8)
	first.wrote(t)
	_, err := stage.Load(t.Context(), m, fullDevice{newDevice(t, 1).(units.Packer)}, stage.LoadOptions{
		Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Context: 64, Cache: dir, Note: func(text string) { t.Errorf("said %q", text) },
	})
	if !errors.Is(err, errFull) {
		t.Error(err)
	}
	second := loadCached(t, m, dir, units.Int8)
	second.took(t)
}

// TestPackedTogether: stages that start at once, on one folder, all load.
func TestPackedTogether(t *testing.T) {
	dir := t.TempDir()
	m := openModel(t, "tales-qwen2")
	var g errgroup.Group
	var mu sync.Mutex
	var said []string
	for range 4 {
		dev := newDevice(t, 1)
		g.Go(func() error {
			w, err := stage.Load(context.Background(), m, dev, stage.LoadOptions{
				Range: plan.Range{First: 0, Last: 1}, Context: 64, Cache: dir, Note: func(text string) {
					mu.Lock()
					defer mu.Unlock()
					said = append(said, text)
				},
			})
			if err == nil {
				err = w.Close()
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for _, s := range said {
		if !strings.HasPrefix(s, "keeping ") {
			t.Errorf("said %q", s)
		}
	}
	if files := packedFiles(t, dir); len(files) != 1 {
		t.Errorf("the cache holds %q", files)
	}
}
