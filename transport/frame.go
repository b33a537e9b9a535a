package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// WireVersion is compared in the handshake (it is part of the ALPN name) and again in Hello.
const WireVersion = 2

// Kind says what a frame is. Kinds are negative so that a length read out of step is never taken for one.
type Kind int32

const (
	KindFragment   Kind = -5 // reserved: QUIC streams carry large messages whole
	KindHello      Kind = -20
	KindAssignment Kind = -21
	KindReady      Kind = -22
	KindActivation Kind = -23
	KindToken      Kind = -24
	KindFinished   Kind = -25
	KindReceipt    Kind = -26
	KindFault      Kind = -27
	KindAsk        Kind = -28
)

func (k Kind) String() string {
	switch k {
	case KindFragment:
		return "fragment"
	case KindHello:
		return "hello"
	case KindAssignment:
		return "assignment"
	case KindReady:
		return "ready"
	case KindActivation:
		return "activation"
	case KindToken:
		return "token"
	case KindFinished:
		return "finished"
	case KindReceipt:
		return "receipt"
	case KindFault:
		return "fault"
	case KindAsk:
		return "ask"
	}
	return fmt.Sprintf("kind %d", int32(k))
}

const (
	// MaxFrame bounds the length field of an activation: kind and body together, in bytes.
	MaxFrame = 64 << 20
	// MaxControl bounds the length field of every other frame.
	MaxControl = 64 << 10

	lengthSize = 4 // the length field itself, not counted in its value
	kindSize   = 4
	prefixSize = lengthSize + kindSize
)

// Frame is one message. Only the pointer types of this package implement it: *Hello, *Assignment, *Ready, *Activation,
// *Token, *Finished, *Receipt, *Fault, *Ask.
type Frame interface {
	Kind() Kind
	encode(e *encoder)
	decode(d *decoder)
}

// ErrFrame is wrapped by every error about the bytes of a frame: unknown kind, bad length, bad field.
var ErrFrame = errors.New("malformed frame")

var errNotUTF8 = errors.New("not valid UTF-8")

// newFrame returns an empty frame of kind k.
func newFrame(k Kind) (Frame, error) {
	switch k {
	case KindHello:
		return new(Hello), nil
	case KindAssignment:
		return new(Assignment), nil
	case KindReady:
		return new(Ready), nil
	case KindActivation:
		return new(Activation), nil
	case KindToken:
		return new(Token), nil
	case KindFinished:
		return new(Finished), nil
	case KindReceipt:
		return new(Receipt), nil
	case KindFault:
		return new(Fault), nil
	case KindAsk:
		return new(Ask), nil
	case KindFragment:
		return nil, fmt.Errorf("%w: kind %d (fragment) is reserved", ErrFrame, int32(k))
	}
	return nil, fmt.Errorf("%w: unknown kind %d", ErrFrame, int32(k))
}

// checkLength judges the length field of a frame of kind k before anything is allocated for it. maxFrame is the bound for
// activations.
func checkLength(k Kind, length uint32, maxFrame int) error {
	if _, err := newFrame(k); err != nil {
		return err
	}
	limit := uint32(MaxControl)
	if k == KindActivation {
		limit = uint32(maxFrame)
		if length < activationHeader+4 || length%4 != 0 {
			return fmt.Errorf("%w: activation: length %d is not a header and whole numbers", ErrFrame, length)
		}
	}
	if length < kindSize || length > limit {
		return fmt.Errorf("%w: %s: length %d, allowed are %d to %d", ErrFrame, k, length, kindSize, limit)
	}
	return nil
}

// AppendFrame appends the encoding of f, length field included, to b.
func AppendFrame(b []byte, f Frame) ([]byte, error) {
	start := len(b)
	e := encoder{b: append(b, make([]byte, lengthSize)...)}
	e.i32(int32(f.Kind()))
	f.encode(&e)
	if e.err != nil {
		return b, fmt.Errorf("%w: %s: %w", ErrFrame, f.Kind(), e.err)
	}
	length := len(e.b) - start - lengthSize
	if length > MaxFrame {
		return b, fmt.Errorf("%w: %s: %d bytes, allowed are %d", ErrFrame, f.Kind(), length, MaxFrame)
	}
	if err := checkLength(f.Kind(), uint32(length), MaxFrame); err != nil {
		return b, err
	}
	binary.LittleEndian.PutUint32(e.b[start:], uint32(length))
	return e.b, nil
}

// Marshal encodes f, length field included.
func Marshal(f Frame) ([]byte, error) { return AppendFrame(nil, f) }

// Parse decodes one whole frame, length field included; p must end where the frame ends. The result shares no memory
// with p.
func Parse(p []byte) (Frame, error) {
	if len(p) < prefixSize {
		return nil, fmt.Errorf("%w: %d bytes, a frame has at least %d", ErrFrame, len(p), prefixSize)
	}
	length, kind := parsePrefix(p)
	if err := checkLength(kind, length, MaxFrame); err != nil {
		return nil, err
	}
	if int(length) != len(p)-lengthSize {
		return nil, fmt.Errorf("%w: %s: length %d, but %d bytes follow", ErrFrame, kind, length, len(p)-lengthSize)
	}
	return parseBody(kind, p[prefixSize:])
}

func parsePrefix(p []byte) (length uint32, kind Kind) {
	return binary.LittleEndian.Uint32(p), Kind(binary.LittleEndian.Uint32(p[lengthSize:]))
}

// parseBody decodes what follows the kind.
func parseBody(kind Kind, body []byte) (Frame, error) {
	f, err := newFrame(kind)
	if err != nil {
		return nil, err
	}
	d := decoder{b: body}
	f.decode(&d)
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFrame, kind, err)
	}
	return f, nil
}
