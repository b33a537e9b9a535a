package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"dchain/transport/internal/tamper"
)

// Link is a connection to an authenticated peer that carries frames both ways. Send may be called by many goroutines at
// once, Recv by one.
//
// A link ends by Close, by the peer, or when the peer falls silent; from then on Done is closed, Err says why and both Send
// and Recv return that *ClosedError.
type Link struct {
	conn   *quic.Conn
	stream stream
	ep     *Endpoint
	owned  bool // ep has no other use
	addr   string
	peer   PublicKey
	limits limits

	send struct {
		sync.Mutex
		buf []byte // the encoded frame, reused
	}
	recv receiver

	closeOnce sync.Once
	closing   chan struct{} // closed by Close at its beginning
	final     *ClosedError  // what Err says from then on; written before closing is closed
}

func newLink(conn *quic.Conn, stream stream, e *Endpoint, addr string, peer PublicKey, lim limits) *Link {
	return &Link{conn: conn, stream: stream, ep: e, addr: addr, peer: peer, limits: lim, closing: make(chan struct{})}
}

// settle takes the lane if the peer does.
func (l *Link) settle(o *laneOffer, poll func() time.Duration) error {
	lane, err := o.settle(l.stream, poll)
	if err == nil && lane != nil {
		l.take(lane)
	}
	return err
}

// answer takes an offered lane, or else stays on the stream of the connection.
func (l *Link) answer(name string, token []byte, opts CarrierOptions) error {
	var lane *lane
	if lanes && opts.Lane {
		var err error
		if lane, err = takeLane(l.conn.RemoteAddr(), name, token, opts.Poll); err != nil {
			lane = nil // the two do not share a network namespace
		}
	}
	if lane == nil {
		return l.write([]byte{laneRefused})
	}
	if err := l.write([]byte{laneTaken}); err != nil {
		lane.UnixConn.Close()
		return err
	}
	l.take(lane)
	return nil
}

// OnLane says whether frames pass on a local socket, not in QUIC packets.
func (l *Link) OnLane() bool {
	_, ok := l.stream.(*lane)
	return ok
}

func (l *Link) take(lane *lane) {
	l.stream = lane
	context.AfterFunc(l.conn.Context(), func() { lane.UnixConn.Close() })
}

// register makes the endpoint's close end the link, until the connection is gone.
func (l *Link) register() error {
	if err := l.ep.add(l); err != nil {
		return err
	}
	context.AfterFunc(l.conn.Context(), func() { l.ep.remove(l) })
	return nil
}

// ownEndpoint closes the endpoint with the connection.
func (l *Link) ownEndpoint() {
	l.owned = true
	context.AfterFunc(l.conn.Context(), func() { l.ep.close() })
}

// Peer is the key the peer has proven to hold.
func (l *Link) Peer() PublicKey { return l.peer }

// Addr is the peer's address: as dialled, or as seen.
func (l *Link) Addr() string { return l.addr }

// RTT is the shortest round trip of a packet so far, 0 before the first: the others include work, above all the
// handshake's.
func (l *Link) RTT() time.Duration { return l.conn.ConnectionStats().MinRTT }

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.conn.Context().Done() }

// Err is nil while the link is up, and then a *ClosedError.
func (l *Link) Err() error {
	if l.isClosing() {
		return l.final
	}
	if l.conn.Context().Err() == nil {
		return nil
	}
	return closedError(l.addr, context.Cause(l.conn.Context()), l.limits.idle)
}

func (l *Link) isClosing() bool {
	select {
	case <-l.closing:
		return true
	default:
		return false
	}
}

// ended turns an error of the stream into the one the caller gets: why the link has ended, once it has.
func (l *Link) ended(err error) error {
	if l.isClosing() {
		return l.final
	}
	// The stream may notice before the connection's context does.
	select {
	case <-l.Done():
		return l.Err()
	case <-time.After(closeLinger):
	}
	if l.OnLane() {
		return l.died(err)
	}
	return &ClosedError{Addr: l.addr, Code: CloseFailed, Reason: printable(err.Error()), Err: err}
}

// died ends a link whose lane has ended and of which QUIC knows no end: a lane ends with its process, what QUIC notices
// later.
func (l *Link) died(err error) error {
	const reason = "its process has ended"
	l.conn.CloseWithError(CloseFailed, reason)
	return &ClosedError{Addr: l.addr, Code: CloseFailed, Reason: reason, Err: err}
}

// Send transmits f in a single write and returns when all of it has been handed to QUIC. f is not kept. Frames of
// concurrent calls do not mix.
//
// An error that matches ErrFrame is about f, and the link goes on; any other is a *ClosedError. A peer that is alive but
// does not read ends the link after SendTimeout, plus one second for each 256 KiB of the frame.
//
// An activation made by NewActivation is encoded in its own memory, so it must not be sent on two links at once.
func (l *Link) Send(f Frame) error {
	l.send.Lock()
	defer l.send.Unlock()
	b, err := l.encode(f)
	if err != nil {
		return err
	}
	return l.write(b)
}

// encode returns the bytes of f; it needs the send lock.
func (l *Link) encode(f Frame) ([]byte, error) {
	hook := tamper.Hook.Load()
	if a, ok := f.(*Activation); ok && !bigEndian && hook == nil && a.inPlace() && len(a.buf)*4-lengthSize <= MaxFrame {
		return a.encodeInPlace(), nil
	}
	b, err := AppendFrame(l.send.buf[:0], f)
	if err != nil {
		return nil, err
	}
	if cap(b) <= 1<<20 {
		l.send.buf = b
	}
	if hook != nil {
		(*hook)(l.peer, b)
	}
	return b, nil
}

// write needs the send lock.
func (l *Link) write(b []byte) error {
	l.stream.SetWriteDeadline(time.Now().Add(l.limits.send + time.Duration(len(b)/sendRate)*time.Second))
	// Close may have set a nearer deadline just before; it closes l.closing first.
	if l.isClosing() {
		return l.final
	}
	_, err := l.stream.Write(b)
	if err == nil {
		return nil
	}
	if isDeadline(err) && !l.isClosing() {
		reason := fmt.Sprintf("it took no data for %.3g s", l.limits.send.Seconds())
		l.conn.CloseWithError(CloseFailed, "took no data")
		return &ClosedError{Addr: l.addr, Timeout: true, Code: CloseFailed, Reason: reason, Err: err}
	}
	return l.ended(err)
}

// receiver holds what has arrived of the next frame, so that a Recv whose context ends loses nothing.
type receiver struct {
	sync.Mutex
	prefix  [prefixSize]byte
	n       int // bytes of the frame so far, prefix included
	kind    Kind
	act     *Activation // being filled, for an activation
	control []byte      // being filled, for other frames
	scratch [1024]byte
}

// Recv returns the next frame. Only one goroutine may call it at a time.
//
// When ctx ends first the error wraps its cause and the link goes on, without losing anything. A *ClosedError tells that
// the link has ended; bytes that are no frame end it, and the error then matches ErrFrame too.
//
// The frame is the caller's. The memory of an *Activation can be given back with Release.
func (l *Link) Recv(ctx context.Context) (Frame, error) {
	l.recv.Lock()
	defer l.recv.Unlock()
	if l.isClosing() {
		return nil, l.final
	}
	if err := context.Cause(ctx); err != nil {
		return nil, l.waiting(err)
	}
	if ctx.Done() != nil {
		fired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			l.stream.SetReadDeadline(past)
			close(fired)
		})
		defer func() {
			if !stop() {
				<-fired
				l.stream.SetReadDeadline(time.Time{})
			}
		}()
	}
	f, err := l.recv.frame(l.stream, l.limits.maxFrame)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, ErrFrame):
		l.conn.CloseWithError(CloseProtocol, "sent bytes that are no frame")
		return nil, &ClosedError{Addr: l.addr, Code: CloseProtocol, Reason: "it sent bytes that are no frame: " + printable(err.Error()), Err: err}
	case isDeadline(err) && !l.isClosing():
		return nil, l.waiting(context.Cause(ctx))
	case err == io.EOF:
		return nil, l.peerFinished()
	}
	return nil, l.ended(err)
}

func (l *Link) waiting(err error) error {
	return fmt.Errorf("waiting for a frame from %s: %w", l.addr, err)
}

// peerFinished handles the end of the peer's frames: it answers with the end of ours, upon which the peer, now sure that
// all was read, ends the connection and gives its reason.
func (l *Link) peerFinished() error {
	cut := l.recv.n > 0
	if cut && !l.OnLane() {
		return l.cutShort()
	}
	l.finish(time.Now().Add(closeLinger))
	timer := time.NewTimer(2 * closeLinger)
	defer timer.Stop()
	select {
	case <-l.Done():
	case <-l.closing:
	case <-timer.C:
		if l.OnLane() {
			return l.died(nil)
		}
		l.conn.CloseWithError(CloseNormal, "")
		return &ClosedError{Addr: l.addr, Remote: true, Err: io.EOF}
	}
	if err := l.Err(); !cut || !errors.Is(err, io.EOF) {
		return err
	}
	return l.cutShort()
}

// cutShort ends a link whose peer has ended its frames within one.
func (l *Link) cutShort() error {
	l.conn.CloseWithError(CloseProtocol, "ended in the middle of a frame")
	return &ClosedError{Addr: l.addr, Code: CloseProtocol, Reason: "it ended in the middle of a frame",
		Err: fmt.Errorf("%w: cut short", ErrFrame)}
}

// finish ends our side of the stream, after what is being sent if that is done by the deadline.
func (l *Link) finish(deadline time.Time) {
	l.stream.SetWriteDeadline(deadline)
	l.send.Lock()
	defer l.send.Unlock()
	l.stream.Close()
}

// Close ends the link. The peer first gets everything that was sent, if it reads on: Close waits for that, at most half a
// second. With a nil reason the peer's Recv matches io.EOF, otherwise it is told the reason. It always returns nil, also
// for a link that has ended already.
func (l *Link) Close(reason error) error {
	l.closeOnce.Do(func() {
		alive := l.conn.Context().Err() == nil
		l.final = &ClosedError{Addr: l.addr, Err: reason}
		if !alive {
			l.final = closedError(l.addr, context.Cause(l.conn.Context()), l.limits.idle)
		} else if reason != nil {
			l.final.Code, l.final.Reason = CloseFailed, reason.Error()
		}
		close(l.closing)
		l.stream.SetReadDeadline(past) // lets go of a Recv under way
		if alive {
			l.drain()
		}
		code, text := quic.ApplicationErrorCode(CloseNormal), ""
		if reason != nil {
			code, text = CloseFailed, clip(reason.Error(), 800) // it must fit a packet
		}
		l.conn.CloseWithError(code, text)
		if l.owned {
			l.ep.close()
		}
	})
	return nil
}

// drain sends the end of our frames and waits for the end of the peer's.
func (l *Link) drain() {
	deadline := time.Now().Add(closeLinger)
	l.finish(deadline)
	l.recv.Lock()
	defer l.recv.Unlock()
	l.stream.SetReadDeadline(deadline)
	io.Copy(io.Discard, l.stream)
}

// frame reads the rest of the next frame from r.
func (r *receiver) frame(in io.Reader, maxFrame int) (Frame, error) {
	if r.n < prefixSize {
		if err := r.fill(in, r.prefix[:], 0); err != nil {
			return nil, err
		}
		length, kind := parsePrefix(r.prefix[:])
		if err := checkLength(kind, length, maxFrame); err != nil {
			return nil, err
		}
		r.kind = kind
		r.begin(int(length))
	}
	dst := r.control
	if r.act != nil {
		dst = floatBytes(r.act.buf)[prefixSize:]
	}
	if err := r.fill(in, dst, prefixSize); err != nil {
		return nil, err
	}
	r.n = 0
	if r.act == nil {
		return parseBody(r.kind, r.control)
	}
	a := r.act
	r.act = nil
	d := decoder{b: floatBytes(a.buf)[prefixSize : headFloats*4]}
	a.decodeFields(&d)
	if bigEndian {
		swapFloats(a.Hidden)
	}
	return a, d.end()
}

// begin makes room for the body of a frame whose length was checked.
func (r *receiver) begin(length int) {
	if r.kind == KindActivation {
		r.act = NewActivation((length - activationHeader) / 4)
		return
	}
	r.control = r.scratch[:]
	if length-kindSize > len(r.scratch) {
		r.control = make([]byte, length-kindSize)
	}
	r.control = r.control[:length-kindSize]
}

// fill reads until dst, which begins at byte off of the frame, is full.
func (r *receiver) fill(in io.Reader, dst []byte, off int) error {
	for r.n < off+len(dst) {
		n, err := in.Read(dst[r.n-off:])
		r.n += n
		if err != nil && r.n < off+len(dst) {
			return err
		}
	}
	return nil
}

// clip shortens s to at most n bytes, at a rune's boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
