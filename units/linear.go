package units

import (
	"fmt"
	"sync/atomic"
)

// matrixRows is the part of loading a matrix that no device does in its own way: shape, state, quantising.
type matrixRows struct {
	name   string
	n, k   int
	mode   WeightMode
	put    []atomic.Uint32 // a bit for each row loaded
	sealed atomic.Bool
}

// init checks the shape.
func (l *matrixRows) init(name string, n, k int, mode WeightMode) error {
	if n < 1 || k < 1 || k > maxK {
		return fmt.Errorf("reserving %q: shape %d x %d, want at least 1 row and 1 to %d columns", name, n, k, maxK)
	}
	if mode > Int8x2 {
		return fmt.Errorf("reserving %q: unknown weight format %d", name, mode)
	}
	l.name, l.n, l.k, l.mode = name, n, k, mode
	l.put = make([]atomic.Uint32, (n+31)/32)
	return nil
}

func (l *matrixRows) Shape() (n, k int) { return l.n, l.k }

func (l *matrixRows) label() string { return l.name }

func (l *matrixRows) finished() bool { return l.sealed.Load() }

// weightsPerTask is how much of a matrix one worker quantises at a time.
const weightsPerTask = 1 << 16

// check holds the arguments of PutRows against the matrix and returns the number of rows.
func (l *matrixRows) check(first int, rows []float32) (count int, err error) {
	count = len(rows) / l.k
	if l.sealed.Load() {
		return 0, fmt.Errorf("loading %q: the matrix is finished", l.name)
	}
	if first < 0 || first+count > l.n || count*l.k != len(rows) {
		return 0, fmt.Errorf("loading %q: %d values at row %d do not fit %d x %d", l.name, len(rows), first, l.n, l.k)
	}
	return count, nil
}

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
			l.put[(first+r)/32].Or(1 << ((first + r) % 32))
		}
	})
	for _, r := range bad {
		if r > 0 {
			return fmt.Errorf("loading %q: row %d has a value that is not finite", l.name, r-1)
		}
	}
	return nil
}

// seal ends loading: every row must have been put.
func (l *matrixRows) seal() error {
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
