package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

// DialOptions say as whom to dial and whom to trust. Zero durations and sizes are the documented defaults.
type DialOptions struct {
	Identity *Identity
	// Known pins keys of addresses without a fingerprint. Without it such an address is refused.
	Known *KnownHosts
	// Endpoint is the socket to dial from, if it can reach the peer; a fresh one otherwise. Its identity must be Identity.
	Endpoint *Endpoint

	Timeout     time.Duration // of the whole dial: DefaultTimeout
	IdleTimeout time.Duration // DefaultIdleTimeout
	SendTimeout time.Duration // DefaultSendTimeout
	MaxFrame    int           // longest activation taken, bytes: MaxFrame

	CarrierOptions
}

func (o *DialOptions) validate() error {
	if o.Identity == nil {
		return errors.New("no identity")
	}
	if o.Endpoint != nil && !o.Endpoint.id.public.Equal(o.Identity.public) {
		return errors.New("the endpoint belongs to another identity")
	}
	return limits{o.Timeout, o.IdleTimeout, o.SendTimeout, o.MaxFrame}.validate()
}

// dialer is one Dial.
type dialer struct {
	host   string
	addr   PeerAddr
	opts   DialOptions
	limits limits
	phase  string
}

// Dial connects to a stage and returns once both sides have accepted each other's key. Every error is a *DialError.
func Dial(ctx context.Context, addr PeerAddr, opts DialOptions) (*Link, error) {
	d := &dialer{
		host: addr.Host, addr: addr, opts: opts, phase: PhaseConnect,
		limits: limits{opts.Timeout, opts.IdleTimeout, opts.SendTimeout, opts.MaxFrame}.withDefaults(),
	}
	start := time.Now()
	link, err := d.dial(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // the caller's own reason, not that of our timeout
		}
		err = d.cause(err, time.Since(start))
		return nil, &DialError{Host: d.host, Phase: d.phase, Err: err}
	}
	return link, nil
}

func (d *dialer) dial(ctx context.Context) (*Link, error) {
	if err := d.opts.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.limits.timeout)
	defer cancel()
	d.phase = PhaseResolve
	addrs, err := d.resolve(ctx)
	if err != nil {
		return nil, err
	}
	// Addresses are tried one after another, each with its share of the time that is left; a key that is not accepted ends
	// the search, since it would be wrong to look for another machine that happens to please.
	for i, addr := range addrs {
		d.phase = PhaseConnect
		deadline, _ := ctx.Deadline()
		share, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(addrs)-i))
		var link *Link
		link, err = d.attempt(share, addr)
		cancel()
		if err == nil {
			return link, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrHostKey) || d.phase == PhaseAuthorize {
			break
		}
	}
	return nil, err
}

// resolve lists the peer's addresses, IPv4 first: UDP gives no refusal to fall back on quickly.
func (d *dialer) resolve(ctx context.Context) ([]*net.UDPAddr, error) {
	host, p, err := net.SplitHostPort(d.host)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: %w", p, err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(ips, func(a, b netip.Addr) int { return a.Unmap().BitLen() - b.Unmap().BitLen() })
	var addrs []*net.UDPAddr
	for _, ip := range ips {
		addrs = append(addrs, net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip.Unmap(), uint16(port))))
	}
	return addrs, nil
}

// attempt dials one address.
func (d *dialer) attempt(ctx context.Context, addr *net.UDPAddr) (*Link, error) {
	e, owned, err := d.endpoint(addr)
	if err != nil {
		return nil, err
	}
	link, err := d.connect(ctx, e, addr)
	if err != nil {
		if owned {
			e.close()
		}
		return nil, err
	}
	if owned {
		link.ownEndpoint()
	}
	return link, nil
}

func (d *dialer) endpoint(addr *net.UDPAddr) (e *Endpoint, owned bool, err error) {
	if d.opts.Endpoint != nil && d.opts.Endpoint.reaches(addr.IP) {
		return d.opts.Endpoint, false, nil
	}
	e, err = newEndpoint(&net.UDPAddr{}, d.opts.Identity, nil, d.opts.Poll)
	return e, true, err
}

func (d *dialer) connect(ctx context.Context, e *Endpoint, addr *net.UDPAddr) (*Link, error) {
	cert, _, err := d.opts.Identity.material()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go probe(ctx, addr, cancel)

	known := false
	accept := func(k PublicKey) (err error) {
		d.phase = PhaseHandshake
		known, err = d.judge(k)
		return err
	}
	conn, err := e.quic.Dial(ctx, addr, tlsConfig(cert, accept), config(d.limits.timeout, d.limits.idle, 1))
	if err != nil {
		return nil, err
	}
	d.phase = PhaseAuthorize
	link, err := d.enter(ctx, conn, e)
	if err == nil && !known {
		err = d.opts.Known.pin(d.host, link.peer)
	}
	if err == nil {
		err = link.register()
	}
	if err != nil {
		conn.CloseWithError(CloseNormal, "")
		return nil, err
	}
	return link, nil
}

// judge decides whether the stage at the dialled address may show key k. known is false when k is to be pinned.
func (d *dialer) judge(k PublicKey) (known bool, err error) {
	got := Fingerprint(k)
	switch {
	case d.addr.Fingerprint == got:
		return true, nil
	case d.addr.Fingerprint != "":
		return false, &HostKeyMismatchError{Host: d.host, Want: d.addr.Fingerprint, Got: got}
	case d.opts.Known == nil:
		return false, &HostKeyUnknownError{Host: d.host, Got: got}
	}
	return d.opts.Known.lookup(d.host, k)
}

// enter waits for the stream that the other side opens once it has accepted our key, and for its first bytes.
func (d *dialer) enter(ctx context.Context, conn *quic.Conn, e *Endpoint) (*Link, error) {
	key, err := peerKey(conn.ConnectionState().TLS)
	if err != nil {
		return nil, err
	}
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	stream.SetReadDeadline(deadline)
	welcome := make([]byte, len(alpn))
	if _, err := io.ReadFull(stream, welcome); err != nil {
		return nil, err
	}
	if string(welcome) != alpn {
		return nil, fmt.Errorf("%w: it opens with %q", ErrWireVersion, welcome)
	}
	name, token, err := readOffer(stream)
	if err != nil {
		return nil, err
	}
	stream.SetReadDeadline(time.Time{})
	link := newLink(conn, stream, e, d.host, key, d.limits)
	if name != "" {
		err = link.answer(name, token, d.opts.CarrierOptions)
	}
	return link, err
}

// probe finds out at once that nobody listens: QUIC sends from an unconnected socket, which the kernel does not tell about
// a port that is closed. It sends one byte, which no QUIC server takes for a packet, and cancels the dial when the answer
// is a refusal.
func probe(ctx context.Context, addr *net.UDPAddr, cancel context.CancelCauseFunc) {
	conn, err := net.DialUDP("udp", nil, addr)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	conn.Write([]byte{0})
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, syscall.ECONNREFUSED) {
		cancel(fmt.Errorf("nobody listens there: %w", syscall.ECONNREFUSED))
	}
}
