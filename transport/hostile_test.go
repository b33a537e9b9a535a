package transport_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"testing"
	"time"

	"dchain/transport"
	"dchain/transport/transporttest"
)

// Bytes that are no frame end the link, before anything of the announced size is allocated.
func TestHostileBytes(t *testing.T) {
	frame := func(length uint32, kind transport.Kind, body ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, length)
		b = binary.LittleEndian.AppendUint32(b, uint32(kind))
		return append(b, body...)
	}
	for name, b := range map[string][]byte{
		"huge length":            frame(math.MaxUint32, transport.KindActivation),
		"huge control length":    frame(transport.MaxControl+1, transport.KindToken),
		"length zero":            frame(0, transport.KindToken),
		"activation over bound":  frame(1<<20+28, transport.KindActivation),
		"ragged activation":      frame(29, transport.KindActivation),
		"unknown kind":           frame(4, -99),
		"fragment":               frame(4, transport.KindFragment),
		"bad field":              frame(19, transport.KindToken, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff),
		"text of another planet": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			head, stage := transporttest.Identity(t), transporttest.Identity(t)
			l, err := transport.Listen(transport.ListenOptions{Addr: "127.0.0.1:0", Identity: stage,
				Authorize: transporttest.Allow(head), MaxFrame: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			addr := transport.PeerAddr{Host: l.Addr().String(), Fingerprint: stage.Fingerprint()}
			dialled, accepted := transporttest.Connect(t, l, addr, head)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := dialled.RawWrite(b); err != nil {
				t.Fatal(err)
			}
			_, err = accepted.Recv(within(t, 5*time.Second))
			runtime.ReadMemStats(&after)
			closedAs(t, err, func(c *transport.ClosedError) bool { return c.Code == transport.CloseProtocol && !c.Remote })
			if !errors.Is(err, transport.ErrFrame) {
				t.Error("the error does not match ErrFrame")
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
				t.Errorf("%d bytes were allocated", n)
			}
			_, err = dialled.Recv(within(t, 5*time.Second))
			closedAs(t, err, func(c *transport.ClosedError) bool { return c.Code == transport.CloseProtocol && c.Remote })
		})
	}
}

func TestCutFrame(t *testing.T) {
	b, err := transport.Marshal(&transport.Token{Text: "cut"})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 4, 8, len(b) - 1} {
		head, stage := transporttest.Pair(t)
		if err := head.RawWrite(b[:n]); err != nil {
			t.Fatal(err)
		}
		head.RawFinish()
		_, err := stage.Recv(within(t, 5*time.Second))
		if errors.Is(err, io.EOF) || !errors.Is(err, transport.ErrFrame) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		closedAs(t, err, func(c *transport.ClosedError) bool { return c.Code == transport.CloseProtocol })
	}
}
