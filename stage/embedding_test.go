package stage

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
	"dchain/units/vk"
)

// tableless has no memory for a table.
type tableless struct{ units.Device }

func (tableless) NewTable(string, units.TableSpec) (units.Table, error) {
	return nil, vk.ErrOutOfMemory
}

// fullOnce has no memory for a cache until a table is given back.
type fullOnce struct {
	units.Device
	tables int
}

type countedTable struct {
	units.Table
	of *fullOnce
}

func (t countedTable) Close() error {
	t.of.tables--
	return t.Table.Close()
}

func (d *fullOnce) NewTable(name string, spec units.TableSpec) (units.Table, error) {
	t, err := d.Device.NewTable(name, spec)
	d.tables++
	return countedTable{t, d}, err
}

func (d *fullOnce) NewCache(spec units.CacheSpec) (units.Cache, error) {
	if d.tables > 0 {
		return nil, vk.ErrOutOfMemory
	}
	return d.Device.NewCache(spec)
}

func testModel(t *testing.T, dir string) *inspect.Model {
	t.Helper()
	m, err := inspect.Open(t.Context(), dir, inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func loadTable(t *testing.T, m *inspect.Model, dev units.Device, o LoadOptions) *Weights {
	t.Helper()
	o.Range, o.Readout, o.Table, o.Context = plan.Range{First: 0, Last: m.Spec.Layers - 1}, true, true, 16
	w, err := Load(t.Context(), m, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// TestProgramOfIDs: of every family a program that begins with ids gives the logits that it gives of the rows that the head reads,
// or there is none because these are more than rows of a table.
func TestProgramOfIDs(t *testing.T) {
	dirs, err := filepath.Glob("../testdata/families/*")
	if err != nil || len(dirs) < 14 {
		t.Fatalf("found %d family folders: %v", len(dirs), err)
	}
	dev, err := units.NewCPU(units.CPUOptions{Threads: 1, AuditEvery: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	with, without := 0, 0
	for _, dir := range append(dirs, "../testdata/tales-qwen2") {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			m := testModel(t, dir)
			w := loadTable(t, m, dev, LoadOptions{})
			s := &m.Spec
			h := &Head{Model: m}
			cache, err := w.newCache(units.CacheSpec{Layers: s.Layers, Slots: 2, Context: 16, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
			if err != nil {
				t.Fatal(err)
			}
			defer cache.Close()
			of := w.wholeOfIDs(cache)
			if of == nil {
				without++
				return
			}
			with++
			if int64(s.Vocab*s.Hidden) > TableBytes(m) {
				t.Errorf("%d rows of %d take %d bytes", s.Vocab, s.Hidden, TableBytes(m))
			}
			whole := w.whole(cache)
			defer whole.close()
			defer of.close()
			ids := []int{0, s.Vocab - 1, 5, s.Vocab / 2, 5, 1}
			hidden, err := h.embed(t.Context(), ids, 0)
			if err != nil {
				t.Fatal(err)
			}
			numbers := make([]float32, len(ids))
			rows := [2][]units.Row{make([]units.Row, len(ids)), make([]units.Row, len(ids))}
			var asks [2][]*ask
			for i, id := range ids {
				numbers[i] = float32(id)
				for slot := range rows {
					rows[slot][i] = units.Row{Slot: slot, Pos: i}
					asks[slot] = append(asks[slot], &ask{})
				}
			}
			if err := whole.run(rows[0], hidden, asks[0]); err != nil {
				t.Fatal(err)
			}
			if err := of.run(rows[1], numbers, asks[1]); err != nil {
				t.Fatal(err)
			}
			for i := range ids {
				if !slices.Equal(asks[0][i].scores.values, asks[1][i].scores.values) {
					t.Errorf("id %d at position %d has other logits", ids[i], i)
				}
			}
			var oe *units.OpError
			if err := of.run(rows[1][:1], []float32{float32(s.Vocab)}, asks[1][:1]); !errors.As(err, &oe) || oe.Op != units.OpEmbed {
				t.Errorf("an id outside of the vocabulary: %v", err)
			}
		})
	}
	if with < 30 || without < 5 {
		t.Errorf("%d models have a table, %d none", with, without)
	}
}

// TestLayersOfIDsFail: a row that is not finite fails a prompt though only the last is looked at.
func TestLayersOfIDsFail(t *testing.T) {
	m := testModel(t, "../testdata/tales-qwen2")
	dev, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	w := loadTable(t, m, dev, LoadOptions{})
	largest := func(id int) float32 {
		row, err := (&Head{Model: m}).embed(t.Context(), []int{id}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return max(slices.Max(row), -slices.Min(row))
	}
	small, large := 0, 1
	for id := range m.Spec.Vocab {
		if v := largest(id); v < largest(small) {
			small = id
		} else if v > largest(large) {
			large = id
		}
	}
	const first = 1 << 60
	scale := math.MaxFloat32 / first / (largest(small) + largest(large)) * 2 // of the two the larger one becomes infinite
	exec, err := dev.Compile(w.layersOfIDs(units.Program{Bufs: []units.BufSpec{{Width: m.Spec.Hidden}},
		Ops: []units.Op{{Kind: units.OpScale, Dst: 0, A: 0, B: units.None, Scale: first}, {Kind: units.OpScale, Dst: 0, A: 0, B: units.None, Scale: scale}}}))
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	out := make([]float32, m.Spec.Hidden)
	if err := exec.Run(make([]units.Row, 2), []float32{float32(small), float32(small)}, out); err != nil {
		t.Error(err)
	}
	var oe *units.OpError
	if err := exec.Run(make([]units.Row, 2), []float32{float32(large), float32(small)}, out); !errors.As(err, &oe) || oe.Row != 0 || oe.Layer != m.Spec.Layers-1 {
		t.Errorf("a row that is not finite before the last: %v", err)
	}
}

// TestTableMakesWay: where there is no memory for the table, or none for the cache beside it, the model runs without.
func TestTableMakesWay(t *testing.T) {
	m := testModel(t, "../testdata/tales-qwen2")
	dev, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if w := loadTable(t, m, tableless{dev}, LoadOptions{}); w.table != nil {
		t.Error("there is a table that the device has no memory for")
	}
	full := &fullOnce{Device: dev}
	w := loadTable(t, m, full, LoadOptions{})
	if w.table == nil || full.tables != 1 {
		t.Fatalf("%d tables", full.tables)
	}
	e, err := NewEngine(w, EngineOptions{Context: 16, Sessions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if w.table != nil || full.tables != 0 {
		t.Errorf("%d tables beside a cache that has no room", full.tables)
	}
}

// TestTableBesidePacked: matrices from a packed file, the table from the model.
func TestTableBesidePacked(t *testing.T) {
	m := testModel(t, "../testdata/tales-qwen2")
	dev, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	o := LoadOptions{Cache: t.TempDir()}
	for range 2 {
		var read, total int64
		o.Progress = func(n, all int64) { read, total = read+n, all }
		w := loadTable(t, m, dev, o)
		if w.table == nil || read != total || read < int64(m.Spec.Vocab*m.Spec.Hidden) {
			t.Errorf("%d of %d values were read, of a table too", read, total)
		}
		if w.packed != nil && read != int64(m.Spec.Vocab*m.Spec.Hidden) {
			t.Errorf("%d values were read beside the packed file", read)
		}
	}
}
