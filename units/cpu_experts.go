package units

import "slices"

// Mixture of experts (NUMERICS.md section 10). The rows of a batch are grouped by expert, so that each expert's weights
// are read once; a row adds up its experts in ascending order whatever the grouping.

// expertValues bounds the inner activations of one pass, in values; an expert's rows are never split. Tests lower it.
var expertValues = 1 << 22

// largest gives the indices of the k largest of x, largest first; of equal values the lower index comes first.
func (s *scratch) largest(x []float32, k int) []int {
	best := s.best[:0]
	for i, v := range x {
		if len(best) == k {
			if v <= x[best[k-1]] {
				continue
			}
			best = best[:k-1]
		}
		at := len(best)
		for at > 0 && v > x[best[at-1]] {
			at--
		}
		best = slices.Insert(best, at, i)
	}
	s.best = best
	return best
}

// topRow is OpTop for row r: the indices of the largest values, then the values.
func (st *state) topRow(op *Op, r int, s *scratch) {
	n, k := st.prog.Bufs[op.A].Width, op.TopK
	x, y := st.f32[op.A][r*n:(r+1)*n], st.f32[op.Dst][r*2*k:(r+1)*2*k]
	if st.kern.absMax(x) >= infBits {
		st.fail(op, r, errNotFinite)
		return
	}
	for i, at := range s.largest(x, k) {
		y[i], y[k+i] = float32(at), x[at]
	}
}

// routeRow is OpRoute for row r: it writes the indices of the selected experts, ascending, and then their weights.
func (st *state) routeRow(op *Op, r int, s *scratch) {
	n, k := st.prog.Bufs[op.A].Width, op.TopK
	x, y := st.f32[op.A][r*n:(r+1)*n], st.f32[op.Dst][r*2*k:(r+1)*2*k]
	if st.kern.absMax(x) >= infBits {
		st.fail(op, r, errNotFinite)
		return
	}
	best := s.largest(x, k)
	m, sum := x[best[0]], int64(0)
	slices.Sort(best)
	for i, e := range best {
		p := Exp(x[e] - m)
		sum += round64(p * (1 << 36))
		y[i], y[k+i] = float32(e), p
	}
	if !op.Normalise {
		sum = 0
		for _, v := range x {
			sum += round64(Exp(v-m) * (1 << 36))
		}
	}
	scale := recip(float32(sum) * (1.0 / (1 << 36)))
	for i := k; i < 2*k; i++ {
		y[i] = flush(y[i] * scale)
	}
}

// runner calls f for every chunk below chunks, with the scratch of the worker that takes it.
type runner func(chunks int, f func(s *scratch, chunk int))

// expertState is what OpExperts works on.
type expertState struct {
	starts []int // per expert: where its assignments begin in rows; one more for the end
	rows   []int // batch row of each assignment, by expert and row
	place  []int // [batch rows][TopK] index of each choice in rows
	ends   []int // per expert of a pass: the end of its assignments, counted from the first of the pass

	x, hidden      *limbBuffer // one row per assignment
	gate, up, down []float32
	tasks          []expertTask
}

// expertTask is output panels [p0, p1) of one matrix for the rows of one expert.
type expertTask struct {
	linear *cpuLinear
	tiles  []tile
	out    []float32
	p0, p1 int
}

// runExperts is OpExperts for the batch.
func (st *state) runExperts(op *Op, run runner) {
	if st.experts == nil {
		st.experts = &expertState{}
	}
	x, n := st.experts, len(op.Experts)
	x.assign(st.f32[op.B], len(st.rows), op.TopK, n)
	clear(st.f32[op.Dst])
	_, inter := op.Experts[0].Down.Shape()
	for first := 0; first < n; {
		end := first + 1
		for end < n && (x.starts[end+1]-x.starts[first])*inter <= expertValues {
			end++
		}
		if x.starts[end] > x.starts[first] {
			st.expertPass(op, first, end, run)
			if st.err != nil {
				return
			}
		}
		first = end
	}
}

// assign sorts the choices of all rows by expert.
func (x *expertState) assign(routes []float32, rows, topK, experts int) {
	x.starts = grow(x.starts, experts+1)
	x.rows, x.place = grow(x.rows, rows*topK), grow(x.place, rows*topK)
	clear(x.starts)
	for r := range rows {
		for _, e := range routes[r*2*topK:][:topK] {
			x.starts[int(e)+1]++
		}
	}
	for e := range experts {
		x.starts[e+1] += x.starts[e]
	}
	for r := range rows {
		for i, e := range routes[r*2*topK:][:topK] {
			at := &x.starts[int(e)]
			x.rows[*at], x.place[r*topK+i] = r, *at
			*at++
		}
	}
	copy(x.starts[1:], x.starts) // each has moved to its end, where the next begins
	x.starts[0] = 0
}

// expertPass adds the weighted results of experts [first, end) to Dst.
func (st *state) expertPass(op *Op, first, end int, run runner) {
	x, experts := st.experts, op.Experts[first:end]
	base := x.starts[first]
	rows := x.rows[base:x.starts[end]]
	x.ends = x.ends[:0]
	for _, e := range x.starts[first+1 : end+1] {
		x.ends = append(x.ends, e-base)
	}
	inter, k := experts[0].Gate.Shape()
	width := st.prog.Bufs[op.Dst].Width

	x.x = x.x.sized(st.kern, k, len(rows))
	run(len(rows), func(_ *scratch, i int) { x.x.copyRow(i, st.limbs[op.A], rows[i]) })
	x.x.arrange(x.ends)
	run(len(x.x.tiles), func(_ *scratch, i int) { x.x.fill(i) })

	x.gate, x.up = grow(x.gate, len(rows)*inter), grow(x.up, len(rows)*inter)
	x.tasks = x.tasks[:0]
	for i, e := range experts {
		x.share(e.Gate, x.x, i, x.gate)
		x.share(e.Up, x.x, i, x.up)
	}
	x.multiply(x.x, run)

	x.hidden = x.hidden.sized(st.kern, inter, len(rows))
	run(len(rows), func(_ *scratch, i int) {
		h := x.gate[i*inter : (i+1)*inter]
		st.kern.act(op.Act, h, h, x.up[i*inter:(i+1)*inter])
		if !x.hidden.quantise(i, h) {
			x.hidden.rows[i].limbs = 2
			st.fail(op, rows[i], errNotFinite)
		}
	})
	if st.err != nil {
		return
	}
	x.hidden.arrange(x.ends)
	run(len(x.hidden.tiles), func(_ *scratch, i int) { x.hidden.fill(i) })

	x.down = grow(x.down, len(rows)*width)
	x.tasks = x.tasks[:0]
	for i, e := range experts {
		x.share(e.Down, x.hidden, i, x.down)
	}
	x.multiply(x.hidden, run)
	run(len(st.rows), func(_ *scratch, r int) { st.addExperts(op, r, base, first, end) })
}

// share cuts a matrix, applied to the rows of expert i of the pass, into tasks.
func (x *expertState) share(w Linear, in *limbBuffer, i int, out []float32) {
	l, tiles := w.(*cpuLinear), in.groupTiles(i)
	if len(tiles) == 0 {
		return
	}
	panels := len(l.scale) / panelRows
	per := blockPairs(in.kern, chunkCost/panelSteps(in, tiles))
	for p := 0; p < panels; p += per {
		x.tasks = append(x.tasks, expertTask{l, tiles, out, p, min(p+per, panels)})
	}
}

// multiply runs the tasks.
func (x *expertState) multiply(in *limbBuffer, run runner) {
	run(len(x.tasks), func(s *scratch, i int) {
		t := &x.tasks[i]
		t.linear.panels(in, t.tiles, t.out, nil, t.p0, t.p1, s.u[:])
	})
}

// addExperts adds the weighted results of experts [first, end), whose assignments begin at base, to row r.
func (st *state) addExperts(op *Op, r, base, first, end int) {
	k, width := op.TopK, st.prog.Bufs[op.Dst].Width
	route, y := st.f32[op.B][r*2*k:(r+1)*2*k], st.f32[op.Dst][r*width:(r+1)*width]
	for i, w := range route[k:] {
		if e := int(route[i]); e < first || e >= end {
			continue
		}
		at := st.experts.place[r*k+i] - base
		for n, v := range st.experts.down[at*width : (at+1)*width] {
			y[n] = flush(y[n] + flush(w*v))
		}
	}
}
