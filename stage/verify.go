package stage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	"dchain/plan"
)

// Recorder collects the boundary hashes of one run: for each layer after which a stage ends, the hash of every row.
type Recorder struct {
	mu   sync.Mutex
	rows map[boundary]uint64
}

// boundary is a row that left a stage: the stage's last layer and the position.
type boundary struct{ layer, pos int }

// NewRecorder makes an empty recorder.
func NewRecorder() *Recorder {
	r := &Recorder{}
	r.Reset()
	return r
}

// Reset forgets everything, for the next run.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = map[boundary]uint64{}
}

// Trace records a boundary. It is the callback of engines and rings.
func (r *Recorder) Trace(b Boundary) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, h := range b.Hashes {
		r.rows[boundary{b.Layers.Last, b.Pos + i}] = h
	}
}

// Rows counts the recorded rows.
func (r *Recorder) Rows() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.rows)
}

// Digest is one hash over every recorded row, in order of layer and position.
func (r *Recorder) Digest() [32]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(r.rows), func(a, b boundary) int {
		return cmp.Or(cmp.Compare(a.layer, b.layer), cmp.Compare(a.pos, b.pos))
	})
	var sum []byte
	for _, at := range all {
		sum = binary.LittleEndian.AppendUint32(sum, uint32(at.layer))
		sum = binary.LittleEndian.AppendUint32(sum, uint32(at.pos))
		sum = binary.LittleEndian.AppendUint64(sum, r.rows[at])
	}
	return sha256.Sum256(sum)
}

// firstDifference is the lowest position below limit, and there the first of the stages cuts, at which r and ref differ. A row
// that either of them lacks counts as different.
func (r *Recorder) firstDifference(ref *Recorder, cuts []plan.Range, limit int) (plan.Range, int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ref.mu.Lock()
	defer ref.mu.Unlock()
	for pos := range limit {
		for _, cut := range cuts {
			at := boundary{cut.Last, pos}
			got, ok := r.rows[at]
			want, refOK := ref.rows[at]
			if !ok || !refOK || got != want {
				return cut, pos, true
			}
		}
	}
	return plan.None, 0, false
}

// Difference is the first place where a split run is not the unsplit run.
type Difference struct {
	Token  int        `json:"token"` // index of the first generated token that differs, -1 when only activations do
	Want   int        `json:"want"`  // the unsplit run's id, -1 for none
	Got    int        `json:"got"`   // the split run's id, -1 for none
	Pos    int        `json:"position"`
	Layers plan.Range `json:"layers"` // the first stage whose output differs; empty when no boundary does
}

func (d *Difference) Error() string {
	where := "no boundary differs: the readout or the sampling does"
	if d.Layers.Len() > 0 {
		where = fmt.Sprintf("the first stage whose activation differs holds layers %v, at position %d", d.Layers, d.Pos)
	}
	if d.Token < 0 {
		return "same tokens, but " + where
	}
	return fmt.Sprintf("token %d is %d, the unsplit run gives %d; %s", d.Token, d.Got, d.Want, where)
}

// Run is a head and the recorder that receives its boundaries.
type Run struct {
	Head     *Head
	Recorder *Recorder
}

// Compare generates on the split head and on the unsplit one, which must report a boundary wherever the split does, and
// returns the first difference, or nil when every token id and every boundary hash is the same.
func Compare(ctx context.Context, split, unsplit Run, opts GenerateOptions) (*Difference, Result, error) {
	split.Recorder.Reset()
	got, err := split.Head.Generate(ctx, opts)
	if err != nil {
		return nil, got, fmt.Errorf("split run: %w", err)
	}
	diff, err := CompareWith(ctx, got, split, unsplit, opts)
	return diff, got, err
}

// CompareWith compares a finished and recorded split run with a fresh unsplit one.
func CompareWith(ctx context.Context, got Result, split, unsplit Run, opts GenerateOptions) (*Difference, error) {
	opts.Emit, opts.Text, opts.Stop = nil, nil, nil
	opts.MaxTokens = max(len(got.IDs), 1)
	unsplit.Recorder.Reset()
	want, err := unsplit.Head.Generate(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("unsplit run: %w", err)
	}
	diff := &Difference{Token: -1, Want: -1, Got: -1, Layers: plan.None}
	// Positions whose input is the same in both runs: the prompt and the tokens before the first that differs. The last
	// token is picked but not fed back.
	limit := len(opts.Prompt) + len(want.IDs) - 1
	for i := range max(len(want.IDs), len(got.IDs)) {
		w, g := idAt(want.IDs, i), idAt(got.IDs, i)
		if w != g {
			diff.Token, diff.Want, diff.Got = i, w, g
			limit = len(opts.Prompt) + i
			break
		}
	}
	rng, pos, differs := split.Recorder.firstDifference(unsplit.Recorder, split.Head.Cuts(), limit)
	if !differs && diff.Token < 0 {
		return nil, nil
	}
	diff.Layers, diff.Pos = rng, pos
	return diff, nil
}

func idAt(ids []int, i int) int {
	if i < len(ids) {
		return ids[i]
	}
	return -1
}
