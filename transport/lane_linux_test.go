package transport_test

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dchain/transport"
	"dchain/transport/transporttest"
)

// One side that does not want a lane is enough to stay with QUIC.
func TestLaneNeedsBoth(t *testing.T) {
	for _, wants := range [][2]bool{{true, false}, {false, true}} {
		head, stage := transporttest.Identity(t), transporttest.Identity(t)
		l, addr := transporttest.Listen(t, stage, transporttest.Allow(head), transport.CarrierOptions{Lane: wants[0]})
		dialled, accepted := transporttest.Connect(t, l, addr, head, transport.CarrierOptions{Lane: wants[1]})
		if dialled.OnLane() || accepted.OnLane() {
			t.Errorf("%v: a lane", wants)
		}
		if err := dialled.Send(&transport.Token{ID: 7}); err != nil {
			t.Fatal(err)
		}
		if f := recv(t, accepted).(*transport.Token); f.ID != 7 {
			t.Errorf("%v: token %d came", wants, f.ID)
		}
	}
}

// A process whose lane is gone while its connection looks alive has died, be it between frames, in the middle of one, with
// frames that it has not read, or while it is sent some.
func TestLaneEndsWithItsProcess(t *testing.T) {
	token, err := transport.Marshal(&transport.Token{Text: "cut"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		last   []byte // sent by the process that dies
		unread bool
		sends  bool // the other one does so then, instead of waiting for a frame
	}{
		"between frames": {}, "in a frame": {last: token[:9]}, "with unread frames": {unread: true}, "before a frame": {sends: true},
	} {
		t.Run(name, func(t *testing.T) {
			head, stage := transporttest.Pair(t, transport.CarrierOptions{Lane: true})
			if c.unread {
				if err := head.Send(&transport.Token{ID: 1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := stage.RawWrite(c.last); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			stage.DropLane()
			var err error
			if c.sends {
				err = head.Send(&transport.Token{ID: 1})
			} else {
				_, err = head.Recv(within(t, 5*time.Second))
			}
			closedAs(t, err, func(c *transport.ClosedError) bool { return !c.Remote && c.Reason == "its process has ended" })
			if errors.Is(err, transport.ErrFrame) || errors.Is(err, io.EOF) {
				t.Errorf("%v is said to be about a frame, or an end in order", err)
			}
			select {
			case <-head.Done():
			case <-time.After(time.Second):
				t.Error("the link goes on")
			}
			if waited := time.Since(start); waited > 3*time.Second {
				t.Errorf("it took %v", waited)
			}
		})
	}
}

// Where no socket can be made, frames stay in QUIC packets.
func TestLaneWithoutSocket(t *testing.T) {
	head, stage := transporttest.Identity(t), transporttest.Identity(t)
	lane := transport.CarrierOptions{Lane: true}
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head), lane)
	from, _ := transporttest.Listen(t, head, transporttest.Allow()) // dialling takes no new descriptor
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: had.Max}); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *transport.Link, 1)
	go func() {
		link, _ := l.Accept(within(t, 5*time.Second))
		accepted <- link
	}()
	link, err := transport.Dial(within(t, 5*time.Second), addr, transport.DialOptions{Identity: head, Endpoint: from.Endpoint(), CarrierOptions: lane})
	if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); restored != nil {
		t.Fatal(restored)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close(nil)
	if link.OnLane() {
		t.Error("there is a lane")
	}
	if err := link.Send(&transport.Token{ID: 7}); err != nil {
		t.Fatal(err)
	}
	other := <-accepted
	if f := recv(t, other).(*transport.Token); f.ID != 7 {
		t.Errorf("token %d came", f.ID)
	}
}

// Links leave neither descriptors nor goroutines, whoever closes them.
func TestLinksLeaveNothing(t *testing.T) { everyCarrier(t, testLinksLeaveNothing) }

func testLinksLeaveNothing(t *testing.T, pair pairing) {
	count := func() (files, goroutines int) {
		dir, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(dir), runtime.NumGoroutine()
	}
	t.Run("first", func(t *testing.T) { pair(t) }) // opens what a process keeps
	files, goroutines := count()
	t.Run("links", func(t *testing.T) {
		for range 25 {
			a, b := pair(t)
			if err := a.Send(&transport.Token{ID: 7}); err != nil {
				t.Fatal(err)
			}
			recv(t, b)
		}
	})
	for wait := 0; ; wait++ {
		f, g := count()
		if f <= files && g <= goroutines {
			return
		}
		if wait == 50 {
			t.Fatalf("%d descriptors became %d, %d goroutines %d", files, f, goroutines, g)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Whoever does not know the token is passed over, and whoever comes late finds nobody.
func TestLaneIsForItsPeer(t *testing.T) {
	name, token, settle, err := transport.Offer()
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	loopback := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	mute, err := net.Dial("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	stranger, err := transport.TakeLane(loopback, name, make([]byte, len(token)))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	peer, err := transport.TakeLane(loopback, name, token)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	go theirs.Write([]byte{1})
	lane, err := settle(ours)
	if err != nil || lane == nil {
		t.Fatal(lane, err)
	}
	defer lane.Close()
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var got [1]byte
	if _, err := io.ReadFull(lane, got[:]); err != nil || got[0] != 'x' {
		t.Errorf("got %q, %v", got, err)
	}
	stranger.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := stranger.Read(got[:]); n != 0 || err != io.EOF && !isReset(err) {
		t.Errorf("the stranger reads %d bytes, %v", n, err)
	}
	if late, err := transport.TakeLane(loopback, name, token); err == nil {
		late.Close()
		t.Error("somebody listens still")
	}
}

func isReset(err error) bool { return err != nil && err != io.EOF && !isTimeout(err) }

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}

// A stage cannot make a head connect to other sockets, nor to any if it is on another machine.
func TestLaneNames(t *testing.T) {
	other, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: "@dchain-test-of-names"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	file, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: t.TempDir() + "/socket"})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		ip   net.IP
		name string
	}{
		{net.IPv4(127, 0, 0, 1), file.Addr().String()},
		{net.IPv4(192, 0, 2, 1), other.Addr().String()},
	} {
		if conn, err := transport.TakeLane(&net.UDPAddr{IP: c.ip}, c.name, make([]byte, 32)); err == nil {
			conn.Close()
			t.Errorf("connected to %s for a peer at %v", c.name, c.ip)
		}
	}
}
