package units

import (
	"fmt"
	"sync/atomic"
)

// cpuLinear is a weight matrix in panels (see panelRows): for each panel of 16 output rows the first weight limb
// [K/4][16][4], then the second if there is one. Rows beyond n are zero.
type cpuLinear struct {
	dev    *cpuDevice
	name   string
	n, k   int
	mode   WeightMode
	groups int     // of 4 inputs, padding included
	packed []uint8 // data, then scale
	data   []uint8
	scale  []float32       // s[n], padded to whole panels
	put    []atomic.Uint32 // a bit for each row
	sealed atomic.Bool
}

func (d *cpuDevice) NewLinear(name string, n, k int, mode WeightMode) (Linear, error) {
	l, size, err := d.shapeLinear(name, n, k, mode)
	if err != nil {
		return nil, err
	}
	l.hold(make([]uint8, size))
	l.put = make([]atomic.Uint32, (n+31)/32)
	return l, nil
}

// shapeLinear is a matrix without its packed bytes, and how many there are.
func (d *cpuDevice) shapeLinear(name string, n, k int, mode WeightMode) (*cpuLinear, int, error) {
	if n < 1 || k < 1 || k > maxK {
		return nil, 0, fmt.Errorf("reserving %q: shape %d x %d, want at least 1 row and 1 to %d columns", name, n, k, maxK)
	}
	if mode > Int8x2 {
		return nil, 0, fmt.Errorf("reserving %q: unknown weight format %d", name, mode)
	}
	l := &cpuLinear{dev: d, name: name, n: n, k: k, mode: mode, groups: padded(k, padK) / groupK}
	return l, l.panelCount() * (mode.Limbs()*l.panelBytes() + 4*panelRows), nil
}

// hold gives the matrix its packed bytes, aligned to 4.
func (l *cpuLinear) hold(packed []uint8) {
	size := l.panelCount() * l.mode.Limbs() * l.panelBytes()
	l.packed, l.data, l.scale = packed, packed[:size:size], floats32(packed[size:])
}

func (l *cpuLinear) Shape() (n, k int) { return l.n, l.k }

func (l *cpuLinear) Bytes() int64 { return int64(len(l.packed)) }

func (l *cpuLinear) panelCount() int { return padded(l.n, panelRows) / panelRows }

// panelBytes is the size of one limb of one panel.
func (l *cpuLinear) panelBytes() int { return l.groups * panelRows * groupK }

// panel is limb b of panel p.
func (l *cpuLinear) panel(p, b int) []uint8 {
	size := l.panelBytes()
	at := (p*l.mode.Limbs() + b) * size
	return l.data[at : at+size : at+size]
}

// weightsPerTask is how much of a matrix one worker quantises at a time.
const weightsPerTask = 1 << 16

func (l *cpuLinear) PutRows(first int, rows []float32) error {
	count := len(rows) / l.k
	if l.sealed.Load() {
		return fmt.Errorf("loading %q: the matrix is finished", l.name)
	}
	if first < 0 || first+count > l.n || count*l.k != len(rows) {
		return fmt.Errorf("loading %q: %d values at row %d do not fit %d x %d", l.name, len(rows), first, l.n, l.k)
	}
	perTask := max(1, weightsPerTask/l.k)
	tasks := (count + perTask - 1) / perTask
	bad := make([]int, tasks) // first bad row of each task, counted from 1
	l.dev.pool.run(newJob(), tasks, func(_, task int) {
		limbs := [2][]uint32{make([]uint32, l.groups), make([]uint32, l.groups)}
		for r := task * perTask; r < min(count, (task+1)*perTask); r++ {
			if !l.putRow(first+r, rows[r*l.k:(r+1)*l.k], &limbs) {
				bad[task] = first + r + 1
				return
			}
		}
	})
	for _, r := range bad {
		if r > 0 {
			return fmt.Errorf("loading %q: row %d has a value that is not finite", l.name, r-1)
		}
	}
	return nil
}

// putRow quantises one output row (section 3) by way of limb rows of scratch; false if a value is not finite. The clamp
// of section 3 has nothing to do: w * inv exceeds the range by two roundings at most, which RNE takes back.
func (l *cpuLinear) putRow(n int, row []float32, limbs *[2][]uint32) bool {
	top := l.dev.kern.absMax(row)
	if top >= infBits {
		return false
	}
	s, inv := weightScale(top, l.mode)
	l.scale[n] = s
	// A value of 8 bits is its own low limb.
	l.dev.kern.split2(int8s(limbs[0]), int8s(limbs[1]), row, inv)
	for b, words := range limbs[2-l.mode.Limbs():] {
		panel := words32(l.panel(n/panelRows, b))
		for g, w := range words {
			panel[g*panelRows+n%panelRows] = w ^ 0x80808080
		}
	}
	l.put[n/32].Or(1 << (n % 32))
	return true
}

func (l *cpuLinear) Finish() error {
	if l.sealed.Load() {
		return nil
	}
	for n := range l.n {
		if l.put[n/32].Load()>>(n%32)&1 == 0 {
			return fmt.Errorf("finishing %q: row %d was not loaded", l.name, n)
		}
	}
	l.sealed.Store(true)
	return nil
}

// linearGroup is a run of linear operations on one input: one dispatch.
type linearGroup struct {
	ops []*Op
	// panelEnd[i] is the number of panels of operations 0..i.
	panelEnd []int
}

// chunkCost is the work of one chunk, in kernel steps of 64 weights x one limb row: about 20 microseconds with vector
// instructions.
const chunkCost = 1 << 17

// chunkPanels picks how many panels a chunk has: enough to outweigh the dispatch, few enough to share out.
func (g *linearGroup) chunkPanels(x *limbBuffer, threads int) int {
	total := g.panelEnd[len(g.panelEnd)-1]
	return max(1, min(chunkCost/panelSteps(x, x.tiles), total/(4*threads)))
}

// panelSteps is the work of one panel, in the units of chunkCost.
func panelSteps(x *limbBuffer, tiles []tile) int {
	steps := 8 * len(tiles) // reading a panel costs about as much as this many limb rows
	for _, t := range tiles {
		steps += t.size
	}
	return steps * x.groups
}

// linearChunk computes panels [p0, p1) of the group, counted over all its operations.
func (st *state) linearChunk(g *linearGroup, p0, p1 int, u *[2][maxTile * panelRows]int32) {
	start := 0
	for i, op := range g.ops {
		end := g.panelEnd[i]
		if p0 < end && p1 > start {
			st.linearPanels(op, max(p0, start)-start, min(p1, end)-start, u)
		}
		start = end
	}
}

// linearPanels computes output panels [p0, p1) of op for every row of the batch.
func (st *state) linearPanels(op *Op, p0, p1 int, u *[2][maxTile * panelRows]int32) {
	x := st.limbs[op.A]
	op.Linear.(*cpuLinear).panels(st.kern, x, x.tiles, st.f32[op.Dst], vectorOf(op.Bias), p0, p1, u)
}

// panels computes output panels [p0, p1) for the rows in the given tiles of x: the weights of a panel stay in cache over
// all tiles. out is [rows of x][n]; bias may be nil.
func (l *cpuLinear) panels(kern *kernels, x *limbBuffer, tiles []tile, out, bias []float32, p0, p1 int, u *[2][maxTile * panelRows]int32) {
	limbs := l.mode.Limbs()
	for p := p0; p < p1; p++ {
		n0, n1 := p*panelRows, min((p+1)*panelRows, l.n)
		var b []float32
		if bias != nil {
			b = bias[n0:n1]
		}
		for _, t := range tiles {
			var u2 []int32
			for limb := range limbs {
				kern.panel(u[limb][:], x.init[t.init:], l.panel(p, limb), x.tileData(t), t.size, l.groups)
			}
			for r := t.first; r < t.end; r++ {
				at := x.slot[r] * panelRows
				if limbs == 2 {
					u2 = u[1][at:]
				}
				q := &x.rows[r]
				kern.combine(out[r*l.n+n0:r*l.n+n1], u[0][at:], u2, q.limbs, pow2(q.exp), l.scale[n0:n1], b)
			}
		}
	}
}

func vectorOf(v Vector) []float32 {
	if v == nil {
		return nil
	}
	return v.(*cpuVector).v
}
