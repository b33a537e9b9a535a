package transport_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"dchain/transport"
	"dchain/transport/transporttest"
)

// closedAs fails unless err is a ClosedError that ok approves of.
func closedAs(t *testing.T, err error, ok func(*transport.ClosedError) bool) {
	t.Helper()
	var closed *transport.ClosedError
	if !errors.As(err, &closed) || !ok(closed) {
		t.Errorf("got %v (%+v)", err, closed)
	}
}

// A peer behind a network that goes silent, or away, is missed within the promised time, by a Recv that waits without end
// and by the side that only looks at Done.
func TestLostPeerIsNoticed(t *testing.T) {
	t.Parallel()
	const bound = transport.DefaultIdleTimeout*4/3 + 500*time.Millisecond
	for name, lose := range map[string]func(*transporttest.Network){
		"mute": func(n *transporttest.Network) { n.Mute(true) },
		"cut":  func(n *transporttest.Network) { n.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head, stage := transporttest.Identity(t), transporttest.Identity(t)
			l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
			network := transporttest.NewNetwork(t, addr.Host)
			addr.Host = network.Addr()
			dialled, accepted := transporttest.Connect(t, l, addr, head)
			if err := dialled.Send(&transport.Token{ID: 1}); err != nil {
				t.Fatal(err)
			}
			recv(t, accepted)
			start := time.Now()
			lose(network)
			_, err := dialled.Recv(context.Background())
			if waited := time.Since(start); waited > bound || waited < time.Second {
				t.Errorf("the dialling side noticed after %v", waited)
			}
			closedAs(t, err, func(c *transport.ClosedError) bool { return c.Timeout && !c.Remote && c.Addr == addr.Host })
			select {
			case <-accepted.Done():
			case <-time.After(bound - time.Since(start)):
				t.Fatal("the listening side did not notice in time")
			}
			closedAs(t, accepted.Err(), func(c *transport.ClosedError) bool { return c.Timeout })
			if err := accepted.Send(&transport.Token{}); err == nil {
				t.Error("sending to a lost peer succeeds")
			}
			start = time.Now()
			accepted.Close(nil)
			if time.Since(start) > 100*time.Millisecond {
				t.Error("closing a dead link takes time")
			}
			closedAs(t, accepted.Err(), func(c *transport.ClosedError) bool { return c.Timeout })
		})
	}
}

// An idle link lives, by its keep-alives.
func TestIdleLinkLives(t *testing.T) { everyCarrier(t, testIdleLinkLives) }

func testIdleLinkLives(t *testing.T, pair pairing) {
	t.Parallel()
	head, stage := pair(t)
	time.Sleep(transport.DefaultIdleTimeout + 2*time.Second)
	if err := head.Send(&transport.Token{ID: 1}); err != nil {
		t.Fatal(err)
	}
	recv(t, stage)
}

// A stage that is started anew at the same address, with the same key, tells its old peers.
func TestRestartedPeerIsNoticedEarly(t *testing.T) {
	head, stage := transporttest.Identity(t), transporttest.Identity(t)
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	network := transporttest.NewNetwork(t, addr.Host)
	direct := addr.Host
	addr.Host = network.Addr()
	dialled, _ := transporttest.Connect(t, l, addr, head)
	network.Mute(true) // the dying process says no farewell
	l.Close()
	time.Sleep(50 * time.Millisecond)
	again, err := transport.Listen(transport.ListenOptions{Addr: direct, Identity: stage, Authorize: transporttest.Allow(head)})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	network.Mute(false)
	start := time.Now()
	dialled.Send(&transport.Token{ID: 1, Text: strings.Repeat("x", 100)})
	_, err = dialled.Recv(within(t, 10*time.Second))
	closedAs(t, err, func(c *transport.ClosedError) bool { return c.Reset && c.Remote })
	if time.Since(start) > 2*time.Second {
		t.Errorf("noticed after %v", time.Since(start))
	}
}

func TestListenerCloseEndsLinks(t *testing.T) {
	head, stage := transporttest.Identity(t), transporttest.Identity(t)
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	dialled, _ := transporttest.Connect(t, l, addr, head)
	go l.Close()
	_, err := dialled.Recv(within(t, 2*time.Second))
	closedAs(t, err, func(c *transport.ClosedError) bool { return c.Remote })
}

// A Recv that gives up in the middle of a frame loses nothing.
func TestRecvResumes(t *testing.T) { everyCarrier(t, testRecvResumes) }

func testRecvResumes(t *testing.T, pair pairing) {
	head, stage := pair(t)
	act := transport.NewActivation(3000)
	for i := range act.Hidden {
		act.Hidden[i] = float32(i)
	}
	act.Seal()
	var stream []byte
	for _, f := range []transport.Frame{&transport.Token{Text: "before"}, act, &transport.Token{Text: strings.Repeat("x", 5000)}} {
		b, err := transport.AppendFrame(stream, f)
		if err != nil {
			t.Fatal(err)
		}
		stream = b
	}
	go func() {
		for i := 0; i < len(stream); i += 701 {
			head.RawWrite(stream[i:min(i+701, len(stream))])
			time.Sleep(2 * time.Millisecond)
		}
	}()
	var frames []transport.Frame
	gaveUp := 0
	for len(frames) < 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		f, err := stage.Recv(ctx)
		cancel()
		switch {
		case err == nil:
			frames = append(frames, f)
		case errors.Is(err, context.DeadlineExceeded):
			gaveUp++
		default:
			t.Fatal(err)
		}
	}
	if gaveUp < 3 {
		t.Errorf("gave up only %d times", gaveUp)
	}
	if a := frames[1].(*transport.Activation); !a.Intact() || len(a.Hidden) != 3000 {
		t.Error("the activation is damaged")
	}
}

func TestConcurrentSends(t *testing.T) { everyCarrier(t, testConcurrentSends) }

func testConcurrentSends(t *testing.T, pair pairing) {
	head, stage := pair(t)
	const senders, each = 8, 50
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				var f transport.Frame = &transport.Token{Seq: int32(s), TokenIdx: int32(i), Text: strings.Repeat("y", 300)}
				if i%2 == 1 {
					a := transport.NewActivation(500 + 100*s)
					for j := range a.Hidden {
						a.Hidden[j] = float32(s*i + j)
					}
					a.Seq, a.TokenIdx = int32(s), int32(i)
					a.Seal()
					f = a
				}
				if err := head.Send(f); err != nil {
					t.Error(err)
					return
				}
				if a, ok := f.(*transport.Activation); ok {
					clear(a.Hidden) // Send keeps nothing
					a.Release()
				}
			}
		})
	}
	next := make([]int32, senders)
	for range senders * each {
		var seq, idx int32
		switch f := recv(t, stage).(type) {
		case *transport.Token:
			seq, idx = f.Seq, f.TokenIdx
		case *transport.Activation:
			seq, idx = f.Seq, f.TokenIdx
			if !f.Intact() || len(f.Hidden) != 500+100*int(seq) {
				t.Fatal("an activation is damaged")
			}
			f.Release()
		}
		if idx != next[seq] {
			t.Fatalf("sender %d: frame %d came in place of %d", seq, idx, next[seq])
		}
		next[seq]++
	}
	wg.Wait()
}

func TestLargeFrame(t *testing.T) { everyCarrier(t, testLargeFrame) }

func testLargeFrame(t *testing.T, pair pairing) {
	head, stage := pair(t)
	a := transport.NewActivation(2 << 20) // 8 MiB
	for i := range a.Hidden {
		a.Hidden[i] = float32(i % 1000)
	}
	a.Seal()
	literal := &transport.Activation{ActHash: a.ActHash, Hidden: a.Hidden[:len(a.Hidden):len(a.Hidden)]}
	go func() {
		head.Send(a)
		head.Send(literal)
	}()
	for range 2 {
		f, err := stage.Recv(within(t, 20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.(*transport.Activation); !got.Intact() || len(got.Hidden) != len(a.Hidden) {
			t.Error("the activation is damaged")
		}
	}
}

// A peer that is alive but reads nothing ends Send in time.
func TestSendToPeerThatDoesNotRead(t *testing.T) {
	head, stage := transporttest.Identity(t), transporttest.Identity(t)
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	links := accepting(t, l)
	dialled, err := transport.Dial(context.Background(), addr, transport.DialOptions{Identity: head, SendTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close(nil)
	<-links
	a := transport.NewActivation(50000) // 200 kB, less than the second that each 256 KiB is given
	start := time.Now()
	for err == nil && time.Since(start) < 10*time.Second {
		err = dialled.Send(a)
	}
	closedAs(t, err, func(c *transport.ClosedError) bool { return c.Timeout })
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("noticed after %v", d)
	}
	select {
	case <-dialled.Done():
	case <-time.After(time.Second):
		t.Error("the link is still up")
	}
}

// Close lets go of a Recv and a Send under way.
func TestCloseUnblocks(t *testing.T) { everyCarrier(t, testCloseUnblocks) }

func testCloseUnblocks(t *testing.T, pair pairing) {
	head, _ := pair(t)
	errs := make(chan error, 2)
	go func() { _, err := head.Recv(context.Background()); errs <- err }()
	go func() {
		a := transport.NewActivation(4 << 20)
		errs <- head.Send(a) // the peer does not read
	}()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	head.Close(errors.New("enough"))
	for range 2 {
		closedAs(t, <-errs, func(c *transport.ClosedError) bool { return c.Reason == "enough" })
	}
	if d := time.Since(start); d > 1200*time.Millisecond {
		t.Errorf("closing took %v", d)
	}
	head.Close(nil) // harmless
}

func TestTamperedActivationIsNoticed(t *testing.T) { everyCarrier(t, testTamperedActivationIsNoticed) }

func testTamperedActivationIsNoticed(t *testing.T, pair pairing) {
	head, stage := pair(t)
	transporttest.Tamper(t, head.Peer(), func(frame []byte) {
		if transport.Kind(int32(binary.LittleEndian.Uint32(frame[4:]))) == transport.KindActivation {
			frame[len(frame)-1] ^= 0x10
		}
	})
	a := transport.NewActivation(4)
	copy(a.Hidden, []float32{1, 2, 3, 4})
	a.Seal()
	if err := head.Send(a); err != nil {
		t.Fatal(err)
	}
	if !a.Intact() {
		t.Error("the sender's own memory was changed")
	}
	if got := recv(t, stage).(*transport.Activation); got.Intact() {
		t.Error("a flipped bit passes")
	}
	if err := stage.Send(a); err != nil {
		t.Fatal(err)
	}
	if got := recv(t, head).(*transport.Activation); !got.Intact() {
		t.Error("the other direction is touched too")
	}
}

func TestSlowAndLossyNetwork(t *testing.T) {
	t.Parallel()
	head, stage := transporttest.Identity(t), transporttest.Identity(t)
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	network := transporttest.NewNetwork(t, addr.Host)
	addr.Host = network.Addr()
	network.Delay(5 * time.Millisecond)
	dialled, accepted := transporttest.Connect(t, l, addr, head)
	network.Lose(0.05)
	go func() {
		for i := range 20 {
			a := transport.NewActivation(5000)
			for j := range a.Hidden {
				a.Hidden[j] = float32(i + j)
			}
			a.TokenIdx = int32(i)
			a.Seal()
			dialled.Send(a)
		}
		dialled.Close(fmt.Errorf("all sent"))
	}()
	for i := range 20 {
		if a := recv(t, accepted).(*transport.Activation); !a.Intact() || a.TokenIdx != int32(i) {
			t.Fatalf("activation %d arrived as %d, intact %v", i, a.TokenIdx, a.Intact())
		}
	}
	if accepted.RTT() < 4*time.Millisecond {
		t.Errorf("round trip is %v", accepted.RTT())
	}
	// The farewell itself is one packet, sent once: it may be lost, and then the silence is noticed.
	_, err := accepted.Recv(within(t, 10*time.Second))
	closedAs(t, err, func(c *transport.ClosedError) bool {
		return c.Reason == "all sent" || c.Timeout || errors.Is(err, io.EOF)
	})
}

// A hundred links, ended in every way, leave no goroutine and no socket behind.
func TestNothingIsLeftBehind(t *testing.T) {
	head, stage, stranger := transporttest.Identity(t), transporttest.Identity(t), transporttest.Identity(t)
	l, err := transport.Listen(transport.ListenOptions{Addr: "127.0.0.1:0", Identity: stage, Authorize: transporttest.Allow(head)})
	if err != nil {
		t.Fatal(err)
	}
	addr := transport.PeerAddr{Host: l.Addr().String(), Fingerprint: stage.Fingerprint()}
	before := runtime.NumGoroutine()
	var served sync.WaitGroup
	served.Go(func() {
		for {
			link, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			served.Go(func() {
				for {
					f, err := link.Recv(context.Background())
					if err != nil {
						link.Close(nil)
						return
					}
					link.Send(f)
				}
			})
		}
	})
	for i := range 100 {
		if i%10 == 9 {
			if _, err := transport.Dial(context.Background(), addr, transport.DialOptions{Identity: stranger}); err == nil {
				t.Fatal("a stranger was let in")
			}
			continue
		}
		link, err := transport.Dial(context.Background(), addr, transport.DialOptions{Identity: head})
		if err != nil {
			t.Fatal(err)
		}
		if err := link.Send(&transport.Token{ID: int32(i)}); err != nil {
			t.Fatal(err)
		}
		recv(t, link)
		switch i % 3 {
		case 0:
			link.Close(nil)
		case 1:
			link.Close(errors.New("reason"))
		case 2:
			link.RawWrite([]byte("no frame at all"))
			<-link.Done()
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	served.Wait()
	deadline := time.Now().Add(3 * time.Second)
	for runtime.NumGoroutine() > before-1 && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
	// The listener itself had goroutines in the first count.
	if n := runtime.NumGoroutine(); n > before {
		stacks := make([]byte, 1<<16)
		t.Errorf("%d goroutines, there were %d\n%s", n, before, stacks[:runtime.Stack(stacks, true)])
	}
}
