package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Range is a run of model layers, both ends inclusive. A range with Last below First holds no layers.
type Range struct {
	First, Last int
}

// None is the range of a stage that holds no layers.
var None = Range{0, -1}

// maxLayers bounds what ParseRange accepts: far above any model, far below what could overflow.
const maxLayers = 1 << 16

// Len is the number of layers.
func (r Range) Len() int { return max(r.Last-r.First+1, 0) }

// Contains reports whether the range holds a layer.
func (r Range) Contains(layer int) bool { return r.First <= layer && layer <= r.Last }

// String is "0-11", also for a single layer ("7-7"), and "none".
func (r Range) String() string {
	if r.Len() == 0 {
		return "none"
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParseRange reads "A-B" (both inclusive), "A" for a single layer, and "none".
func ParseRange(s string) (Range, error) {
	if s == "none" {
		return None, nil
	}
	first, last, isRun := strings.Cut(s, "-")
	if !isRun {
		last = first
	}
	a, errA := parseLayer(first)
	b, errB := parseLayer(last)
	switch {
	case errA != nil || errB != nil:
		return None, fmt.Errorf("bad layer range %q: want A-B, both inclusive, such as 0-11", s)
	case b < a:
		return None, fmt.Errorf("bad layer range %q: it ends before it begins", s)
	}
	return Range{a, b}, nil
}

// parseLayer accepts plain decimal digits only, so that text and value correspond one to one but for leading zeros.
func parseLayer(s string) (int, error) {
	if s == "" || strings.TrimLeft(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, err
	}
	if n >= maxLayers {
		return 0, strconv.ErrRange
	}
	return n, nil
}

// MarshalText is String: plans and --json carry "0-11".
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRange.
func (r *Range) UnmarshalText(text []byte) error {
	got, err := ParseRange(string(text))
	if err != nil {
		return err
	}
	*r = got
	return nil
}
