package transport

import (
	"runtime"
	"syscall"
	"time"

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
