package units

import "fmt"

// cpuLinear is a weight matrix in panels (see panelRows): for each panel of 16 output rows the first weight limb
// [K/4][16][4], then the second if there is one. Rows beyond n are zero.
type cpuLinear struct {
	matrixRows
	dev    *cpuDevice
	groups int     // of 4 inputs, padding included
	region *region // where packed lies; nil where it is the caller's
	packed []uint8 // data, then scale
	data   []uint8
	scale  []float32 // s[n], padded to whole panels
}

func (d *cpuDevice) NewLinear(name string, n, k int, mode WeightMode) (Linear, error) {
	l, size, err := d.shapeLinear(name, n, k, mode)
	if err != nil {
		return nil, err
	}
	packed, region, err := d.memory.bytes(size)
	if err != nil {
		return nil, fmt.Errorf("reserving %q: %w", name, err)
	}
	l.region = region
	l.hold(packed)
	return l, nil
}

// shapeLinear is a matrix without its packed bytes, and how many there are.
func (d *cpuDevice) shapeLinear(name string, n, k int, mode WeightMode) (*cpuLinear, int, error) {
	l := &cpuLinear{dev: d, groups: padded(k, padK) / groupK}
	if err := l.init(name, n, k, mode); err != nil {
		return nil, 0, err
	}
	return l, l.panelCount() * (mode.Limbs()*l.panelBytes() + 4*panelRows), nil
}

// hold gives the matrix its packed bytes, aligned to 4.
func (l *cpuLinear) hold(packed []uint8) {
	size := l.panelCount() * l.mode.Limbs() * l.panelBytes()
	l.packed, l.data, l.scale = packed, packed[:size:size], floats32(packed[size:])
}

func (l *cpuLinear) owner() Device { return l.dev }

func (l *cpuLinear) Close() error {
	if l.region != nil {
		l.region.release()
	}
	l.region, l.packed, l.data, l.scale = nil, nil, nil, nil
	return nil
}

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

func (l *cpuLinear) PutRows(first int, rows []float32) error {
	count := len(rows) / l.k
	if err := l.check(first, count, len(rows), l.k); err != nil {
		return err
	}
	return l.quantise(l.dev.pool, l.dev.kern, first, count, l.groups, rows, func(n int, scale float32, limbs [][]uint32) {
		l.scale[n] = scale
		for b, words := range limbs {
			panel := words32(l.panel(n/panelRows, b))
			for g, w := range words {
				panel[g*panelRows+n%panelRows] = w ^ 0x80808080
			}
		}
	})
}

func (l *cpuLinear) Finish() error { return l.seal() }

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
	return blockPairs(x.kern, min(chunkCost/panelSteps(x, x.tiles), total/(4*threads)))
}

// blockPairs makes a number of panels even where two are multiplied at a time, and at least 1.
func blockPairs(kern *kernels, n int) int {
	if kern.block != nil {
		return max(blockPanels, n/blockPanels*blockPanels)
	}
	return max(1, n)
}

// batchSteps is a batch whose rows fill as many block tiles as are multiplied at a time; none without a matrix unit.
func (d *cpuDevice) batchSteps() []int {
	if d.kern.block == nil {
		return nil
	}
	return []int{blockSums * blockTile / 2}
}

// panelSteps is the work of one panel, in the units of chunkCost.
func panelSteps(x *limbBuffer, tiles []tile) int {
	steps := 8 * len(tiles) // reading a panel costs about as much as this many limb rows
	for _, t := range tiles {
		if t.block {
			steps += t.size / 4 // as much faster as a matrix unit is
		} else {
			steps += t.size
		}
	}
	return steps * x.groups
}

// linearChunk computes panels [p0, p1) of the group, counted over all its operations.
func (st *state) linearChunk(g *linearGroup, p0, p1 int, u []unitSums) {
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
func (st *state) linearPanels(op *Op, p0, p1 int, u []unitSums) {
	x := st.limbs[op.A]
	op.Linear.(*cpuLinear).panels(x, x.tiles, st.f32[op.Dst], vectorOf(op.Bias), p0, p1, u)
}

// panels computes output panels [p0, p1) for the rows in the given tiles of x: the weights of a panel stay in cache over
// all tiles. out is [rows of x][n]; bias may be nil.
func (l *cpuLinear) panels(x *limbBuffer, tiles []tile, out, bias []float32, p0, p1 int, u []unitSums) {
	limbs := l.mode.Limbs()
	step := 1
	if x.kern.block != nil {
		step = blockPanels / limbs
	}
	for p := p0; p < p1; p += step {
		n := min(step, p1-p)
		for at := 0; at < len(tiles); {
			some := l.multiply(x, tiles[at:], p, n, u)
			for i, t := range tiles[at : at+some] {
				l.combine(x, t, p, n, &u[i], out, bias)
			}
			at += some
		}
	}
}

// multiply makes the unit sums of the first tiles, as many as it returns, with n panels from p on: u[i][j] are those of
// tile i and of panel j, or of limb j of the panel.
func (l *cpuLinear) multiply(x *limbBuffer, tiles []tile, p, n int, u []unitSums) int {
	t, limbs := tiles[0], l.mode.Limbs()
	if !t.block {
		for i := range n * limbs {
			x.kern.panel(u[0][i][:], x.init[t.init:], l.panel(p+i/limbs, i%limbs), x.tileData(tiles[:1]), t.size, l.groups)
		}
		return 1
	}
	some := 1
	for some < min(len(tiles), len(u)) && tiles[some].block && tiles[some].size == t.size {
		some++
	}
	size := limbs * l.panelBytes()
	x.kern.block(u[:some], x.init[t.init:], l.data[p*size:(p+n)*size], n*limbs, x.tileData(tiles[:some]), t.size, l.groups)
	return some
}

// combine makes the outputs of n panels from p on for the rows of a tile.
func (l *cpuLinear) combine(x *limbBuffer, t tile, p, n int, u *unitSums, out, bias []float32) {
	var u2 []int32
	if l.mode.Limbs() == 2 {
		u2 = u[1][:]
	}
	var b []float32
	for i := range n {
		n0 := (p + i) * panelRows
		n1 := min(n0+panelRows, l.n)
		if bias != nil {
			b = bias[n0:n1]
		}
		x.kern.combine(out[t.first*l.n+n0:], l.n, u[i][:], u2, x.rows[t.first:t.end], l.scale[n0:n1], b)
	}
}
