package units

import (
	"errors"
	"io"
	"sync"
)

// scope is a device whose Close gives back what was made through it and leaves the device open.
type scope struct {
	Device
	mu   sync.Mutex
	made []io.Closer
}

// noted remembers what was made.
func noted[T io.Closer](s *scope, made T, err error) (T, error) {
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made = append(s.made, made)
	}
	return made, err
}

func (s *scope) NewLinear(name string, n, k int, mode WeightMode) (Linear, error) {
	l, err := s.Device.NewLinear(name, n, k, mode)
	return noted(s, l, err)
}

func (s *scope) NewVector(name string, v []float32) (Vector, error) {
	h, err := s.Device.NewVector(name, v)
	return noted(s, h, err)
}

func (s *scope) NewTable(name string, spec TableSpec) (Table, error) {
	t, err := s.Device.NewTable(name, spec)
	return noted(s, t, err)
}

func (s *scope) NewCache(spec CacheSpec) (Cache, error) {
	c, err := s.Device.NewCache(spec)
	return noted(s, c, err)
}

func (s *scope) Compile(p Program) (Executable, error) {
	e, err := s.Device.Compile(p)
	return noted(s, e, err)
}

// Close closes the latest first: programs before what they use.
func (s *scope) Close() error {
	var errs []error
	for i := len(s.made) - 1; i >= 0; i-- {
		errs = append(errs, s.made[i].Close())
	}
	s.made = nil
	return errors.Join(errs...)
}
