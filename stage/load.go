package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

// Weights are the quantised tensors of a range of layers on a device, and of the readout where the stage is the head.
type Weights struct {
	Model *inspect.Model
	Range plan.Range
	Mode  units.WeightMode
	Bytes int64 // device memory of the linear weights

	packed    *packedFile // that the matrices lie in, or nil
	handles   []io.Closer // of the device: all that follow
	dev       units.Device
	context   int
	layers    []layerWeights
	embedProj linearWeights
	embedNorm normWeights
	finalNorm normWeights
	readProj  linearWeights
	lmHead    linearWeights
	table     units.Table // the embedding; nil where the host reads its rows
}

// LoadOptions says what to load. Range may be plan.None.
type LoadOptions struct {
	Range   plan.Range
	Embed   bool // projection and norm of embeddings
	Readout bool // final norm and language-model head, and what Embed says
	// Table keeps the embedding on the device too, if it has the memory and embeddings of the model are its rows and nothing else. An
	// engine of the first layers uses it.
	Table   bool
	Mode    units.WeightMode
	Context int // positions the rotary tables cover
	Workers int // concurrent readers; 0 = as many as there are cores, and at least 2
	// Cache is a folder where the matrices are kept between processes, as the device works on them; "" is none. What is
	// kept there for the same model, part, format and device is used instead of the model's own files. Weights do not
	// depend on it: a file that is damaged, or that cannot be written, is reported to Note and the model is read.
	Cache string
	Note  func(text string) // of the cache; may be nil
	// Progress, which may be nil, is called with tensor bytes read since the last call, and the total.
	Progress func(n, total int64)
}

// Load fetches the tensors of a range by byte range and quantises them while they stream in: at no time is more than
// a few blocks of rows held as float32. Errors name the tensor.
func Load(ctx context.Context, m *inspect.Model, dev units.Device, opts LoadOptions) (*Weights, error) {
	if opts.Range.Len() > 0 && (opts.Range.First < 0 || opts.Range.Last >= m.Spec.Layers) {
		return nil, fmt.Errorf("loading layers %v: the model has layers 0-%d", opts.Range, m.Spec.Layers-1)
	}
	if opts.Workers <= 0 {
		opts.Workers = max(2, units.DefaultThreads())
	}
	opts.Embed = opts.Embed || opts.Readout
	if opts.Cache == "" {
		w, _, err := load(ctx, m, dev, opts, nil)
		return w, err
	}
	note := func(format string, args ...any) {
		if opts.Note != nil {
			opts.Note(fmt.Sprintf(format, args...))
		}
	}
	packer, ok := dev.(units.Packer)
	if !ok {
		note("no packed weights are kept: %s has no packed form", dev.Name())
		w, _, err := load(ctx, m, dev, opts, nil)
		return w, err
	}
	return loadPacked(ctx, m, packer, opts, note)
}

// loadPacked takes the matrices from the cache, or else keeps them there.
func loadPacked(ctx context.Context, m *inspect.Model, dev units.Packer, opts LoadOptions, note func(string, ...any)) (*Weights, error) {
	key := packedKey(m, dev.Packing(), &opts)
	path := packedPath(m, key, &opts)
	packed, err := openPacked(ctx, path, key, opts.Workers)
	if err == nil {
		var w *Weights
		if w, _, err = load(ctx, m, dev, opts, packed); err == nil {
			return w, nil
		}
	}
	var unusable *packedError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case !errors.As(err, &unusable):
		return nil, err
	case !errors.Is(err, fs.ErrNotExist):
		note("%v; the model is read and the file written anew", err)
	}
	w, parts, err := load(ctx, m, dev, opts, nil)
	if err != nil || len(parts) == 0 {
		return w, err
	}
	note("keeping %s of packed weights in %s", plan.Bytes(packedSize(parts)), path)
	if err := writePacked(ctx, path, key, m.Source.ID(), dev, parts); err != nil {
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), w.Close())
		}
		note("packed weights are not kept, the next start reads the model again: %v", err)
	}
	return w, nil
}

// Close gives back the memory of the weights. Nothing that was compiled from them may run afterwards.
func (w *Weights) Close() error {
	var errs []error
	for _, h := range w.handles {
		errs = append(errs, h.Close())
	}
	w.handles = nil
	errs = append(errs, w.dropTable())
	if w.packed != nil {
		errs = append(errs, w.packed.close())
	}
	return errors.Join(errs...)
}

// load fills the weights, with matrices from packed or, where that is nil, from the model; these it returns as parts too. When
// it fails it closes packed.
func load(ctx context.Context, m *inspect.Model, dev units.Device, opts LoadOptions, packed *packedFile) (*Weights, []matrixPart, error) {
	_, _, plain := tableOf(m)
	opts.Table = opts.Table && plain && (opts.Embed || opts.Readout) && opts.Range.Len() > 0 && opts.Range.First == 0
	l := &loader{model: m, dev: dev, opts: opts, w: &Weights{
		Model: m, Range: opts.Range, Mode: opts.Mode, packed: packed, dev: dev, context: opts.Context,
	}}
	for _, step := range []func(context.Context) error{l.fetch, l.declare, l.stream, l.finish} {
		if err := step(ctx); err != nil {
			return nil, nil, errors.Join(err, l.w.Close())
		}
	}
	return l.w, l.parts, nil
}

// vector puts parameters on the device.
func (l *loader) vector(name string, v []float32) (units.Vector, error) {
	h, err := l.dev.NewVector(name, v)
	if err == nil {
		l.w.handles = append(l.w.handles, h)
	}
	return h, err
}

// fetch makes what is going to be read available, in few requests.
func (l *loader) fetch(ctx context.Context) error {
	tensors, err := l.model.StageTensors(l.opts.Range.First, l.opts.Range.Last, l.opts.Table, l.opts.Readout)
	if err != nil {
		return err
	}
	if l.opts.Embed { // without a table the embedding itself is read row by row
		tensors = append(tensors, l.model.Tensors(inspect.RoleEmbedProj, 0)...)
		tensors = append(tensors, l.model.Tensors(inspect.RoleEmbedNorm, 0)...)
	}
	if l.w.packed != nil { // the matrices are here
		table, _, _ := tableOf(l.model)
		tensors = slices.DeleteFunc(tensors, func(t inspect.Tensor) bool { return len(t.Shape) > 1 && !(l.opts.Table && t.Name == table.Name) })
	}
	return l.model.Source.Fetch(ctx, inspect.CoalesceRanges(tensors, inspect.FetchGap), nil)
}

// blockElems is the size of one read: 1 MiB of float32 a worker.
const blockElems = 1 << 18

// loader collects what has to be read (declare), then reads it with several workers (stream).
type loader struct {
	model  *inspect.Model
	dev    units.Device // a units.Packer where the weights lie in a packed file
	opts   LoadOptions
	w      *Weights
	parts  []matrixPart   // to be read and quantised
	packed []units.Linear // to be finished alone
	ropes  map[*inspect.RopeSpec]ropeTables
	slopes units.Vector
}

// matrixPart is the output rows of a tensor that become one linear.
type matrixPart struct {
	tensor inspect.Tensor
	linear units.Linear
	rows   []inspect.Rows // of the tensor, in the order of the linear; leading dimensions count as rows
	n, k   int
	mode   units.WeightMode
	// transposed: output rows are columns of the tensor, [k][tensorN] (GPT-2's Conv1D).
	transposed bool
	tensorN    int
}

func (l *loader) declare(ctx context.Context) error {
	s, opts := &l.model.Spec, &l.opts
	l.ropes = make(map[*inspect.RopeSpec]ropeTables)
	if slopes := s.ALiBiSlopes(); slopes != nil && opts.Range.Len() > 0 {
		var err error
		if l.slopes, err = l.vector("ALiBi slopes", slopes); err != nil {
			return err
		}
	}
	for layer := opts.Range.First; layer <= opts.Range.Last; layer++ {
		w, err := l.layer(ctx, layer)
		if err != nil {
			return err
		}
		l.w.layers = append(l.w.layers, w)
	}
	if opts.Embed {
		if err := l.norm(ctx, inspect.RoleEmbedNorm, 0, &l.w.embedNorm); err != nil {
			return err
		}
	}
	if opts.Readout {
		if err := l.norm(ctx, inspect.RoleFinalNorm, 0, &l.w.finalNorm); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		role   inspect.Role
		wanted bool
		dst    *linearWeights
	}{
		{inspect.RoleEmbedProj, opts.Embed, &l.w.embedProj},
		{inspect.RoleReadoutProj, opts.Readout, &l.w.readProj},
		{inspect.RoleLMHead, opts.Readout, &l.w.lmHead},
	} {
		if !m.wanted || !s.Has(m.role) {
			continue
		}
		n, _ := s.Dims(m.role)
		if err := l.linear(ctx, m.role, 0, part{m.dst, whole(n)}); err != nil {
			return err
		}
	}
	return l.declareTable()
}

func (l *loader) tensor(name string) (inspect.Tensor, error) {
	t, ok := l.model.Index.Tensors[name]
	if !ok {
		return t, fmt.Errorf("loading %s: tensor %q is not in the model", l.model.Source.Location(), name)
	}
	return t, nil
}

func (l *loader) floats(ctx context.Context, name string, width int) ([]float32, error) {
	t, err := l.tensor(name)
	if err != nil {
		return nil, err
	}
	v := make([]float32, width)
	return v, l.model.Floats(ctx, t, 0, int64(width), v)
}

// stream reads all parts, and the table, in blocks of rows and hands them to the device, several blocks at a time.
func (l *loader) stream(ctx context.Context) error {
	var total int64
	blocks := l.blocks()
	for _, b := range blocks {
		total += int64(b.elems)
	}
	var mu sync.Mutex
	report := func(elems int) {
		if l.opts.Progress != nil {
			mu.Lock()
			defer mu.Unlock()
			l.opts.Progress(int64(elems), total)
		}
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range l.opts.Workers {
		g.Go(func() error {
			var buf loadBuffer
			for {
				i := int(next.Add(1)) - 1
				if i >= len(blocks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := l.put(ctx, blocks[i], &buf); err != nil {
					return err
				}
				report(blocks[i].elems)
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range l.parts {
		if err := p.linear.Finish(); err != nil {
			return err
		}
	}
	if l.w.table != nil {
		return l.w.table.Finish()
	}
	return nil
}

// finish finishes matrices of the packed file, several at a time: devices copy them.
func (l *loader) finish(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(l.opts.Workers)
	for _, m := range l.packed {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.Finish()
		})
	}
	return g.Wait()
}

// block is a run of output rows of a part, or of rows of the table.
type block struct {
	part, first, rows int
	elems             int
}

// ofTable is the part of blocks of the table.
const ofTable = -1

func (l *loader) blocks() []block {
	var all []block
	cut := func(part, n, k int) {
		step := max(blockElems/k, 1)
		for first := 0; first < n; first += step {
			rows := min(step, n-first)
			all = append(all, block{part, first, rows, rows * k})
		}
	}
	for i, p := range l.parts {
		cut(i, p.n, p.k)
	}
	if l.w.table != nil {
		s := l.w.table.Spec()
		cut(ofTable, s.Rows, s.Width)
	}
	return all
}

// loadBuffer is what a worker reads into.
type loadBuffer struct {
	floats []float32
	bytes  []byte
}

// put reads one block and hands it to the device.
func (l *loader) put(ctx context.Context, b block, buf *loadBuffer) error {
	var err error
	if b.part == ofTable {
		buf.bytes, err = l.putTable(ctx, b.first, b.rows, buf.bytes)
	} else {
		buf.floats, err = l.putPart(ctx, b, buf.floats)
	}
	return err
}

// putPart reads a block as [rows][k] float32, into buf where it fits, and quantises it.
func (l *loader) putPart(ctx context.Context, b block, buf []float32) ([]float32, error) {
	p := l.parts[b.part]
	elems := b.rows * p.k
	if cap(buf) < elems {
		buf = make([]float32, elems)
	}
	rows := buf[:elems]
	at := 0 // of the linear's rows
	for _, run := range p.rows {
		first, end := max(b.first, at), min(b.first+b.rows, at+run.N)
		if first < end {
			dst := rows[(first-b.first)*p.k : (end-b.first)*p.k]
			if err := l.read(ctx, p, run.First+first-at, dst); err != nil {
				return buf, err
			}
		}
		at += run.N
	}
	return buf, p.linear.PutRows(b.first, rows)
}

// read reads consecutive output rows of a tensor, [len(dst)/k][k].
func (l *loader) read(ctx context.Context, p matrixPart, first int, dst []float32) error {
	if p.transposed {
		return l.readColumns(ctx, p, first, dst)
	}
	return l.model.Floats(ctx, p.tensor, int64(first)*int64(p.k), int64(len(dst)), dst)
}

// readColumns reads columns first, first+1, ... of a [k][n] tensor as rows of k.
func (l *loader) readColumns(ctx context.Context, p matrixPart, first int, dst []float32) error {
	strip := make([]float32, len(dst)/p.k)
	for in := 0; in < p.k; in++ {
		at := int64(in)*int64(p.tensorN) + int64(first)
		if err := l.model.Floats(ctx, p.tensor, at, int64(len(strip)), strip); err != nil {
			return err
		}
		for r, v := range strip {
			dst[r*p.k+in] = v
		}
	}
	return nil
}
