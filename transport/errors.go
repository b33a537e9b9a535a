package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"
)

var (
	// ErrUnauthorized is what an *UnauthorizedError matches with errors.Is.
	ErrUnauthorized = errors.New("key not authorised")
	// ErrWireVersion reports a peer that speaks another version of the wire protocol.
	ErrWireVersion = errors.New("the other side speaks another wire version")
	// ErrNoAnswer reports an address that stayed silent.
	ErrNoAnswer = errors.New("no answer")
)

// UnauthorizedError reports that a stage refused this side's key.
type UnauthorizedError struct {
	Host string // the stage, host:port
	Key  PublicKey
}

func (e *UnauthorizedError) Error() string {
	return fmt.Sprintf("stage at %s does not authorise key %s: add this line to its authorized keys: %s",
		e.Host, Fingerprint(e.Key), AuthorizedKeyLine(e.Key))
}

func (e *UnauthorizedError) Is(target error) bool { return target == ErrUnauthorized }

// Phases of a dial, for DialError.
const (
	PhaseResolve   = "resolving the name"
	PhaseConnect   = "connecting"
	PhaseHandshake = "handshake"
	PhaseAuthorize = "waiting to be let in"
)

// DialError reports that no link came about. Its Err is, or wraps, an *UnauthorizedError, one of the HostKey errors,
// ErrWireVersion, ErrNoAnswer, a context's error, or an error of the network.
type DialError struct {
	Host  string // host:port
	Phase string
	Err   error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("dialling %s: %s: %v", e.Host, e.Phase, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }

// Codes with which a link is closed.
const (
	CloseNormal   = 0 // done, nothing is wrong
	CloseFailed   = 1 // the closing side gave a reason
	CloseProtocol = 2 // the closed side sent bytes that are no frame
	closeRefused  = 3 // the peer does not follow the handshake of WIRE.md
)

// ClosedError reports that a link has ended. It matches net.ErrClosed, and io.EOF when the peer ended it without a reason.
type ClosedError struct {
	Addr    string // the peer's address
	Remote  bool   // the peer ended it
	Timeout bool   // the peer fell silent, or took no data for too long
	Reset   bool   // the peer's process was restarted and knows nothing of this link
	Code    uint64 // CloseNormal, CloseFailed, CloseProtocol
	Reason  string
	Err     error // cause, may be nil
}

func (e *ClosedError) Error() string {
	if e.Remote && e.Reason == "" {
		return fmt.Sprintf("link to %s was closed by the other side", e.Addr)
	}
	if e.Remote {
		return fmt.Sprintf("link to %s was closed by the other side: %s", e.Addr, e.Reason)
	}
	if e.Reason == "" {
		return fmt.Sprintf("link to %s is closed", e.Addr)
	}
	return fmt.Sprintf("link to %s is lost: %s", e.Addr, e.Reason)
}

func (e *ClosedError) Unwrap() error { return e.Err }

func (e *ClosedError) Is(target error) bool {
	return target == net.ErrClosed || target == io.EOF && e.Remote && e.Code == CloseNormal
}

// closedError says in our own words why a connection ended. err is the cause of its context.
func closedError(addr string, err error, idle time.Duration) *ClosedError {
	e := &ClosedError{Addr: addr, Err: err}
	if app, ok := errors.AsType[*quic.ApplicationError](err); ok {
		e.Remote, e.Code, e.Reason = app.Remote, uint64(app.ErrorCode), printable(app.ErrorMessage)
		return e
	}
	if t, ok := errors.AsType[*quic.TransportError](err); ok {
		e.Remote, e.Code, e.Reason = t.Remote, CloseFailed, printable(t.Error())
		return e
	}
	if _, ok := errors.AsType[*quic.IdleTimeoutError](err); ok {
		e.Timeout, e.Code = true, CloseFailed
		e.Reason = fmt.Sprintf("nothing was heard from it for %.1f s: its process has died, or the network is cut", idle.Seconds())
		return e
	}
	if _, ok := errors.AsType[*quic.StatelessResetError](err); ok {
		e.Remote, e.Reset, e.Code = true, true, CloseFailed
		e.Reason = "its process was restarted"
		return e
	}
	e.Code = CloseFailed
	if err != nil {
		e.Reason = printable(err.Error())
	}
	return e
}

// TLS alerts (RFC 8446 section 6) as QUIC transport errors: 0x100 + alert.
const (
	alertBadCertificate        quic.TransportErrorCode = 0x100 + 42
	alertCertificateRequired   quic.TransportErrorCode = 0x100 + 116
	alertNoApplicationProtocol quic.TransportErrorCode = 0x100 + 120
)

// cause translates what ended a dial after the time waited. In TLS 1.3 the listening side judges our key only after our
// side of the handshake is complete, so a refusal may turn up in either phase.
func (d *dialer) cause(err error, waited time.Duration) error {
	if errors.Is(err, ErrHostKey) || errors.Is(err, context.Canceled) {
		return err
	}
	var handshake *quic.HandshakeTimeoutError
	var idle *quic.IdleTimeoutError
	if errors.As(err, &handshake) || errors.As(err, &idle) || errors.Is(err, context.DeadlineExceeded) || isDeadline(err) {
		hint := "is a stage listening there, and does UDP reach it?"
		if d.phase == PhaseAuthorize {
			hint = "it is there, but busy or stuck"
		}
		return fmt.Errorf("%w within %.1f s: %s", ErrNoAnswer, waited.Seconds(), hint)
	}
	t, ok := errors.AsType[*quic.TransportError](err)
	switch {
	case !ok || !t.Remote:
	case t.ErrorCode == alertBadCertificate || t.ErrorCode == alertCertificateRequired:
		return &UnauthorizedError{Host: d.host, Key: d.opts.Identity.public}
	case t.ErrorCode == alertNoApplicationProtocol:
		return fmt.Errorf("%w (this side speaks %s)", ErrWireVersion, alpn)
	case t.ErrorCode == quic.ConnectionRefused:
		return errors.New("refused: it has more connections waiting than it can take")
	}
	return err
}
