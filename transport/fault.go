package transport

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// FaultCode says what went wrong, for the side that has to decide what to do.
type FaultCode uint16

const (
	FaultModel      FaultCode = 1  // another model, revision or tensor index
	FaultNumerics   FaultCode = 2  // another numerics version
	FaultWeights    FaultCode = 3  // another weight format
	FaultLayers     FaultCode = 4  // layers out of range, or not the ones held
	FaultContext    FaultCode = 5  // more positions than the context holds
	FaultSessions   FaultCode = 6  // no free session
	FaultPosition   FaultCode = 7  // a position that does not follow the session's last
	FaultActHash    FaultCode = 8  // the payload is not what its hash was made from
	FaultNonFinite  FaultCode = 9  // NaN or infinity in an activation
	FaultAudit      FaultCode = 10 // a unit gave a wrong bit
	FaultLoad       FaultCode = 11 // the layers could not be loaded
	FaultNextHop    FaultCode = 12 // the next stage was lost or never reached
	FaultInternal   FaultCode = 13 // a bug or an unexpected condition of the sender
	FaultBusy       FaultCode = 14 // the stage serves another ring
	FaultWire       FaultCode = 15 // another wire version
	FaultTokenizer  FaultCode = 16 // another tokenizer
	FaultShape      FaultCode = 17 // an activation that is no whole number of rows
	FaultProtocol   FaultCode = 18 // a frame that has no business here
	FaultAssignment FaultCode = 19 // an assignment that cannot be met: memory, context, sessions
	FaultTimeout    FaultCode = 20 // the sender waited too long
	FaultStopping   FaultCode = 21 // the stage is being stopped by its operator
	FaultPrevHop    FaultCode = 22 // the link from the stage before was lost
)

var faultNames = map[FaultCode]string{
	FaultModel: "model mismatch", FaultNumerics: "numerics mismatch", FaultWeights: "weights mismatch",
	FaultLayers: "layers", FaultContext: "context exceeded", FaultSessions: "sessions exhausted",
	FaultPosition: "position mismatch", FaultActHash: "activation hash", FaultNonFinite: "non-finite activation",
	FaultAudit: "audit", FaultLoad: "load failed", FaultNextHop: "next hop lost", FaultInternal: "internal",
	FaultBusy: "busy", FaultWire: "wire version mismatch", FaultTokenizer: "tokenizer mismatch",
	FaultShape: "activation shape", FaultProtocol: "protocol", FaultAssignment: "assignment refused",
	FaultTimeout: "timeout", FaultStopping: "stopping", FaultPrevHop: "previous hop lost",
}

func (c FaultCode) String() string {
	if s, ok := faultNames[c]; ok {
		return s
	}
	return fmt.Sprintf("fault %d", uint16(c))
}

// Fault reports that a session, or the whole ring, has ended in an error. It is an error itself.
type Fault struct {
	Seq     int32 // session, or -1 for the whole ring
	Stage   int32 // the stage that noticed
	Code    FaultCode
	Phase   string // what it was doing
	LastPos int32  // last position that was good, or -1
	Text    string
}

func (*Fault) Kind() Kind { return KindFault }

func (f *Fault) encode(e *encoder) {
	e.i32(f.Seq)
	e.i32(f.Stage)
	if f.Code == 0 {
		e.fail("Code", errors.New("0 is no code"))
	}
	e.u16(uint16(f.Code))
	e.str("Phase", f.Phase)
	e.i32(f.LastPos)
	e.str("Text", f.Text)
}

func (f *Fault) decode(d *decoder) {
	f.Seq = d.i32("Seq")
	f.Stage = d.i32("Stage")
	f.Code = FaultCode(d.u16("Code"))
	if f.Code == 0 {
		d.fail("Code", errors.New("0 is no code"))
	}
	f.Phase = d.str("Phase")
	f.LastPos = d.i32("LastPos")
	f.Text = d.str("Text")
}

// Error gives the fault in one line. Control characters in the peer's text are replaced: it may end up on a terminal.
func (f *Fault) Error() string {
	s := fmt.Sprintf("stage %d: %s", f.Stage, f.Code)
	if f.Phase != "" {
		s += " during " + printable(f.Phase)
	}
	if f.LastPos >= 0 {
		s += fmt.Sprintf(" (last good position %d)", f.LastPos)
	}
	if f.Text != "" {
		s += ": " + printable(f.Text)
	}
	return s
}

// printable replaces what a terminal could take for an order.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
