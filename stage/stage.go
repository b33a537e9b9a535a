// Package stage runs ranges of layers: it loads and quantises them, keeps a KV cache per session, and generates.
//
// A Stage is a range of layers, near (an Engine in this process) or far (a Ring of peers behind QUIC hops); the
// head's loop cannot tell which. The head embeds, passes the hidden state through its stages, reads out the last
// position and picks the token.
package stage

import (
	"context"
	"errors"
	"fmt"

	"dchain/plan"
)

// Stage is a range of layers that serves sessions.
type Stage interface {
	Range() plan.Range
	// Cuts are the parts of the range at whose ends boundaries are reported.
	Cuts() []plan.Range
	// Open begins a session. It fails with ErrSessions when all slots are in use.
	Open(ctx context.Context) (Session, error)
	Close() error
}

// Session is one sequence on a stage. Push and Pull may be called from two goroutines; results come in push order.
type Session interface {
	// Push hands over hidden states [n][Hidden] of n consecutive positions starting at pos, which must follow the last
	// pushed position. It may return before the rows are computed; hidden is the session's from then on.
	Push(ctx context.Context, pos int, hidden []float32) error
	// Pull waits for the oldest push not yet pulled and returns its output: the last row, or all rows when the stage
	// returns all. The slice is the caller's.
	Pull(ctx context.Context) ([]float32, error)
	// Announce tells the stage which token was picked for position pos, for display only.
	Announce(pos, id int, text string)
	// Close frees the session's cache slot on every machine that has one.
	Close() error
}

// ErrSessions means that every cache slot of a stage is in use.
var ErrSessions = errors.New("all sessions are in use")

// PositionError means that a push does not continue its session.
type PositionError struct{ Want, Got int }

func (e *PositionError) Error() string {
	return fmt.Sprintf("position %d does not continue the session, which is at %d", e.Got, e.Want)
}

// ContextError means that a session would outgrow the context its cache was sized for.
type ContextError struct{ Context, Need int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("the sequence needs %d positions, the context holds %d", e.Need, e.Context)
}

// Boundary reports the hidden state that left a stage: one hash per row (transport.RowHash).
type Boundary struct {
	Session int32
	Stage   int // index in the ring, 1-based; for an unsplit run the index of the segment
	Layers  plan.Range
	Pos     int // position of the first row
	Hashes  []uint64
	Micros  int64 // compute time of the rows
}
