package units

import (
	"errors"
	"fmt"
	"math"
)

// checker validates a program against the device that is to run it.
type checker struct {
	dev     Device
	p       *Program
	written []bool
	routes  []int // per buffer: the number of experts, if OpRoute wrote it last
}

// check returns the first error of the program.
func (c *checker) check() error {
	for i, b := range c.p.Bufs {
		if b.Width < 1 || b.Kind > Limbs || (b.Kind == Limbs && b.Width > maxK) {
			return fmt.Errorf("buffer %d: kind %d, width %d", i, b.Kind, b.Width)
		}
	}
	c.written, c.routes = make([]bool, len(c.p.Bufs)), make([]int, len(c.p.Bufs))
	if _, err := c.buf("in", c.p.In, F32, 0); err != nil {
		return err
	}
	c.written[c.p.In] = true
	if c.p.Cache != nil {
		if k, ok := c.p.Cache.(cacheHandle); !ok || k.owner() != c.dev {
			return errors.New("the cache belongs to another device")
		}
	}
	for i := range c.p.Ops {
		op := &c.p.Ops[i]
		if err := c.op(op); err != nil {
			return fmt.Errorf("op %d (%s, layer %d): %w", i, op.Kind, op.Layer, err)
		}
		if op.Kind != OpStoreKV {
			c.written[op.Dst], c.routes[op.Dst] = true, 0
		}
		if op.Kind == OpRoute {
			c.routes[op.Dst] = c.p.Bufs[op.A].Width
		}
	}
	_, err := c.read("out", c.p.Out, F32, 0)
	return err
}

// buf checks a buffer reference and returns its width; want 0 accepts any.
func (c *checker) buf(what string, b Buf, kind BufKind, want int) (int, error) {
	if b < 0 || int(b) >= len(c.p.Bufs) {
		return 0, fmt.Errorf("%s: no buffer %d", what, b)
	}
	s := c.p.Bufs[b]
	if s.Kind != kind {
		return 0, fmt.Errorf("%s: buffer %d has kind %d, want %d", what, b, s.Kind, kind)
	}
	if want != 0 && s.Width != want {
		return 0, fmt.Errorf("%s: buffer %d is %d wide, want %d", what, b, s.Width, want)
	}
	return s.Width, nil
}

// read is buf for a buffer that must hold something already.
func (c *checker) read(what string, b Buf, kind BufKind, want int) (int, error) {
	w, err := c.buf(what, b, kind, want)
	if err == nil && !c.written[b] {
		err = fmt.Errorf("%s: buffer %d is read before it is written", what, b)
	}
	return w, err
}

func (c *checker) vector(what string, v Vector, n int) error {
	h, ok := v.(vectorHandle)
	if !ok || h.owner() != c.dev {
		return fmt.Errorf("%s: missing, or of another device", what)
	}
	if n > 0 && h.Len() != n {
		return fmt.Errorf("%s: %d values, want %d", what, h.Len(), n)
	}
	return nil
}

func (c *checker) op(op *Op) error {
	switch op.Kind {
	case OpNorm:
		return c.norm(op)
	case OpQuantize:
		w, err := c.read("a", op.A, F32, 0)
		if err == nil {
			_, err = c.buf("dst", op.Dst, Limbs, w)
		}
		return err
	case OpLinear:
		return c.linear(op)
	case OpRope:
		return c.rope(op)
	case OpStoreKV:
		return c.store(op)
	case OpAttend:
		return c.attend(op)
	case OpAct, OpAdd, OpScale, OpSoftcap:
		return c.elementwise(op)
	case OpRoute:
		return c.route(op)
	case OpExperts:
		return c.experts(op)
	case OpTop:
		return c.top(op)
	case OpEmbed:
		return c.embed(op)
	}
	return errors.New("unknown operation")
}

func (c *checker) norm(op *Op) error {
	w, err := c.read("a", op.A, F32, 0)
	if err != nil {
		return err
	}
	if op.Groups < 1 || w%op.Groups != 0 {
		return fmt.Errorf("%d groups of a row of %d", op.Groups, w)
	}
	k := w / op.Groups
	if k > maxK {
		return fmt.Errorf("width %d, at most %d", k, maxK)
	}
	if err := c.vector("weight", op.Weight, k); err != nil {
		return err
	}
	if op.Norm > LayerNorm || (op.Norm == RMSNorm && op.Bias != nil) {
		return fmt.Errorf("norm kind %d, bias %v", op.Norm, op.Bias != nil)
	}
	if op.Bias != nil {
		if err := c.vector("bias", op.Bias, k); err != nil {
			return err
		}
	}
	if !(op.Eps >= flushBelow && op.Eps < 1<<60) {
		return fmt.Errorf("eps %v: want a positive number", op.Eps)
	}
	_, err = c.buf("dst", op.Dst, F32, w)
	return err
}

// matrix checks a handle.
func (c *checker) matrix(w Linear) (l linearHandle, n, k int, err error) {
	l, ok := w.(linearHandle)
	if !ok || l.owner() != c.dev {
		return nil, 0, 0, errors.New("linear: missing, or of another device")
	}
	if !l.finished() {
		return nil, 0, 0, fmt.Errorf("linear %q is not finished", l.label())
	}
	n, k = l.Shape()
	return l, n, k, nil
}

func (c *checker) linear(op *Op) error {
	l, n, k, err := c.matrix(op.Linear)
	if err != nil {
		return err
	}
	if _, err := c.read("a", op.A, Limbs, k); err != nil {
		return fmt.Errorf("linear %q: %w", l.label(), err)
	}
	if op.Bias != nil {
		if err := c.vector("bias", op.Bias, n); err != nil {
			return fmt.Errorf("linear %q: %w", l.label(), err)
		}
	}
	_, err = c.buf("dst", op.Dst, F32, n)
	return err
}

func (c *checker) rope(op *Op) error {
	if op.Heads < 1 || op.HeadDim < 2 || op.RotaryDim < 2 || op.RotaryDim%2 != 0 || op.RotaryDim > op.HeadDim {
		return fmt.Errorf("%d heads of %d, %d rotary", op.Heads, op.HeadDim, op.RotaryDim)
	}
	if err := c.vector("cos", op.Cos, 0); err != nil {
		return err
	}
	if err := c.vector("sin", op.Sin, op.Cos.Len()); err != nil {
		return err
	}
	if n := op.Cos.Len(); n == 0 || n%(op.RotaryDim/2) != 0 {
		return fmt.Errorf("cos: %d values are not positions x %d", n, op.RotaryDim/2)
	}
	_, err := c.read("dst", op.Dst, F32, op.Heads*op.HeadDim)
	return err
}

func (c *checker) cacheLayer(op *Op) (CacheSpec, error) {
	if c.p.Cache == nil {
		return CacheSpec{}, errors.New("the program has no cache")
	}
	s := c.p.Cache.Spec()
	if op.CacheLayer < 0 || op.CacheLayer >= s.Layers {
		return s, fmt.Errorf("cache layer %d of %d", op.CacheLayer, s.Layers)
	}
	if (op.KVHeads != 0 && op.KVHeads != s.KVHeads) || (op.HeadDim != 0 && op.HeadDim != s.HeadDim) {
		return s, fmt.Errorf("%d key-value heads of %d, the cache has %d of %d", op.KVHeads, op.HeadDim, s.KVHeads, s.HeadDim)
	}
	return s, nil
}

func (c *checker) store(op *Op) error {
	s, err := c.cacheLayer(op)
	if err != nil {
		return err
	}
	if _, err := c.read("a", op.A, F32, s.KVHeads*s.HeadDim); err != nil {
		return err
	}
	_, err = c.read("b", op.B, F32, s.KVHeads*s.HeadDim)
	return err
}

func (c *checker) attend(op *Op) error {
	s, err := c.cacheLayer(op)
	if err != nil {
		return err
	}
	if op.KVHeads != s.KVHeads || op.HeadDim != s.HeadDim || op.Heads < 1 || op.Heads%op.KVHeads != 0 {
		return fmt.Errorf("%d heads, %d key-value heads of %d, the cache has %d of %d",
			op.Heads, op.KVHeads, op.HeadDim, s.KVHeads, s.HeadDim)
	}
	if !(op.Scale > 0 && op.Scale <= math.MaxFloat32) || op.Window < 0 {
		return fmt.Errorf("scale %v, window %d", op.Scale, op.Window)
	}
	if op.Cap != 0 && !validCap(op.Cap) {
		return fmt.Errorf("cap %v", op.Cap)
	}
	if op.Slopes != nil {
		if err := c.vector("slopes", op.Slopes, op.Heads); err != nil {
			return err
		}
		for h, v := range vectorOf(op.Slopes) {
			if abs(v) > 1<<60 {
				return fmt.Errorf("slopes: head %d has %v", h, v)
			}
		}
	}
	if _, err := c.read("a", op.A, F32, op.Heads*op.HeadDim); err != nil {
		return err
	}
	if op.A == op.Dst {
		return errors.New("dst: attention cannot be in place")
	}
	_, err = c.buf("dst", op.Dst, F32, op.Heads*op.HeadDim)
	return err
}

// validCap says whether a soft cap and its reciprocal are ordinary numbers.
func validCap(v float32) bool { return v >= 1.0/(1<<60) && v <= 1<<60 }

func (c *checker) elementwise(op *Op) error {
	w, err := c.read("a", op.A, F32, 0)
	if err != nil {
		return err
	}
	switch {
	case op.Kind == OpAct && int(op.Act) >= len(activations):
		return fmt.Errorf("activation %d", op.Act)
	case op.Kind == OpScale && op.Scale-op.Scale != 0:
		return fmt.Errorf("scale %v", op.Scale)
	case op.Kind == OpSoftcap && !validCap(op.Cap):
		return fmt.Errorf("cap %v", op.Cap)
	case op.Kind == OpAdd, op.Kind == OpAct && op.B >= 0:
		if _, err := c.read("b", op.B, F32, w); err != nil {
			return err
		}
	}
	_, err = c.buf("dst", op.Dst, F32, w)
	return err
}

const (
	// maxTop is the most values that OpTop gives.
	maxTop = 256
	// maxTopWidth keeps the index of a value exact as a float32.
	maxTopWidth = 1 << 24
)

func (c *checker) top(op *Op) error {
	n, err := c.read("a", op.A, F32, 0)
	if err != nil {
		return err
	}
	if op.TopK < 1 || op.TopK > min(n, maxTop) || n > maxTopWidth {
		return fmt.Errorf("the %d largest of %d values", op.TopK, n)
	}
	if op.A == op.Dst {
		return errors.New("dst: the largest values cannot be in place")
	}
	_, err = c.buf("dst", op.Dst, F32, 2*op.TopK)
	return err
}
