package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"testing"
	"time"

	"dchain/transport"
	"dchain/transport/transporttest"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// pairing makes the two ends of a link.
type pairing func(t testing.TB) (dialled, accepted *transport.Link)

// everyCarrier runs a test on links whose frames go in QUIC packets, and on lanes that sleep and that poll.
func everyCarrier(t *testing.T, test func(t *testing.T, pair pairing)) {
	looks := func() time.Duration { return 2 * time.Millisecond }
	for name, lane := range map[string]transport.CarrierOptions{"stream": {}, "polled stream": {Poll: looks}, "lane": {Lane: true}, "polled lane": {Lane: true, Poll: looks}} {
		t.Run(name, func(t *testing.T) {
			if lane.Lane && runtime.GOOS != "linux" {
				t.Skip("lanes are for Linux")
			}
			test(t, func(t testing.TB) (*transport.Link, *transport.Link) {
				dialled, accepted := transporttest.Pair(t, lane)
				if dialled.OnLane() != lane.Lane || accepted.OnLane() != lane.Lane {
					t.Fatal("the link is of another kind")
				}
				return dialled, accepted
			})
		})
	}
}

func recv(t *testing.T, l *transport.Link) transport.Frame {
	t.Helper()
	f, err := l.Recv(within(t, 5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFramesCrossBothWays(t *testing.T) { everyCarrier(t, testFramesCrossBothWays) }

func testFramesCrossBothWays(t *testing.T, pair pairing) {
	head, stage := pair(t)
	for _, f := range samples() {
		for _, ends := range [][2]*transport.Link{{head, stage}, {stage, head}} {
			if err := ends[0].Send(f); err != nil {
				t.Fatalf("%s: %v", f.Kind(), err)
			}
			got := recv(t, ends[1])
			if !sameFrame(got, f) {
				t.Errorf("%s: got %+v, want %+v", f.Kind(), got, f)
			}
		}
	}
}

// sameFrame compares what frames say; an activation's spare memory is no part of that.
func sameFrame(a, b transport.Frame) bool {
	x, ok := a.(*transport.Activation)
	y, ok2 := b.(*transport.Activation)
	if ok && ok2 {
		return x.Seq == y.Seq && x.TokenIdx == y.TokenIdx && x.NextIndex == y.NextIndex &&
			x.ActHash == y.ActHash && x.ModelHash == y.ModelHash && reflect.DeepEqual(x.Hidden, y.Hidden)
	}
	return reflect.DeepEqual(a, b)
}

func TestCloseDeliversEverythingAndTheReason(t *testing.T) {
	everyCarrier(t, testCloseDeliversEverythingAndTheReason)
}

func testCloseDeliversEverythingAndTheReason(t *testing.T, pair pairing) {
	head, stage := pair(t)
	const frames = 50
	go func() {
		for i := range frames {
			stage.Send(&transport.Token{Seq: 1, TokenIdx: int32(i), Text: "x"})
		}
		stage.Close(errors.New("disk is full"))
	}()
	for i := range frames {
		if f := recv(t, head).(*transport.Token); f.TokenIdx != int32(i) {
			t.Fatalf("token %d came as number %d", f.TokenIdx, i)
		}
	}
	_, err := head.Recv(within(t, 5*time.Second))
	var closed *transport.ClosedError
	if !errors.As(err, &closed) || !closed.Remote || closed.Reason != "disk is full" || errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := head.Send(&transport.Token{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("sending on a closed link: %v", err)
	}
	if err := stage.Err(); err == nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("the closing side's Err is %v", err)
	}
}

func TestCloseWithoutReasonIsEOF(t *testing.T) { everyCarrier(t, testCloseWithoutReasonIsEOF) }

func testCloseWithoutReasonIsEOF(t *testing.T, pair pairing) {
	head, stage := pair(t)
	go head.Close(nil)
	if _, err := stage.Recv(within(t, 5*time.Second)); !errors.Is(err, io.EOF) || !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
	<-stage.Done()
}
