package transport

import (
	"net"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// lookout tells whether a socket has something to read. It is used by one goroutine.
type lookout struct {
	raw  syscall.RawConn
	look func(fd uintptr) bool // made once: it is called a million times a second
	fds  [1]unix.PollFd
}

func newLookout(c syscall.Conn) (*lookout, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &lookout{raw: raw}
	l.look = func(fd uintptr) bool {
		l.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		unix.Poll(l.fds[:], 0)
		return true
	}
	return l, nil
}

// wait returns when there is something to read, be it an error, or else at end. To be woken from sleep takes longer than to
// read what has come.
func (l *lookout) wait(end time.Time) {
	for {
		runtime.Gosched() // lets those run who have what was read last
		if err := l.raw.Read(l.look); err != nil || l.fds[0].Revents != 0 || !time.Now().Before(end) {
			return
		}
	}
}

// polledConn is a socket whose reader looks for packets for a while before it sleeps.
type polledConn struct {
	*net.UDPConn
	batch *ipv4.PacketConn // of either version of IP
	look  *lookout
	poll  time.Duration
	end   time.Time // of looking; of the reader
}

func pollConn(c *net.UDPConn, poll time.Duration) (net.PacketConn, error) {
	if poll == 0 {
		return c, nil
	}
	look, err := newLookout(c)
	return &polledConn{UDPConn: c, batch: ipv4.NewPacketConn(c), look: look, poll: poll}, err
}

// ReadBatch is what the QUIC library reads with.
func (c *polledConn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	c.look.wait(c.end)
	n, err := c.batch.ReadBatch(ms, flags)
	c.end = time.Now().Add(c.poll)
	return n, err
}

// acknowledgement is more than a packet has that acknowledges others and carries nothing, in bytes.
const acknowledgement = 64

// WriteMsgUDP sends a packet, an acknowledgement after those have run who wait for what it acknowledges.
func (c *polledConn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if len(b) < acknowledgement {
		runtime.Gosched()
	}
	return c.UDPConn.WriteMsgUDP(b, oob, addr)
}
