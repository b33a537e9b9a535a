package stage

import (
	"context"
	"fmt"
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

	dev       units.Device
	context   int
	layers    []layerWeights
	cos, sin  units.Vector
	finalNorm normWeights
	lmHead    linearWeights
}

// LoadOptions says what to load. Range may be plan.None.
type LoadOptions struct {
	Range   plan.Range
	Readout bool // final norm and language-model head
	Mode    units.WeightMode
	Context int // positions the rotary tables cover
	Workers int // concurrent readers; 0 = 2
	// Progress, which may be nil, is called with tensor bytes read since the last call, and the total.
	Progress func(n, total int64)
}

// Load fetches the tensors of a range by byte range and quantises them while they stream in: at no time is more than
// a few blocks of rows held as float32. Errors name the tensor.
func Load(ctx context.Context, m *inspect.Model, dev units.Device, opts LoadOptions) (*Weights, error) {
	if opts.Range.Len() > 0 && (opts.Range.First < 0 || opts.Range.Last >= m.Spec.Layers) {
		return nil, fmt.Errorf("loading layers %v: the model has layers 0-%d", opts.Range, m.Spec.Layers-1)
	}
	tensors, err := m.StageTensors(opts.Range.First, opts.Range.Last, false, opts.Readout)
	if err != nil {
		return nil, err
	}
	if err := m.Source.Fetch(ctx, inspect.CoalesceRanges(tensors, inspect.FetchGap), nil); err != nil {
		return nil, err
	}
	l := &loader{model: m, dev: dev, mode: opts.Mode, w: &Weights{
		Model: m, Range: opts.Range, Mode: opts.Mode, dev: dev, context: opts.Context,
	}}
	if err := l.declare(ctx, opts); err != nil {
		return nil, err
	}
	if err := l.stream(ctx, opts); err != nil {
		return nil, err
	}
	return l.w, nil
}

// blockElems is the size of one read: 1 MiB of float32 a worker.
const blockElems = 1 << 18

// loader collects what has to be read (declare), then reads it with several workers (stream).
type loader struct {
	model *inspect.Model
	dev   units.Device
	mode  units.WeightMode
	w     *Weights
	parts []matrixPart
}

// matrixPart is a run of output rows of a tensor that becomes one linear.
type matrixPart struct {
	tensor   inspect.Tensor
	linear   units.Linear
	firstRow int // first output row within the tensor
	n, k     int
	// transposed: output rows are columns of the tensor, [k][tensorN] (GPT-2's Conv1D).
	transposed bool
	tensorN    int
}

func (l *loader) declare(ctx context.Context, opts LoadOptions) error {
	s := &l.model.Spec
	if opts.Range.Len() > 0 && s.Rope {
		cos, sin := units.RopeTablesFrom(opts.Context, s.InvFreq(), 1)
		var err error
		if l.w.cos, err = l.dev.NewVector("rotary cosines", cos); err != nil {
			return err
		}
		if l.w.sin, err = l.dev.NewVector("rotary sines", sin); err != nil {
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
	if !opts.Readout {
		return nil
	}
	var err error
	if l.w.finalNorm, err = l.norm(ctx, inspect.RoleFinalNorm, 0); err != nil {
		return err
	}
	return l.linear(ctx, inspect.RoleLMHead, 0, part{&l.w.lmHead, s.Vocab})
}

func (l *loader) layer(ctx context.Context, layer int) (layerWeights, error) {
	s := &l.model.Spec
	var w layerWeights
	var err error
	if w.attnNorm, err = l.norm(ctx, inspect.RoleAttnNorm, layer); err != nil {
		return w, err
	}
	if w.mlpNorm, err = l.norm(ctx, inspect.RoleMLPNorm, layer); err != nil {
		return w, err
	}
	attn, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	parts := map[inspect.Role][]part{
		inspect.RoleQ:    {{&w.q, attn}},
		inspect.RoleK:    {{&w.k, kv}},
		inspect.RoleV:    {{&w.v, kv}},
		inspect.RoleQKV:  {{&w.q, attn}, {&w.k, kv}, {&w.v, kv}},
		inspect.RoleO:    {{&w.o, s.Hidden}},
		inspect.RoleGate: {{&w.gate, s.Inter}},
		inspect.RoleUp:   {{&w.up, s.Inter}},
		inspect.RoleDown: {{&w.down, s.Hidden}},
	}
	for _, role := range s.LayerRoles() {
		if p, ok := parts[role]; ok {
			if err := l.linear(ctx, role, layer, p...); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

// part is a run of n output rows of a role's matrix and the linear it becomes: fused q, k and v are three parts.
type part struct {
	dst *linearWeights
	n   int
}

// linear declares the matrix of a role and its bias, where the weight file holds one.
func (l *loader) linear(ctx context.Context, role inspect.Role, layer int, parts ...part) error {
	s := &l.model.Spec
	total, k := s.Dims(role)
	base := s.Tensor(role, layer)
	t, err := l.tensor(base + ".weight")
	if err != nil {
		return err
	}
	var bias []float32
	if s.Biased(role) {
		if bias, err = l.floats(ctx, base+".bias", total); err != nil {
			return err
		}
	}
	transposed := s.WeightLayout == "in_out" && role != inspect.RoleLMHead
	first := 0
	for _, p := range parts {
		lin, err := l.dev.NewLinear(t.Name, p.n, k, l.mode)
		if err != nil {
			return err
		}
		p.dst.w = lin
		l.w.Bytes += lin.Bytes()
		l.parts = append(l.parts, matrixPart{tensor: t, linear: lin, firstRow: first, n: p.n, k: k, transposed: transposed, tensorN: total})
		if bias != nil {
			if p.dst.bias, err = l.dev.NewVector(base+".bias", bias[first:first+p.n]); err != nil {
				return err
			}
		}
		first += p.n
	}
	return nil
}

func (l *loader) norm(ctx context.Context, role inspect.Role, layer int) (normWeights, error) {
	base, width := l.model.Spec.Tensor(role, layer), l.model.Spec.Hidden
	var n normWeights
	w, err := l.floats(ctx, base+".weight", width)
	if err != nil {
		return n, err
	}
	if n.weight, err = l.dev.NewVector(base+".weight", w); err != nil {
		return n, err
	}
	if !l.model.Spec.Biased(role) {
		return n, nil
	}
	if w, err = l.floats(ctx, base+".bias", width); err != nil {
		return n, err
	}
	n.bias, err = l.dev.NewVector(base+".bias", w)
	return n, err
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

// stream reads all parts in blocks of rows and hands them to the device, several blocks at a time.
func (l *loader) stream(ctx context.Context, opts LoadOptions) error {
	var total int64
	for _, p := range l.parts {
		total += int64(p.n) * int64(p.k)
	}
	var mu sync.Mutex
	report := func(elems int) {
		if opts.Progress != nil {
			mu.Lock()
			defer mu.Unlock()
			opts.Progress(int64(elems), total)
		}
	}
	workers := opts.Workers
	if workers <= 0 {
		workers = 2
	}
	blocks := l.blocks()
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			var buf []float32
			for {
				i := int(next.Add(1)) - 1
				if i >= len(blocks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				var err error
				if buf, err = l.put(ctx, blocks[i], buf); err != nil {
					return err
				}
				report(blocks[i].rows * l.parts[blocks[i].part].k)
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
	return nil
}

// block is a run of output rows of a part.
type block struct {
	part, first, rows int
}

func (l *loader) blocks() []block {
	var all []block
	for i, p := range l.parts {
		step := max(blockElems/p.k, 1)
		for first := 0; first < p.n; first += step {
			all = append(all, block{i, first, min(step, p.n-first)})
		}
	}
	return all
}

// put reads one block as [rows][k] float32, into buf where it fits, and quantises it.
func (l *loader) put(ctx context.Context, b block, buf []float32) ([]float32, error) {
	p := l.parts[b.part]
	elems := b.rows * p.k
	if cap(buf) < elems {
		buf = make([]float32, elems)
	}
	rows := buf[:elems]
	var err error
	if !p.transposed {
		err = l.model.Floats(ctx, p.tensor, int64(p.firstRow+b.first)*int64(p.k), int64(elems), rows)
	} else {
		err = l.readColumns(ctx, p, b, rows)
	}
	if err != nil {
		return buf, err
	}
	return buf, p.linear.PutRows(b.first, rows)
}

// readColumns reads columns first..first+rows of a [k][n] tensor as rows of k.
func (l *loader) readColumns(ctx context.Context, p matrixPart, b block, rows []float32) error {
	strip := make([]float32, b.rows)
	for in := 0; in < p.k; in++ {
		at := int64(in)*int64(p.tensorN) + int64(p.firstRow+b.first)
		if err := l.model.Floats(ctx, p.tensor, at, int64(b.rows), strip); err != nil {
			return err
		}
		for r, v := range strip {
			rows[r*p.k+in] = v
		}
	}
	return nil
}
