package units

import (
	"errors"
	"fmt"
)

// maxExperts keeps the index of an expert exact as a float32, with much to spare.
const maxExperts = 1 << 16

// route checks OpRoute.
func (c *checker) route(op *Op) error {
	n, err := c.read("a", op.A, F32, 0)
	if err != nil {
		return err
	}
	if op.TopK < 1 || op.TopK > n || n > maxExperts {
		return fmt.Errorf("%d of %d experts", op.TopK, n)
	}
	if op.A == op.Dst {
		return errors.New("dst: routing cannot be in place")
	}
	_, err = c.buf("dst", op.Dst, F32, 2*op.TopK)
	return err
}

// experts checks OpExperts. B must have been written by OpRoute, so that every index in it is that of an expert.
func (c *checker) experts(op *Op) error {
	k, err := c.read("a", op.A, Limbs, 0)
	if err != nil {
		return err
	}
	if op.TopK < 1 {
		return fmt.Errorf("%d of %d experts", op.TopK, len(op.Experts))
	}
	if _, err := c.read("b", op.B, F32, 2*op.TopK); err != nil {
		return err
	}
	if len(op.Experts) == 0 || c.routes[op.B] != len(op.Experts) {
		return fmt.Errorf("b: buffer %d does not hold a route to %d experts", op.B, len(op.Experts))
	}
	if int(op.Act) >= len(activations) {
		return fmt.Errorf("activation %d", op.Act)
	}
	width, err := c.buf("dst", op.Dst, F32, 0)
	if err != nil {
		return err
	}
	if op.Dst == op.B {
		return errors.New("dst: the route cannot be overwritten")
	}
	inter := 0
	if g, ok := op.Experts[0].Gate.(linearHandle); ok {
		inter, _ = g.Shape()
	}
	for i, e := range op.Experts {
		for _, m := range []struct {
			name string
			l    Linear
			n, k int
		}{{"gate", e.Gate, inter, k}, {"up", e.Up, inter, k}, {"down", e.Down, width, inter}} {
			l, n, k, err := c.matrix(m.l)
			if err == nil && (n != m.n || k != m.k) {
				err = fmt.Errorf("linear %q is %d x %d, want %d x %d", l.label(), n, k, m.n, m.k)
			}
			if err != nil {
				return fmt.Errorf("expert %d, %s: %w", i, m.name, err)
			}
		}
	}
	return nil
}
