//go:build !linux

package transport

import (
	"net"
	"syscall"
	"time"
)

// Elsewhere the reader of a socket sleeps at once.

type lookout struct{}

func newLookout(syscall.Conn, func() time.Duration) (*lookout, error) { return nil, nil }

func (*lookout) wait(time.Time) bool { return false }

func newSocket(c *net.UDPConn, _ func() time.Duration) (net.PacketConn, error) { return c, nil }
