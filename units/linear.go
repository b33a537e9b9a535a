package units

import (
	"fmt"
	"sync/atomic"
)

// loadedRows are which of n rows have been loaded.
type loadedRows struct {
	name   string
	n      int
	put    []atomic.Uint32 // a bit for each row loaded
	sealed atomic.Bool
}

func (l *loadedRows) expect(name string, n int) {
	l.name, l.n, l.put = name, n, make([]atomic.Uint32, (n+31)/32)
}

func (l *loadedRows) label() string { return l.name }

func (l *loadedRows) finished() bool { return l.sealed.Load() }

// mark says that row n has been loaded.
func (l *loadedRows) mark(n int) { l.put[n/32].Or(1 << (n % 32)) }

// check holds the arguments of a call that loads rows, count of them in size values of width each, against what is expected.
func (l *loadedRows) check(first, count, size, width int) error {
	if l.sealed.Load() {
		return fmt.Errorf("loading %q: it is finished", l.name)
	}
	if first < 0 || first+count > l.n || count*width != size {
		return fmt.Errorf("loading %q: %d values at row %d do not fit %d x %d", l.name, size, first, l.n, width)
	}
	return nil
}

// seal ends loading: every row must have been put.
func (l *loadedRows) seal() error {
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

// matrixRows is the part of loading a matrix that no device does in its own way: shape, state, quantising.
type matrixRows struct {
	loadedRows
	k    int
	mode WeightMode
}

// init checks the shape.
func (l *matrixRows) init(name string, n, k int, mode WeightMode) error {
	if n < 1 || k < 1 || k > maxK {
		return fmt.Errorf("reserving %q: shape %d x %d, want at least 1 row and 1 to %d columns", name, n, k, maxK)
	}
	if mode > Int8x2 {
		return fmt.Errorf("reserving %q: unknown weight format %d", name, mode)
	}
	l.expect(name, n)
	l.k, l.mode = k, mode
	return nil
}

func (l *matrixRows) Shape() (n, k int) { return l.n, l.k }

// weightsPerTask is how much of a matrix one worker quantises at a time.
const weightsPerTask = 1 << 16

// quantise cuts count rows of weights into limbs (section 3) on the workers of p and gives each to store, with its scale
// and limbs of words of 4 weights, zero beyond k, valid until store returns. Store is called concurrently.
//
// The clamp of section 3 has nothing to do: w * inv exceeds the range by two roundings at most, which RNE takes back.
func (l *matrixRows) quantise(p *pool, kern *kernels, first, count, words int, rows []float32, store func(n int, scale float32, limbs [][]uint32)) error {
	perTask := max(1, weightsPerTask/l.k)
	tasks := (count + perTask - 1) / perTask
	bad := make([]int, tasks) // first bad row of each task, counted from 1
	p.run(newJob(), tasks, func(_, task int) {
		limbs := [2][]uint32{make([]uint32, words), make([]uint32, words)}
		for r := task * perTask; r < min(count, (task+1)*perTask); r++ {
			row := rows[r*l.k : (r+1)*l.k]
			top := kern.absMax(row)
			if top >= infBits {
				bad[task] = first + r + 1
				return
			}
			s, inv := weightScale(top, l.mode)
			// A value of 8 bits is its own low limb.
			kern.split2(int8s(limbs[0]), int8s(limbs[1]), row, inv)
			store(first+r, s, limbs[2-l.mode.Limbs():])
			l.mark(first + r)
		}
	})
	for _, r := range bad {
		if r > 0 {
			return fmt.Errorf("loading %q: row %d has a value that is not finite", l.name, r-1)
		}
	}
	return nil
}
