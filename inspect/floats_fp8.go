package inspect

import (
	"context"
	"fmt"
	"math"
	"sync"
)

// Matrices of F8_E4M3 come with a second tensor that holds a scale for each block of rows and columns.

// scaleEnding is what the name of the scales adds to the name of the matrix.
const scaleEnding = "_scale_inv"

// wholeMatrix as the size of a block is more than any matrix has: there is one scale.
const wholeMatrix = 1 << 30

// scaleShape is the shape of the scales of a matrix: blocks at the ends may be partly filled. Leading dimensions, such
// as experts, have scales of their own.
func scaleShape(matrix, block []int) []int {
	shape := make([]int, len(matrix))
	copy(shape, matrix)
	for i, size := range block {
		at := len(shape) - 2 + i
		shape[at] = (shape[at] + size - 1) / size
	}
	return shape
}

// blockScales are the scales of one tensor.
type blockScales struct {
	scales     []float32 // [matrices][row blocks][column blocks]
	n, k       int       // rows and columns of a matrix
	rows, cols int       // of a block
}

// scaleCache keeps the scales of tensors that are being read; the next tensor evicts one of the last.
type scaleCache struct {
	mu      sync.Mutex
	byName  map[string]*blockScales
	ordered []string
}

const maxCachedScales = 64

func (m *Model) blockScales(ctx context.Context, t Tensor) (*blockScales, error) {
	c := m.scales
	c.mu.Lock()
	s := c.byName[t.Name]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	st, ok := m.Index.Tensors[t.Name+scaleEnding]
	block := m.Spec.ScaleBlock
	if !ok || len(block) != 2 || len(t.Shape) < 2 {
		return nil, fmt.Errorf("reading tensor %q: it has no scales", t.Name)
	}
	s = &blockScales{
		scales: make([]float32, st.Elems()),
		n:      t.Shape[len(t.Shape)-2], k: t.Shape[len(t.Shape)-1], rows: block[0], cols: block[1],
	}
	if err := readFloats(ctx, m.Source, st, 0, st.Elems(), s.scales); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byName[t.Name] == nil {
		c.byName[t.Name] = s
		c.ordered = append(c.ordered, t.Name)
	}
	if len(c.ordered) > maxCachedScales {
		delete(c.byName, c.ordered[0])
		c.ordered = c.ordered[1:]
	}
	return s, nil
}

// apply multiplies elements first, first+1, ... by the scales of their blocks.
func (s *blockScales) apply(first int64, dst []float32) {
	perRow := (s.k + s.cols - 1) / s.cols
	rowBlocks := (s.n + s.rows - 1) / s.rows
	for len(dst) > 0 {
		row, col := first/int64(s.k), int(first%int64(s.k))
		matrix, inRow := int(row)/s.n, int(row)%s.n
		scales := s.scales[(matrix*rowBlocks+inRow/s.rows)*perRow:][:perRow]
		n := min(s.k-col, len(dst))
		for i := range dst[:n] {
			dst[i] *= scales[(col+i)/s.cols]
		}
		dst, first = dst[n:], first+int64(n)
	}
}

// f8Values are the 256 values of F8_E4M3: no infinities, 0x7f and 0xff are NaN.
var f8Values = func() (v [256]float32) {
	for i := range v {
		mantissa, exponent := float64(i&7), i>>3&15
		x := math.Ldexp(mantissa, -9) // subnormal
		if exponent > 0 {
			x = math.Ldexp(8+mantissa, exponent-10)
		}
		if i&0x7f == 0x7f {
			x = math.NaN()
		}
		if i >= 128 {
			x = -x
		}
		v[i] = float32(x)
	}
	return v
}()

func fromF8(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = f8Values[src[i]]
	}
}
