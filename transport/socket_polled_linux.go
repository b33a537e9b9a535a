package transport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// polledSocket is like a socket, but its reader looks for messages for a while before it sleeps. The runtime does not watch its
// descriptor: it would wake a thread for every message, at the sender's expense, which is not needed where somebody looks.
type polledSocket struct {
	file  *os.File
	raw   syscall.RawConn
	local *net.UDPAddr
	six   bool // of version 6 of IP, which has room for addresses of 4

	deadline atomic.Pointer[time.Time] // of the reader, nil for none

	// What follows is the reader's.
	look    *lookout
	since   time.Time // it read something
	message [1]ipv4.Message
	joined
}

// newPolledSocket takes the place of c.
func newPolledSocket(c *net.UDPConn, raw syscall.RawConn, poll func() time.Duration) (*polledSocket, error) {
	s := &polledSocket{local: c.LocalAddr().(*net.UDPAddr), message: [1]ipv4.Message{newMessage()}}
	fd := -1
	var err error
	if e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		err = e
	}
	var name unix.Sockaddr
	if err == nil {
		err = unix.SetNonblock(fd, false) // os.NewFile has the runtime watch one that does not block
	}
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	if err == nil {
		err = c.Close() // the last that the runtime watches
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("taking over a socket: %w", err)
	}
	_, s.six = name.(*unix.SockaddrInet6)
	s.file = os.NewFile(uintptr(fd), "udp")
	if s.raw, err = s.file.SyscallConn(); err == nil {
		s.look, err = newLookout(s.file, poll)
	}
	if err != nil {
		s.file.Close()
		return nil, err
	}
	return s, nil
}

// ReadBatch is what the QUIC library reads with: every message it gets is a packet.
func (s *polledSocket) ReadBatch(ms []ipv4.Message, _ int) (int, error) {
	if s.empty() {
		if err := s.receive(); err != nil {
			return 0, err
		}
		s.take(s.message[:])
	}
	return s.packets(ms), nil
}

// receive reads a message.
func (s *polledSocket) receive() error {
	m := &s.message[0]
	for {
		if d := s.deadline.Load(); d != nil && !time.Now().Before(*d) {
			return s.failed("read", nil, os.ErrDeadlineExceeded)
		}
		found := s.look.wait(s.since)
		var from unix.Sockaddr
		var err error
		if e := s.raw.Read(func(fd uintptr) bool {
			if !found {
				unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, nap)
			}
			m.N, m.NN, m.Flags, from, err = unix.Recvmsg(int(fd), m.Buffers[0], m.OOB, unix.MSG_DONTWAIT)
			return true
		}); e != nil {
			return s.failed("read", nil, e)
		}
		switch err {
		case nil:
			s.since = time.Now()
			m.Addr = udpAddr(from)
			return nil
		case unix.EAGAIN, unix.EINTR:
		default:
			return s.failed("read", nil, os.NewSyscallError("recvmsg", err))
		}
	}
}

// nap bounds a sleep, so that a deadline set meanwhile is seen. In milliseconds.
const nap = 50

func (s *polledSocket) failed(op string, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "udp", Source: s.local, Addr: addr, Err: err}
}

// acknowledgement is more than a packet has that acknowledges others and carries nothing, in bytes.
const acknowledgement = 64

// WriteMsgUDP sends packets, an acknowledgement after those have run who wait for what it acknowledges.
func (s *polledSocket) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if len(b) < acknowledgement {
		runtime.Gosched()
	}
	to, err := s.sockaddr(addr)
	if err == nil {
		if e := s.raw.Control(func(fd uintptr) {
			for {
				if n, err = unix.SendmsgN(int(fd), b, oob, to, 0); err != unix.EINTR {
					return
				}
			}
		}); e != nil {
			err = e
		} else if err != nil {
			err = os.NewSyscallError("sendmsg", err)
		}
	}
	if err != nil {
		return 0, 0, s.failed("write", addr, err)
	}
	return n, len(oob), nil
}

func (s *polledSocket) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, s.failed("write", addr, syscall.EINVAL)
	}
	n, _, err := s.WriteMsgUDP(b, nil, to)
	return n, err
}

// ReadFrom and ReadMsgUDP are for readers of single packets, of which the socket has none.

func (s *polledSocket) ReadFrom([]byte) (int, net.Addr, error) { return 0, nil, errors.ErrUnsupported }

func (s *polledSocket) ReadMsgUDP(_, _ []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	return 0, 0, 0, nil, errors.ErrUnsupported
}

func (s *polledSocket) LocalAddr() net.Addr                   { return s.local }
func (s *polledSocket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }
func (s *polledSocket) Close() error                          { return s.file.Close() }

// SetReadDeadline is seen by the reader when it has looked long enough, or slept.
func (s *polledSocket) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		s.deadline.Store(nil)
	} else {
		s.deadline.Store(&t)
	}
	return nil
}

func (s *polledSocket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writing waits only for room in the system's queue of a device.
func (s *polledSocket) SetWriteDeadline(time.Time) error { return nil }

func (s *polledSocket) SetReadBuffer(bytes int) error  { return s.setBuffer(unix.SO_RCVBUF, bytes) }
func (s *polledSocket) SetWriteBuffer(bytes int) error { return s.setBuffer(unix.SO_SNDBUF, bytes) }

func (s *polledSocket) setBuffer(option, bytes int) (err error) {
	if e := s.raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, bytes) }); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}

// sockaddr is addr as the system takes it.
func (s *polledSocket) sockaddr(addr *net.UDPAddr) (unix.Sockaddr, error) {
	if !s.six {
		four := addr.IP.To4()
		if four == nil {
			return nil, &net.AddrError{Err: "not of IPv4", Addr: addr.String()}
		}
		return &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(four)}, nil
	}
	six := addr.IP.To16()
	if six == nil {
		return nil, &net.AddrError{Err: "not an IP address", Addr: addr.String()}
	}
	a := &unix.SockaddrInet6{Port: addr.Port, Addr: [16]byte(six)}
	if addr.Zone == "" {
		return a, nil
	}
	index, err := strconv.Atoi(addr.Zone)
	if err != nil {
		var i *net.Interface
		if i, err = net.InterfaceByName(addr.Zone); err != nil {
			return nil, err
		}
		index = i.Index
	}
	a.ZoneId = uint32(index)
	return a, nil
}

// udpAddr is the address of a sender; of its zone the number.
func udpAddr(from unix.Sockaddr) net.Addr {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return &net.UDPAddr{IP: a.Addr[:], Port: a.Port}
	case *unix.SockaddrInet6:
		u := &net.UDPAddr{IP: a.Addr[:], Port: a.Port}
		if a.ZoneId != 0 {
			u.Zone = strconv.FormatUint(uint64(a.ZoneId), 10)
		}
		return u
	}
	return nil
}
