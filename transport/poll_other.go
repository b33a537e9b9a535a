//go:build !linux

package transport

import (
	"net"
	"syscall"
	"time"
)

// Elsewhere the reader of a socket sleeps at once.

type lookout struct{}

func newLookout(syscall.Conn) (*lookout, error) { return nil, nil }

func (*lookout) wait(time.Time) {}

func newSocket(c *net.UDPConn, _ time.Duration) (net.PacketConn, error) { return c, nil }
