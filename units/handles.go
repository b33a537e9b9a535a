package units

import (
	"fmt"
	"math"
)

// The handles of every device in this package say whose they are, so that one checker serves all.

type vectorHandle interface {
	Vector
	owner() Device
	values() []float32
}

type linearHandle interface {
	Linear
	owner() Device
	label() string
	finished() bool
}

type tableHandle interface {
	Table
	owner() Device
	label() string
	finished() bool
}

type cacheHandle interface {
	Cache
	owner() Device
}

// vectorOf is the values of a parameter; nil for none.
func vectorOf(v Vector) []float32 {
	if v == nil {
		return nil
	}
	return v.(vectorHandle).values()
}

// vectorValues checks and flushes the values of a parameter.
func vectorValues(name string, v []float32) ([]float32, error) {
	if i := notFinite(v); i >= 0 {
		return nil, fmt.Errorf("loading %q: value %d is %v", name, i, v[i])
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = flush(x)
	}
	return out, nil
}

// notFinite is the index of the first NaN or infinity, or -1.
func notFinite(v []float32) int {
	// An exponent of all ones carries into the sign; eight values at a time, since rows of logits are long.
	for i := 0; i < len(v); i += 8 {
		var carry uint32
		for _, x := range v[i:min(i+8, len(v))] {
			carry |= math.Float32bits(x)&infBits + 1<<23
		}
		if carry>>31 == 0 {
			continue
		}
		for j, x := range v[i:] {
			if x-x != 0 {
				return i + j
			}
		}
	}
	return -1
}
