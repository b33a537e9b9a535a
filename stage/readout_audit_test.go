package stage

import (
	"errors"
	"testing"

	"dchain/units"
)

// failsOnce is a readout whose first run fails; an audit, too, looks at a run now and then.
type failsOnce struct {
	units.Executable
	err  error
	runs int
}

func (f *failsOnce) Run([]units.Row, []float32, []float32) error {
	f.runs++
	if f.runs == 1 {
		return f.err
	}
	return nil
}

// TestReadoutAudit: a wrong result ends every sequence of its batch; after any other failure each row is tried alone.
func TestReadoutAudit(t *testing.T) {
	for _, test := range []struct {
		err   error
		fails bool
	}{{&units.AuditError{Op: units.OpLinear}, true}, {errors.New("a value is not finite"), false}} {
		r := readout{forms: &forms{vocab: 1, made: map[int]units.Executable{0: &failsOnce{err: test.err}}}, hidden: 1}
		calls := []*readoutCall{
			{sequence: 1, hidden: make([]float32, 1), ask: &ask{}},
			{sequence: 2, hidden: make([]float32, 1), ask: &ask{}},
		}
		for i, err := range r.rows(calls) {
			if errors.Is(err, test.err) != test.fails {
				t.Errorf("batch failed with %q: row %d has %v", test.err, i, err)
			}
		}
	}
}
