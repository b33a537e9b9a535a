// Package plan decides who runs what: capacities and memory to layer ranges, by pure functions.
package plan

import "fmt"

// Range is a run of model layers, both ends inclusive. The zero value of a stage without layers is {0, -1}.
type Range struct {
	First, Last int
}

// None is the range of a stage that holds no layers.
var None = Range{0, -1}

// Len is the number of layers.
func (r Range) Len() int { return r.Last - r.First + 1 }

func (r Range) String() string {
	if r.Len() <= 0 {
		return "none"
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}
