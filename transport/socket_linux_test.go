package transport

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// Packets that the system joined come out one by one, as they were sent, whatever room the reader has.
func TestSocketTakesMessagesApart(t *testing.T) {
	looks := func() time.Duration { return time.Millisecond }
	for name, c := range map[string]struct {
		addr string
		poll func() time.Duration
	}{"4": {"127.0.0.1:0", nil}, "6": {"[::1]:0", nil}, "4 polled": {"127.0.0.1:0", looks}, "6 polled": {"[::1]:0", looks}} {
		t.Run(name, func(t *testing.T) {
			from, own := listenUDP(t, c.addr), listenUDP(t, c.addr)
			opened, err := newSocket(own, c.poll)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			to := opened.(interface {
				quic.OOBCapablePacketConn
				ReadBatch([]ipv4.Message, int) (int, error)
			})
			to.SetReadDeadline(time.Now().Add(10 * time.Second))
			peer := to.LocalAddr().(*net.UDPAddr)
			var sent [][]byte
			for _, m := range []struct{ bytes, packet int }{{5300, 1000}, {0, 0}, {12 * 1452, 1452}, {7, 0}, {2904, 1452}} {
				b := make([]byte, m.bytes)
				for i := range b {
					b[i] = byte(len(sent) + i/7)
				}
				if _, _, err := from.WriteMsgUDP(b, segmented(m.packet), peer); err != nil {
					t.Fatal(err)
				}
				if m.packet == 0 {
					sent = append(sent, b)
				} else {
					sent = slices.AppendSeq(sent, slices.Chunk(b, m.packet))
				}
			}
			var got [][]byte
			for room := 1; len(got) < len(sent); room++ {
				ms := make([]ipv4.Message, room)
				for i := range ms {
					ms[i].Buffers, ms[i].OOB = [][]byte{make([]byte, 1452)}, make([]byte, messageOOB)
				}
				n, err := to.ReadBatch(ms, 0)
				if err != nil || n < 1 {
					t.Fatalf("after %d of %d packets: %d more, %v", len(got), len(sent), n, err)
				}
				for _, m := range ms[:n] {
					if a, ok := m.Addr.(*net.UDPAddr); !ok || a.Port != from.LocalAddr().(*net.UDPAddr).Port {
						t.Fatalf("packet %d is from %v", len(got), m.Addr)
					}
					got = append(got, m.Buffers[0][:m.N])
				}
			}
			if !slices.EqualFunc(got, sent, bytes.Equal) {
				t.Errorf("%d packets came that are not the %d sent", len(got), len(sent))
			}
			to.SetReadDeadline(time.Unix(1, 0))
			if n, err := to.ReadBatch(make([]ipv4.Message, 1), 0); !os.IsTimeout(err) {
				t.Errorf("after all packets: %d, %v", n, err)
			}
		})
	}
}

func listenUDP(t *testing.T, addr string) *net.UDPConn {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.ListenUDP("udp", a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// segmented is the control message that sends packets of a size in one call, nil for 0.
func segmented(size int) []byte {
	if size == 0 {
		return nil
	}
	b := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(b[unix.CmsgSpace(0):], uint16(size))
	return b
}
