package stage

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"dchain/plan"
	"dchain/transport"
	"dchain/units"
)

// HopError says which stage failed, where and when.
type HopError struct {
	Hop    int // 1-based place in the ring
	Addr   string
	Layers plan.Range
	Phase  string // connecting, assigning, loading, sending, waiting, returning, ...
	Last   int    // last position that came back before the failure, -1 for none
	Err    error
}

func (e *HopError) Error() string {
	s := fmt.Sprintf("hop %d (%s", e.Hop, e.Addr)
	if e.Layers.Len() > 0 {
		s += fmt.Sprintf(", layers %v", e.Layers)
	}
	s += ") failed while " + e.Phase
	if e.Last >= 0 {
		s += fmt.Sprintf(", last good position %d", e.Last)
	}
	return s + ": " + e.Err.Error()
}

func (e *HopError) Unwrap() error { return e.Err }

// ErrModelMismatch means that a peer holds another model, revision, weight format or numerics version.
var ErrModelMismatch = errors.New("model mismatch")

// ErrActivation means that an activation did not arrive as it was sent.
var ErrActivation = errors.New("activation hash mismatch")

// hopFault is a fault a stage reported, as an error that callers can test for the kinds they branch on.
type hopFault struct{ *transport.Fault }

func (e hopFault) Unwrap() error {
	switch e.Code {
	case transport.FaultModel, transport.FaultNumerics, transport.FaultWeights, transport.FaultTokenizer:
		return ErrModelMismatch
	case transport.FaultActHash:
		return ErrActivation
	case transport.FaultSessions:
		return ErrSessions
	}
	return nil
}

// refuse makes a fault of one's own; asFault fills in where it happened.
func refuse(code transport.FaultCode, format string, args ...any) *transport.Fault {
	return &transport.Fault{Code: code, Text: fmt.Sprintf(format, args...)}
}

// asFault turns an error into the frame that reports it.
func asFault(err error, seq, stage int32, phase string, last int) *transport.Fault {
	f := &transport.Fault{Code: transport.FaultInternal, Text: err.Error()}
	var own *transport.Fault
	var position *PositionError
	var overflow *ContextError
	var audit *units.AuditError
	switch {
	case errors.As(err, &own):
		f.Code, f.Text = own.Code, own.Text
	case errors.As(err, &position):
		f.Code = transport.FaultPosition
	case errors.As(err, &overflow):
		f.Code = transport.FaultContext
	case errors.As(err, &audit):
		f.Code = transport.FaultAudit
	case errors.Is(err, units.ErrNonFinite):
		f.Code = transport.FaultNonFinite
	case errors.Is(err, ErrSessions):
		f.Code = transport.FaultSessions
	case errors.Is(err, ErrActivation):
		f.Code = transport.FaultActHash
	case errors.Is(err, ErrModelMismatch):
		f.Code = transport.FaultModel
	}
	f.Seq, f.Stage, f.Phase, f.LastPos = seq, stage, phase, int32(last)
	return f
}

// checkActivation verifies an activation's hash and model before anything is done with it.
func checkActivation(f *transport.Activation, model uint32) error {
	switch {
	case f.ModelHash != model:
		return fmt.Errorf("an activation of model %08x arrived, this stage holds %08x: %w", f.ModelHash, model, ErrModelMismatch)
	case !f.Intact():
		return fmt.Errorf("session %d, position %d: %w", f.Seq, f.TokenIdx, ErrActivation)
	}
	return nil
}

// newActivation copies rows into a frame for the stage next. Its memory is pooled: Release it once sent.
func newActivation(seq int32, pos int, next int32, model uint32, rows []float32) *transport.Activation {
	a := transport.NewActivation(len(rows))
	copy(a.Hidden, rows)
	a.Seq, a.TokenIdx, a.NextIndex, a.ModelHash = seq, int32(pos), next, model
	a.Seal()
	return a
}

// modelHash is the short form of a model fingerprint that every activation carries.
func modelHash(fingerprint [32]byte) uint32 { return binary.LittleEndian.Uint32(fingerprint[:4]) }

func newRingID() [16]byte {
	var id [16]byte
	rand.Read(id[:])
	return id
}
