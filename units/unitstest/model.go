package unitstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"dchain/units"
)

// bench builds programs on a device and keeps what the reference needs to interpret them too.
type bench struct {
	t       *testing.T
	dev     units.Device
	rng     *rand.Rand
	linears map[units.Linear][]weights
	vectors map[units.Vector][]f32
	tables  map[units.Table][]f32
	prog    units.Program
}

func newBench(t *testing.T, dev units.Device, seed uint64) *bench {
	return &bench{t: t, dev: dev, rng: rand.New(rand.NewPCG(seed, 77)),
		linears: map[units.Linear][]weights{}, vectors: map[units.Vector][]f32{}}
}

// linear loads an n x k matrix, in pieces of uneven size.
func (b *bench) linear(n, k int, mode units.WeightMode, w []f32) units.Linear {
	b.t.Helper()
	l, err := b.dev.NewLinear(fmt.Sprintf("w%dx%d", n, k), n, k, mode)
	b.must(err)
	for first := 0; first < n; {
		count := min(n-first, 1+b.rng.IntN(n))
		b.must(l.PutRows(first, w[first*k:(first+count)*k]))
		first += count
	}
	b.must(l.Finish())
	for i := range n {
		b.linears[l] = append(b.linears[l], quantiseWeights(w[i*k:(i+1)*k], mode))
	}
	return l
}

func (b *bench) vector(v []f32) units.Vector {
	b.t.Helper()
	h, err := b.dev.NewVector("v", v)
	b.must(err)
	for _, x := range v {
		b.vectors[h] = append(b.vectors[h], flush(x))
	}
	return h
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) normal(n int, scale float64) []f32 {
	v := make([]f32, n)
	for i := range v {
		v[i] = f32(b.rng.NormFloat64() * scale)
	}
	return v
}

// buf declares a buffer.
func (b *bench) buf(kind units.BufKind, width int) units.Buf {
	b.prog.Bufs = append(b.prog.Bufs, units.BufSpec{Kind: kind, Width: width})
	return units.Buf(len(b.prog.Bufs) - 1)
}

func (b *bench) op(op units.Op) { b.prog.Ops = append(b.prog.Ops, op) }

// project adds a quantisation of a and a linear operation.
func (b *bench) project(a units.Buf, n int, mode units.WeightMode, scale float64) units.Buf {
	k := b.prog.Bufs[a].Width
	q, dst := b.buf(units.Limbs, k), b.buf(units.F32, n)
	b.op(units.Op{Kind: units.OpQuantize, Dst: q, A: a, B: units.None})
	b.op(units.Op{Kind: units.OpLinear, Dst: dst, A: q, B: units.None, Linear: b.linear(n, k, mode, b.normal(n*k, scale))})
	return dst
}

// track names the cached rows of a head.
type track struct{ layer, slot, head int }

// cached is the rows of each head, by their positions.
type cached struct{ k, v map[track][]qrow }

func newCached() *cached { return &cached{map[track][]qrow{}, map[track][]qrow{}} }

// put is to with a row at a position.
func put(to []qrow, pos int, row qrow) []qrow {
	for len(to) <= pos {
		to = append(to, qrow{})
	}
	to[pos] = row
	return to
}

// reference is the output of the program for a batch.
func (b *bench) reference(kv *cached, rows []units.Row, in []f32) []f32 {
	return joined(b.interpret(kv, rows, in), b.prog.Out)
}

// joined is a buffer of all rows.
func joined(bufs []map[units.Buf][]f32, buf units.Buf) []f32 {
	var out []f32
	for _, row := range bufs {
		out = append(out, row[buf]...)
	}
	return out
}

// interpret interprets the program for a batch, operation by operation: what each row has in its float32 buffers at the end.
func (b *bench) interpret(kv *cached, rows []units.Row, in []f32) []map[units.Buf][]f32 {
	bufs := make([]map[units.Buf][]f32, len(rows))
	limbs := make([]map[units.Buf]qrow, len(rows))
	w := b.prog.Bufs[b.prog.In].Width
	for r := range rows {
		bufs[r] = map[units.Buf][]f32{b.prog.In: append([]f32(nil), in[r*w:(r+1)*w]...)}
		limbs[r] = map[units.Buf]qrow{}
	}
	for _, op := range b.prog.Ops {
		for r, row := range rows {
			b.step(op, kv, row, bufs[r], limbs[r])
		}
	}
	return bufs
}

func (b *bench) step(op units.Op, kv *cached, row units.Row, f map[units.Buf][]f32, limbs map[units.Buf]qrow) {
	a := f[op.A]
	switch op.Kind {
	case units.OpNorm:
		var y []f32
		k := len(a) / op.Groups
		for g := range op.Groups {
			y = append(y, norm(op.Norm, a[g*k:(g+1)*k], b.vectors[op.Weight], b.vectors[op.Bias], op.Eps)...)
		}
		f[op.Dst] = y
	case units.OpQuantize:
		limbs[op.Dst] = quantise(a, true)
	case units.OpLinear:
		f[op.Dst] = b.product(op.Linear, op.Bias, limbs[op.A])
	case units.OpRoute:
		f[op.Dst] = route(a, op.TopK, op.Normalise)
	case units.OpTop:
		f[op.Dst] = top(a, op.TopK)
	case units.OpEmbed:
		width := op.Table.Spec().Width
		y := make([]f32, width)
		for i, v := range b.tables[op.Table][int(a[0])*width:][:width] {
			if y[i] = flush(v); op.Scale != 0 {
				y[i] = flush(y[i] * op.Scale)
			}
		}
		f[op.Dst] = y
	case units.OpExperts:
		f[op.Dst] = b.mixture(op, limbs[op.A], f[op.B])
	case units.OpRope:
		half := op.RotaryDim / 2
		at := row.Pos * half
		rope(f[op.Dst], op, b.vectors[op.Cos][at:at+half], b.vectors[op.Sin][at:at+half])
	case units.OpStoreKV:
		spec := b.prog.Cache.Spec()
		for h := range spec.KVHeads {
			at := track{op.CacheLayer, row.Slot, h}
			kv.k[at] = put(kv.k[at], row.Pos, quantise(a[h*spec.HeadDim:(h+1)*spec.HeadDim], false))
			kv.v[at] = put(kv.v[at], row.Pos, quantise(f[op.B][h*spec.HeadDim:(h+1)*spec.HeadDim], false))
		}
	case units.OpAttend:
		var y []f32
		for h := range op.Heads {
			at, n := track{op.CacheLayer, row.Slot, h / (op.Heads / op.KVHeads)}, row.Pos+1
			y = append(y, attend(a[h*op.HeadDim:(h+1)*op.HeadDim], kv.k[at][:n], kv.v[at][:n], op, b.slope(op, h))...)
		}
		f[op.Dst] = y
	case units.OpSoftcap:
		y := make([]f32, len(a))
		for i, x := range a {
			y[i] = softcap(x, op.Cap)
		}
		f[op.Dst] = y
	case units.OpAct, units.OpAdd, units.OpScale:
		y := make([]f32, len(a))
		for i, x := range a {
			switch {
			case op.Kind == units.OpAdd:
				y[i] = flush(x + f[op.B][i])
			case op.Kind == units.OpScale:
				y[i] = flush(x * op.Scale)
			case op.B >= 0:
				y[i] = flush(activate(op.Act, x) * f[op.B][i])
			default:
				y[i] = activate(op.Act, x)
			}
		}
		f[op.Dst] = y
	default:
		panic("unitstest: no reference for " + op.Kind.String())
	}
}

// product is a matrix times a row.
func (b *bench) product(l units.Linear, bias units.Vector, x qrow) []f32 {
	var y []f32
	for n, w := range b.linears[l] {
		v := f32(0)
		if bias != nil {
			v = b.vectors[bias][n]
		}
		y = append(y, linear(x, w, v, bias != nil))
	}
	return y
}

// mixture is the output of section 10 for one row and its route: the experts in turn, each asked for its weight.
func (b *bench) mixture(op units.Op, x qrow, route []f32) []f32 {
	var y []f32
	for i, e := range op.Experts {
		for j := range op.TopK {
			if route[j] != f32(i) {
				continue
			}
			h := b.product(e.Gate, nil, x)
			for n, up := range b.product(e.Up, nil, x) {
				h[n] = flush(activate(op.Act, h[n]) * up)
			}
			out := b.product(e.Down, nil, quantise(h, true))
			if y == nil {
				y = make([]f32, len(out))
			}
			for n, v := range out {
				part := flush(route[op.TopK+j] * v)
				y[n] = flush(y[n] + part)
			}
		}
	}
	return y
}

// slope is the ALiBi slope of head h, nil for none.
func (b *bench) slope(op units.Op, h int) *f32 {
	if op.Slopes == nil {
		return nil
	}
	return &b.vectors[op.Slopes][h]
}

// compile compiles the program as it stands.
func (b *bench) compile() units.Executable {
	b.t.Helper()
	e, err := b.dev.Compile(b.prog)
	b.must(err)
	return e
}

// run executes a batch.
func (b *bench) run(e units.Executable, rows []units.Row, in []f32) []f32 {
	b.t.Helper()
	out := make([]f32, len(rows)*b.prog.Bufs[b.prog.Out].Width)
	b.must(e.Run(rows, in, out))
	return out
}

// everyBuffer compares the device with the reference on each float32 buffer of the program in turn.
func (b *bench) everyBuffer(rows []units.Row, in []f32) {
	b.t.Helper()
	want := b.interpret(newCached(), rows, in)
	for buf, spec := range b.prog.Bufs {
		if spec.Kind != units.F32 {
			continue
		}
		b.prog.Out = units.Buf(buf)
		got := b.run(b.compile(), rows, in)
		same(b.t, fmt.Sprintf("buffer %d", buf), got, joined(want, b.prog.Out), spec.Width)
	}
}

// same reports the first value that differs by a bit.
func same(t *testing.T, what string, got, want []f32, width int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: row %d column %d is %v (%08x), want %v (%08x)", what, i/width, i%width,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// positions is a batch of n consecutive positions of a slot.
func positions(slot, first, n int) []units.Row {
	rows := make([]units.Row, n)
	for i := range rows {
		rows[i] = units.Row{Slot: slot, Pos: first + i}
	}
	return rows
}
