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
	socketReads = 4        // messages read in one call
	socketBytes = 64 << 10 // of a message: the system joins packets up to that
	socketOOB   = 128      // bytes of control messages
)

// socket is a UDP socket that takes packets of one sender and one size which came one after another from the system as one
// message, where the system has UDP_GRO: the packets of a row cross the loopback interface, and the call, in one piece. Its
// reader looks for messages for a while before it sleeps.
type socket struct {
	*net.UDPConn
	batch *ipv4.PacketConn // of either version of IP

	// What follows is the reader's.
	look  *lookout
	poll  time.Duration
	end   time.Time // of looking
	reads [socketReads]ipv4.Message
	came  []ipv4.Message // of reads, not yet given to the caller
	rest  []byte         // of came[0]
	step  int            // bytes of a packet of came[0], of which the last may have fewer
}

func newSocket(c *net.UDPConn, poll time.Duration) (net.PacketConn, error) {
	look, err := newLookout(c)
	if err != nil {
		return nil, err
	}
	s := &socket{UDPConn: c, batch: ipv4.NewPacketConn(c), look: look, poll: poll}
	// Where the system does not know the option, messages are packets.
	if err := look.raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) }); err != nil {
		return nil, err
	}
	for i := range s.reads {
		s.reads[i].Buffers = [][]byte{make([]byte, socketBytes)}
		s.reads[i].OOB = make([]byte, socketOOB)
	}
	return s, nil
}

// ReadBatch is what the QUIC library reads with: every message it gets is a packet.
func (s *socket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if len(s.came) == 0 {
		if s.poll > 0 {
			s.look.wait(s.end)
		}
		n, err := s.batch.ReadBatch(s.reads[:], flags)
		if s.poll > 0 {
			s.end = time.Now().Add(s.poll)
		}
		if n <= 0 || err != nil {
			return n, err
		}
		s.came = s.reads[:n]
		s.open()
	}
	n := 0
	for n < len(ms) && len(s.came) > 0 {
		from, to := &s.came[0], &ms[n]
		packet := s.rest[:min(s.step, len(s.rest))]
		to.N = copy(to.Buffers[0], packet)
		to.NN = copy(to.OOB, from.OOB[:from.NN])
		to.Addr, to.Flags = from.Addr, from.Flags
		n++
		if s.rest = s.rest[len(packet):]; len(s.rest) == 0 {
			s.came = s.came[1:]
			s.open()
		}
	}
	return n, nil
}

// open begins with the next message that came.
func (s *socket) open() {
	if len(s.came) == 0 {
		return
	}
	m := &s.came[0]
	s.rest = m.Buffers[0][:m.N]
	s.step = packetSize(m)
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

// acknowledgement is more than a packet has that acknowledges others and carries nothing, in bytes.
const acknowledgement = 64

// WriteMsgUDP sends a packet, an acknowledgement after those have run who wait for what it acknowledges.
func (s *socket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if s.poll > 0 && len(b) < acknowledgement {
		runtime.Gosched()
	}
	return s.UDPConn.WriteMsgUDP(b, oob, addr)
}
