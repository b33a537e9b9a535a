package stage

import (
	"context"
	"errors"
	"fmt"

	"dchain/inspect"
	"dchain/units"
	"dchain/units/vk"
)

// The embedding on the device: a program of all layers and the readout that begins with ids needs nothing of the host but these
// and their positions.

// tableTypes are the types of an embedding that a device keeps as they are.
var tableTypes = map[inspect.DType]units.TableType{inspect.BF16: units.TableBF16, inspect.F16: units.TableF16, inspect.F32: units.TableF32}

// tableOf is the tensor of the embedding and the table of it that a device can look rows up in; false if embeddings of the model
// are more than rows, or of another type.
func tableOf(m *inspect.Model) (inspect.Tensor, units.TableSpec, bool) {
	s := &m.Spec
	t, found := m.Index.Tensors[s.WeightNames(inspect.RoleEmbed, 0)[0]]
	typ, kept := tableTypes[t.DType]
	return t, units.TableSpec{Rows: s.Vocab, Width: s.Hidden, Type: typ}, found && kept && s.PlainEmbed()
}

// TableBytes is the memory that LoadOptions.Table takes, 0 where the model has no such table.
func TableBytes(m *inspect.Model) int64 {
	_, spec, ok := tableOf(m)
	if !ok {
		return 0
	}
	return int64(spec.Rows) * int64(spec.Width) * int64(spec.Type.Bytes())
}

// declareTable reserves the table, if it is wanted, the model has one and the device has the memory.
func (l *loader) declareTable() error {
	if !l.opts.Table {
		return nil
	}
	t, spec, _ := tableOf(l.model)
	table, err := l.dev.NewTable(t.Name, spec)
	if errors.Is(err, vk.ErrOutOfMemory) {
		return nil // the host reads the rows
	}
	if err == nil {
		l.w.table = table
	}
	return err
}

// putTable reads rows of the table, into buf where they fit.
func (l *loader) putTable(ctx context.Context, first, rows int, buf []byte) ([]byte, error) {
	t, spec, _ := tableOf(l.model)
	each := spec.Width * spec.Type.Bytes()
	if cap(buf) < rows*each {
		buf = make([]byte, rows*each)
	}
	stored := buf[:rows*each]
	if err := l.model.Source.ReadAt(ctx, t.File, stored, t.Begin+int64(first)*int64(each)); err != nil {
		return buf, fmt.Errorf("reading tensor %q: %w", t.Name, err)
	}
	return buf, l.w.table.PutRows(first, stored)
}

// dropTable gives the memory of the table back.
func (w *Weights) dropTable() error {
	if w.table == nil {
		return nil
	}
	t := w.table
	w.table = nil
	return t.Close()
}

// newCache reserves a cache, in the place of the table if there is no room for both.
func (w *Weights) newCache(spec units.CacheSpec) (units.Cache, error) {
	cache, err := w.dev.NewCache(spec)
	if err == nil || w.table == nil || !errors.Is(err, vk.ErrOutOfMemory) {
		return cache, err
	}
	if err := w.dropTable(); err != nil {
		return nil, err
	}
	return w.dev.NewCache(spec)
}

// ofIDs is a program of hidden rows with the embedding before it: id [1] -> what p gives for the row of that id.
func (w *Weights) ofIDs(p units.Program) units.Program {
	ids := units.Buf(len(p.Bufs))
	p.Bufs = append(p.Bufs, units.BufSpec{Kind: units.F32, Width: 1})
	p.Ops = append([]units.Op{{Kind: units.OpEmbed, Dst: p.In, A: ids, B: units.None, Table: w.table, Scale: float32(w.Model.Spec.EmbedScale)}}, p.Ops...)
	p.In = ids
	return p
}

// layersOfIDs is a program of layers with the embedding before it, which fails for a row that is not finite though only the last is
// looked at.
func (w *Weights) layersOfIDs(p units.Program) units.Program {
	largest := units.Buf(len(p.Bufs))
	p.Bufs = append(p.Bufs, units.BufSpec{Kind: units.F32, Width: 2})
	p.Ops = append(p.Ops, units.Op{Kind: units.OpTop, Dst: largest, A: p.Out, B: units.None, TopK: 1, Layer: w.Range.Last})
	return w.ofIDs(p)
}

// wholeOfIDs is whole of ids in place of hidden rows; nil unless the device keeps the table.
func (w *Weights) wholeOfIDs(cache units.Cache) *forms {
	if w.table == nil {
		return nil
	}
	return &forms{vocab: w.Model.Spec.Vocab, compile: func(top int) (units.Executable, error) {
		p, err := modelProgram(w, cache, top)
		if err != nil {
			return nil, err
		}
		return w.dev.Compile(w.ofIDs(p))
	}}
}
