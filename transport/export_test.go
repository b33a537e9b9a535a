package transport

import "net"

// RawWrite puts bytes on the link's stream as they are, as a peer that follows no rules would.
func (l *Link) RawWrite(b []byte) error {
	_, err := l.stream.Write(b)
	return err
}

// RawFinish ends this side of the stream.
func (l *Link) RawFinish() error { return l.stream.Close() }

// DropLane closes the lane as the end of its process does, of which QUIC learns later.
func (l *Link) DropLane() error { return l.stream.(*lane).UnixConn.Close() }

// Bytewise gives the encodings used on big-endian machines, whatever this one is.
func Bytewise(p []float32) (encoded []byte, swapped []float32) {
	swapped = append(swapped, p...)
	swapFloats(swapped)
	return appendFloatsEach(nil, p), swapped
}

// NativeBytes is the encoding used on this machine.
func NativeBytes(p []float32) []byte { return appendFloats(nil, p) }

// Offer makes an offer of a lane, as the listening side does, and gives its name and a way to wait for the answer on answers.
func Offer() (name string, token []byte, settle func(answers net.Conn) (net.Conn, error), err error) {
	o, err := newLaneOffer()
	if err != nil {
		return "", nil, nil, err
	}
	return o.name, o.token[:], func(answers net.Conn) (net.Conn, error) {
		l, err := o.settle(answers, nil)
		if l == nil {
			return nil, err
		}
		return l, err
	}, nil
}

// TakeLane connects to an offer of the peer at addr.
func TakeLane(addr net.Addr, name string, token []byte) (net.Conn, error) {
	l, err := takeLane(addr, name, token, nil)
	if l == nil {
		return nil, err
	}
	return l, err
}
