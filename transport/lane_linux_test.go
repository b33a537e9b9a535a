package transport_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

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

// A process whose lane is gone while its connection looks alive has died.
func TestLaneEndsWithItsProcess(t *testing.T) {
	head, stage := transporttest.Pair(t, transport.CarrierOptions{Lane: true})
	start := time.Now()
	if err := stage.RawFinish(); err != nil {
		t.Fatal(err)
	}
	_, err := head.Recv(context.Background())
	closedAs(t, err, func(c *transport.ClosedError) bool { return !c.Remote && c.Reason == "its process has ended" })
	if waited := time.Since(start); waited > 3*time.Second {
		t.Errorf("it took %v", waited)
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
