//go:build linux && (amd64 || arm64) && cgo && !novulkan

package vk

import (
	"errors"
	"fmt"
)

// maxChecked is how many pipelines a checked device has.
const maxChecked = 1 << 14

// checks is what a checked device has besides: a word for each pipeline, where a shader leaves the number, from 1, of one of its
// places that has been out of range.
type checks struct {
	report *Buffer
	pipes  []checkedPipe
}

type checkedPipe struct {
	name   string
	places []string
}

func (d *Device) newChecks() (*checks, error) {
	b, err := d.NewBuffer(4*maxChecked, Readback)
	if err != nil {
		return nil, err
	}
	return &checks{report: b}, b.Write(0, make([]byte, 4*maxChecked))
}

// addLocked instruments a shader whose first unused binding is given.
func (c *checks) addLocked(name string, code []uint32, binding int) ([]uint32, error) {
	if len(c.pipes) == maxChecked {
		return nil, fmt.Errorf("at most %d shaders are checked", maxChecked)
	}
	m := checkedModule{binding: uint32(binding), slot: uint32(len(c.pipes))}
	code, err := m.instrument(code)
	if err != nil {
		return nil, err
	}
	c.pipes = append(c.pipes, checkedPipe{name, m.places})
	return code, nil
}

// failureLocked says what shaders have reported.
func (c *checks) failureLocked() error {
	words := c.report.Bytes()
	var errs []error
	for i, p := range c.pipes {
		if at := int(words[4*i]) | int(words[4*i+1])<<8; at != 0 {
			errs = append(errs, fmt.Errorf("shader %q has an index out of range: %s", p.name, p.places[at-1]))
		}
	}
	return errors.Join(errs...)
}
