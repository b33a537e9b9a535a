package transport

import (
	"bufio"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// stream carries the frames of a link: that of its QUIC connection, or a lane.
type stream interface {
	io.ReadWriter
	io.Closer // ends our direction
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

const (
	lanePrefix  = "@dchain-"      // "@": a name without a file
	laneToken   = 32              // bytes
	laneTimeout = 1 * time.Second // to agree on a lane
	// tokenTimeout is how long a connection to a lane may keep the token back. The peer's has come before its answer.
	tokenTimeout = 20 * time.Millisecond
)

// Answers to the offer of a lane.
const (
	laneRefused byte = iota
	laneTaken
)

// laneOffer is a local socket on which the peer that knows the token is awaited.
type laneOffer struct {
	listener *net.UnixListener
	name     string
	token    [laneToken]byte
}

// newLaneOffer is an offer for a process of this machine. The name is chosen at random, and the token travels in the QUIC
// stream, so nobody else can take the lane.
func newLaneOffer() (*laneOffer, error) {
	var id [16]byte
	o := &laneOffer{}
	rand.Read(id[:])
	rand.Read(o.token[:])
	o.name = lanePrefix + hex.EncodeToString(id[:])
	var err error
	o.listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: o.name})
	if err != nil {
		return nil, fmt.Errorf("offering a lane: %w", err)
	}
	return o, nil
}

// welcome is what the listening side sends first: the name of the protocol, and the offer or that there is none.
func (o *laneOffer) welcome() []byte {
	b := []byte(alpn)
	if o == nil {
		return append(b, 0)
	}
	b = append(b, byte(len(o.name)))
	b = append(b, o.name...)
	return append(b, o.token[:]...)
}

// settle waits for the peer's answer and returns its lane, nil if it refuses.
func (o *laneOffer) settle(quic stream, poll func() time.Duration) (*lane, error) {
	defer o.listener.Close()
	deadline := time.Now().Add(laneTimeout)
	quic.SetReadDeadline(deadline)
	defer quic.SetReadDeadline(time.Time{})
	var answer [1]byte
	if _, err := io.ReadFull(quic, answer[:]); err != nil {
		return nil, err
	}
	switch answer[0] {
	case laneRefused:
		return nil, nil
	case laneTaken:
	default:
		return nil, fmt.Errorf("%w: answer %d to the offer of a lane", ErrFrame, answer[0])
	}
	o.listener.SetDeadline(deadline)
	for {
		conn, err := o.listener.AcceptUnix()
		if err != nil {
			return nil, err
		}
		var got [laneToken]byte
		conn.SetReadDeadline(time.Now().Add(tokenTimeout))
		if _, err := io.ReadFull(conn, got[:]); err != nil || subtle.ConstantTimeCompare(got[:], o.token[:]) == 0 {
			conn.Close() // another process of this machine
			continue
		}
		conn.SetReadDeadline(time.Time{})
		return newLane(conn, poll)
	}
}

// readOffer reads what follows the name of the protocol: the offer's name, "" for none, and its token.
func readOffer(r io.Reader) (name string, token []byte, err error) {
	b := make([]byte, 1, 1+255+laneToken)
	if _, err := io.ReadFull(r, b); err != nil || b[0] == 0 {
		return "", nil, err
	}
	b = b[:int(b[0])+laneToken]
	if _, err := io.ReadFull(r, b); err != nil {
		return "", nil, err
	}
	n := len(b) - laneToken
	return string(b[:n]), b[n:], nil
}

// takeLane connects to a lane offered by the peer at addr, which is not let to name sockets of others.
func takeLane(addr net.Addr, name string, token []byte, poll func() time.Duration) (*lane, error) {
	if !strings.HasPrefix(name, lanePrefix) || !sameMachine(addr) {
		return nil, fmt.Errorf("a lane %q at %s is none of this machine", name, addr)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
	if err != nil {
		return nil, err
	}
	conn.SetWriteDeadline(time.Now().Add(laneTimeout))
	if _, err := conn.Write(token); err != nil {
		conn.Close()
		return nil, err
	}
	return newLane(conn, poll)
}

// sameMachine says whether an address of a peer is one of this machine's.
func sameMachine(addr net.Addr) bool {
	udp, ok := addr.(*net.UDPAddr)
	if !ok || udp.IP.IsLoopback() {
		return ok
	}
	own, _ := net.InterfaceAddrs()
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(udp.IP) {
			return true
		}
	}
	return false
}

// lane is a local socket between two processes of one machine that have met over QUIC. What it carries needs neither packets
// nor encryption.
type lane struct {
	*net.UnixConn
	look   *lookout
	buffer *bufio.Reader
}

const laneBuffer = 64 << 10 // bytes

func newLane(conn *net.UnixConn, poll func() time.Duration) (*lane, error) {
	look, err := newLookout(conn, poll)
	if err != nil {
		conn.Close()
		return nil, err
	}
	l := &lane{UnixConn: conn, look: look}
	l.buffer = bufio.NewReaderSize(poller{l}, laneBuffer)
	return l, nil
}

// Close ends our direction.
func (l *lane) Close() error { return l.CloseWrite() }

// Read reads from the buffer, which small frames and the rows of one position fill at once.
func (l *lane) Read(p []byte) (int, error) { return l.buffer.Read(p) }

// poller is the reading side of a lane, which looks for bytes for a while before it sleeps.
type poller struct{ *lane }

func (l poller) Read(p []byte) (int, error) {
	l.look.wait(time.Now())
	return l.UnixConn.Read(p)
}
