package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// ListenOptions say where and for whom to listen. Zero durations and sizes are the documented defaults.
type ListenOptions struct {
	Addr     string    // host:port, host may be empty for every interface; port 0 picks one
	Identity *Identity // the key this side shows
	// Authorize decides whether the owner of a key may connect. It is called during handshakes, concurrently, before the
	// key is proven, so it must have no lasting effect.
	Authorize func(PublicKey) bool

	Timeout     time.Duration // of a handshake: DefaultTimeout
	IdleTimeout time.Duration // DefaultIdleTimeout
	SendTimeout time.Duration // DefaultSendTimeout
	MaxFrame    int           // longest activation taken, bytes: MaxFrame

	CarrierOptions
}

// CarrierOptions are about what carries frames.
type CarrierOptions struct {
	// Lane lets the frames of links between processes of one machine, where the system has a way, pass by QUIC, which then
	// carries only the handshake and the signs of life. Both sides must want it.
	Lane bool
	// Poll says how long the reader of a socket looks for more before it sleeps. That costs a core, so it is for machines that
	// have one to spare. It is asked again and again, by several goroutines; nil is for ever 0. An Endpoint given to Dial has its
	// own.
	Poll func() time.Duration
}

func (o *ListenOptions) validate() error {
	switch {
	case o.Identity == nil:
		return errors.New("no identity")
	case o.Authorize == nil:
		return errors.New("no authorization: there is no mode without")
	}
	return limits{o.Timeout, o.IdleTimeout, o.SendTimeout, o.MaxFrame}.validate()
}

// limits are the options both sides have.
type limits struct {
	timeout, idle, send time.Duration
	maxFrame            int
}

func (l limits) validate() error {
	if l.timeout < 0 || l.idle < 0 || l.send < 0 {
		return errors.New("a timeout is negative")
	}
	if l.maxFrame < 0 || l.maxFrame > MaxFrame {
		return fmt.Errorf("frame size %d is not in 0 to %d", l.maxFrame, MaxFrame)
	}
	return nil
}

func (l limits) withDefaults() limits {
	if l.timeout == 0 {
		l.timeout = DefaultTimeout
	}
	if l.idle == 0 {
		l.idle = DefaultIdleTimeout
	}
	if l.send == 0 {
		l.send = DefaultSendTimeout
	}
	if l.maxFrame == 0 {
		l.maxFrame = MaxFrame
	}
	return l
}

// Listener accepts links from authorised peers.
type Listener struct {
	endpoint *Endpoint
	quic     *quic.Listener
	limits   limits
	carrier  CarrierOptions

	welcomed chan *Link    // links that Accept returns next, never closed
	closed   chan struct{} // closed by Close
	close    sync.Once
}

// Listen opens a UDP socket for links. A port that is taken gives an error that matches syscall.EADDRINUSE.
func Listen(opts ListenOptions) (*Listener, error) {
	l, err := listen(opts)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", opts.Addr, err)
	}
	return l, nil
}

func listen(opts ListenOptions) (*Listener, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	addr, err := net.ResolveUDPAddr("udp", opts.Addr)
	if err != nil {
		return nil, err
	}
	cert, reset, err := opts.Identity.material()
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(addr, opts.Identity, reset, opts.Poll)
	if err != nil {
		return nil, err
	}
	accept := func(k PublicKey) error {
		if !opts.Authorize(k) {
			return fmt.Errorf("key %s: %w", Fingerprint(k), ErrUnauthorized)
		}
		return nil
	}
	lim := limits{opts.Timeout, opts.IdleTimeout, opts.SendTimeout, opts.MaxFrame}.withDefaults()
	// A QUIC handshake may take twice its idle timeout.
	q, err := e.quic.Listen(tlsConfig(cert, accept), config(lim.timeout/2, lim.idle, -1))
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return &Listener{endpoint: e, quic: q, limits: lim, carrier: opts.CarrierOptions, welcomed: make(chan *Link), closed: make(chan struct{})}, nil
}

// Addr is the address listened on.
func (l *Listener) Addr() net.Addr { return l.endpoint.Addr() }

// Endpoint is the listener's socket, to dial from.
func (l *Listener) Endpoint() *Endpoint { return l.endpoint }

// Accept returns the next link. Its peer is authenticated and authorised; peers that are not never show up here. After
// Close the error matches net.ErrClosed. A peer that takes its time over the offer of a lane keeps no other waiting.
func (l *Listener) Accept(ctx context.Context) (*Link, error) {
	ctx, cancel := context.WithCancel(ctx)
	accepted := make(chan error, 1)
	go func() { accepted <- l.greet(ctx) }()
	select {
	case link := <-l.welcomed:
		cancel()
		<-accepted
		return link, nil
	case err := <-accepted:
		cancel()
		if errors.Is(err, quic.ErrServerClosed) || errors.Is(err, quic.ErrTransportClosed) {
			err = net.ErrClosed
		}
		return nil, fmt.Errorf("accepting on %s: %w", l.Addr(), err)
	}
}

// greet welcomes peers, each by itself, until ctx ends or the listener is closed.
func (l *Listener) greet(ctx context.Context) error {
	for {
		conn, err := l.quic.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			link, err := l.welcome(conn)
			if err != nil {
				// A peer that does not follow the protocol, or is gone already, is no reason to stop accepting.
				conn.CloseWithError(closeRefused, "does not follow the handshake")
				return
			}
			select {
			case l.welcomed <- link:
			case <-l.closed:
			}
		}()
	}
}

// welcome opens the stream of a connection and tells the peer that it is let in.
func (l *Listener) welcome(conn *quic.Conn) (*Link, error) {
	key, err := peerKey(conn.ConnectionState().TLS)
	if err != nil {
		return nil, err
	}
	stream, err := conn.OpenStream()
	if err != nil {
		return nil, err
	}
	link := newLink(conn, stream, l.endpoint, conn.RemoteAddr().String(), key, l.limits)
	var offer *laneOffer
	if lanes && l.carrier.Lane && sameMachine(conn.RemoteAddr()) {
		if offer, err = newLaneOffer(); err != nil {
			offer = nil // the system has no socket to spare
		} else {
			defer offer.listener.Close()
		}
	}
	if err := link.write(offer.welcome()); err != nil {
		return nil, err
	}
	if offer != nil {
		if err := link.settle(offer, l.carrier.Poll); err != nil {
			return nil, err
		}
	}
	return link, link.register()
}

// Close stops listening and ends every link over the listener's socket, accepted or dialled, at once. Close links first
// where the last frames matter.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return errors.Join(l.quic.Close(), l.endpoint.close())
}
