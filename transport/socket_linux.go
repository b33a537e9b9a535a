package transport

import (
	"encoding/binary"
	"net"
	"runtime"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

const (
	socketReads  = 4        // messages read in one call
	messageBytes = 64 << 10 // the system joins packets up to that
	messageOOB   = 128      // bytes of control messages
)

// socket is a UDP socket that takes packets of one sender and one size which came one after another as one message, where the
// system has UDP_GRO: the packets of a row cross the loopback interface, and the call, in one piece. Its reader may look for
// messages for a while before it sleeps.
type socket struct {
	*net.UDPConn
	batch *ipv4.PacketConn // of either version of IP

	// What follows is the reader's.
	look  *lookout
	since time.Time // it read something
	reads [socketReads]ipv4.Message
	joined
}

func newSocket(c *net.UDPConn, poll func() time.Duration) (net.PacketConn, error) {
	look, err := newLookout(c, poll)
	if err != nil {
		return nil, err
	}
	// Where the system does not know the option, messages are packets.
	if err := look.raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) }); err != nil {
		return nil, err
	}
	s := &socket{UDPConn: c, batch: ipv4.NewPacketConn(c), look: look}
	for i := range s.reads {
		s.reads[i] = ipv4.Message{Buffers: [][]byte{make([]byte, messageBytes)}, OOB: make([]byte, messageOOB)}
	}
	return s, nil
}

// ReadBatch is what the QUIC library reads with: every message it gets is a packet.
func (s *socket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if s.empty() {
		s.look.wait(s.since)
		n, err := s.batch.ReadBatch(s.reads[:], flags)
		s.since = time.Now()
		if n <= 0 || err != nil {
			return n, err
		}
		s.take(s.reads[:n])
	}
	return s.packets(ms), nil
}

// acknowledgement is more than a packet has that acknowledges others and carries nothing, in bytes.
const acknowledgement = 64

// WriteMsgUDP sends packets, an acknowledgement after those have run who wait for what it acknowledges.
func (s *socket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if s.look.poll != nil && len(b) < acknowledgement {
		runtime.Gosched()
	}
	return s.UDPConn.WriteMsgUDP(b, oob, addr)
}

// joined are messages on their way to becoming packets.
type joined struct {
	came []ipv4.Message // not yet given to the caller
	rest []byte         // of came[0]
	step int            // bytes of a packet of came[0], of which the last may have fewer
}

func (j *joined) empty() bool { return len(j.came) == 0 }

// take begins with messages that came.
func (j *joined) take(ms []ipv4.Message) {
	if j.came = ms; len(ms) > 0 {
		j.rest, j.step = ms[0].Buffers[0][:ms[0].N], packetSize(&ms[0])
	}
}

// packets fills ms with packets and says how many there are.
func (j *joined) packets(ms []ipv4.Message) int {
	n := 0
	for n < len(ms) && len(j.came) > 0 {
		from, to := &j.came[0], &ms[n]
		packet := j.rest[:min(j.step, len(j.rest))]
		to.N = copy(to.Buffers[0], packet)
		to.NN = copy(to.OOB, from.OOB[:from.NN])
		to.Addr, to.Flags = from.Addr, from.Flags
		n++
		if j.rest = j.rest[len(packet):]; len(j.rest) == 0 {
			j.take(j.came[1:])
		}
	}
	return n
}

// packetSize is the size of the packets that a message was joined from, its own where it was not.
func packetSize(m *ipv4.Message) int {
	for oob := m.OOB[:m.NN]; len(oob) > 0; {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			break
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO && len(data) >= 4 {
			if size := int(binary.NativeEndian.Uint32(data)); size > 0 {
				return size
			}
		}
		oob = rest
	}
	return m.N
}
