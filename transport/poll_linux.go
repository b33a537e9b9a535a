package transport

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// yieldEvery is after how many looks others are let run, some 100 microseconds. Whoever lets them is likely to go on on another core,
// which has nothing at hand.
const yieldEvery = 128

// lookout tells whether a socket has something to read. It is used by one goroutine.
type lookout struct {
	raw  syscall.RawConn
	poll func() time.Duration  // nil: never
	look func(fd uintptr) bool // made once: it is called a million times a second
	fds  [1]unix.PollFd
}

func newLookout(c syscall.Conn, poll func() time.Duration) (*lookout, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	l := &lookout{raw: raw, poll: poll}
	l.look = func(fd uintptr) bool {
		l.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		unix.Poll(l.fds[:], 0)
		return true
	}
	return l, nil
}

// wait says whether there is something to read, be it an error, after looking for as long as it should, counted from since. To be
// woken from sleep takes longer than to read what has come.
func (l *lookout) wait(since time.Time) bool {
	if l.poll == nil {
		return false
	}
	for i := 0; ; i++ {
		if i%yieldEvery == 0 {
			runtime.Gosched() // lets those run who have what was read last
		}
		if err := l.raw.Read(l.look); err != nil || l.fds[0].Revents != 0 {
			return true
		}
		if time.Since(since) >= l.poll() {
			return false
		}
	}
}
