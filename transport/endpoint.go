package transport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

// Limits of a link. The first two are what Options call their zero values.
const (
	// DefaultIdleTimeout ends a link on which nothing was heard for so long. Keep-alives go out at a third of it, and the
	// clock starts anew with the first of them that stays unanswered, so a peer is missed after at most four thirds.
	DefaultIdleTimeout = 4500 * time.Millisecond
	// DefaultTimeout bounds a handshake.
	DefaultTimeout = 5 * time.Second
	// DefaultSendTimeout bounds one Send to a peer that is alive but takes no data. Large frames get more, see Send.
	DefaultSendTimeout = 10 * time.Second
	// sendRate is the slowest transfer, in bytes per second, that Send puts up with.
	sendRate = 256 << 10
	// closeLinger is how long Close waits for the peer to have read everything.
	closeLinger = 500 * time.Millisecond
)

// Endpoint is one UDP socket with the links over it. A Listener has one; a stage dials its successor from it as well, so
// that one open port serves for both.
type Endpoint struct {
	id    *Identity
	udp   net.PacketConn
	quic  *quic.Transport
	mu    sync.Mutex
	links map[*Link]struct{}
	done  bool
}

// quietly keeps the QUIC library from logging on its own that the system's socket buffers are small: packages do not
// print, and links work with small ones too.
var quietly = sync.OnceFunc(func() { os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true") })

// newEndpoint opens a socket. With a nil reset key its peers do not learn of a restart, which is right for a port that
// nobody will use again.
func newEndpoint(addr *net.UDPAddr, id *Identity, reset func(port int) quic.StatelessResetKey, poll func() time.Duration) (*Endpoint, error) {
	quietly()
	own, err := net.ListenUDP("udp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("UDP port %d is in use, perhaps by another stage: %w", addr.Port, err)
	}
	if err != nil {
		return nil, err
	}
	udp, err := newSocket(own, poll)
	if err != nil {
		own.Close()
		return nil, err
	}
	tr := &quic.Transport{Conn: udp}
	if reset != nil {
		key := reset(udp.LocalAddr().(*net.UDPAddr).Port)
		tr.StatelessResetKey = &key
	}
	return &Endpoint{id: id, udp: udp, quic: tr, links: make(map[*Link]struct{})}, nil
}

// Addr is the local address of the socket.
func (e *Endpoint) Addr() net.Addr { return e.udp.LocalAddr() }

// reaches reports whether the socket can send to ip: one that is bound to a single address may not.
func (e *Endpoint) reaches(ip net.IP) bool {
	own := e.udp.LocalAddr().(*net.UDPAddr).IP
	if own.IsUnspecified() {
		return own.To4() == nil || ip.To4() != nil
	}
	return own.IsLoopback() == ip.IsLoopback() && (own.To4() == nil) == (ip.To4() == nil)
}

func (e *Endpoint) add(l *Link) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done {
		return net.ErrClosed
	}
	e.links[l] = struct{}{}
	return nil
}

func (e *Endpoint) remove(l *Link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.links, l)
}

// close ends every link without waiting for what is under way, and gives the socket back.
func (e *Endpoint) close() error {
	e.mu.Lock()
	links := e.links
	first := !e.done
	e.done, e.links = true, nil
	e.mu.Unlock()
	if !first {
		return nil
	}
	for l := range links {
		l.conn.CloseWithError(CloseNormal, "")
	}
	return errors.Join(e.quic.Close(), e.udp.Close())
}

// config is the QUIC side of every link: one bidirectional stream, opened by the side that listens.
func config(timeout, idle time.Duration, incoming int64) *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:  timeout,
		MaxIdleTimeout:        idle,
		KeepAlivePeriod:       idle / 3,
		MaxIncomingStreams:    incoming,
		MaxIncomingUniStreams: -1,
	}
}

// past is a deadline that has gone by.
var past = time.Unix(1, 0)

func isDeadline(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
