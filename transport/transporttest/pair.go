// Package transporttest offers what a test needs that has to do with links: connected pairs, throwaway identities, a bad
// network, and frames damaged on their way.
package transporttest

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"dchain/transport"
	"dchain/transport/internal/tamper"
)

// wait bounds what the helpers here wait for.
const wait = 10 * time.Second

// Identity makes a throwaway identity.
func Identity(t testing.TB) *transport.Identity {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	id, err := transport.NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Allow authorises exactly the given identities.
func Allow(ids ...*transport.Identity) func(transport.PublicKey) bool {
	return func(k transport.PublicKey) bool {
		for _, id := range ids {
			if id.PublicKey().Equal(k) {
				return true
			}
		}
		return false
	}
}

// Listen listens on a free loopback port until the test ends, and gives the address to dial. Lanes are at most one value.
func Listen(t testing.TB, id *transport.Identity, authorize func(transport.PublicKey) bool, lanes ...transport.CarrierOptions) (*transport.Listener, transport.PeerAddr) {
	t.Helper()
	l, err := transport.Listen(transport.ListenOptions{Addr: "127.0.0.1:0", Identity: id, Authorize: authorize, CarrierOptions: lane(lanes)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, transport.PeerAddr{Host: l.Addr().String(), Fingerprint: id.Fingerprint()}
}

// Connect dials a link to l at addr, as id, and returns both its ends; they are closed when the test ends.
func Connect(t testing.TB, l *transport.Listener, addr transport.PeerAddr, id *transport.Identity, lanes ...transport.CarrierOptions) (dialled, accepted *transport.Link) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	type result struct {
		link *transport.Link
		err  error
	}
	in := make(chan result, 1) // never closed: one value
	go func() {
		link, err := l.Accept(ctx)
		in <- result{link, err}
	}()
	dialled, err := transport.Dial(ctx, addr, transport.DialOptions{Identity: id, CarrierOptions: lane(lanes)})
	if err != nil {
		t.Fatal(err)
	}
	r := <-in
	if r.err != nil {
		dialled.Close(nil)
		t.Fatal(r.err)
	}
	t.Cleanup(func() { CloseBoth(dialled, r.link) })
	return dialled, r.link
}

// CloseBoth closes the two ends of a link. Close of one end waits a while for the other, so they are closed together.
func CloseBoth(a, b *transport.Link) {
	var wg sync.WaitGroup
	wg.Go(func() { a.Close(nil) })
	wg.Go(func() { b.Close(nil) })
	wg.Wait()
}

// Pair returns the two ends of a link over loopback between throwaway identities.
func Pair(t testing.TB, lanes ...transport.CarrierOptions) (dialled, accepted *transport.Link) {
	t.Helper()
	head, stage := Identity(t), Identity(t)
	l, addr := Listen(t, stage, Allow(head), lanes...)
	return Connect(t, l, addr, head, lanes...)
}

func lane(lanes []transport.CarrierOptions) transport.CarrierOptions {
	if len(lanes) == 0 {
		return transport.CarrierOptions{}
	}
	return lanes[0]
}

// Tamper lets change see, and change, the bytes of every frame (length, kind, body) that this process sends to peer, until
// the test ends. With a nil peer it sees the frames to everyone. Tests that use it must not run in parallel.
func Tamper(t testing.TB, peer transport.PublicKey, change func(frame []byte)) {
	t.Helper()
	hook := func(to ed25519.PublicKey, frame []byte) {
		if peer == nil || peer.Equal(to) {
			change(frame)
		}
	}
	if !tamper.Hook.CompareAndSwap(nil, &hook) {
		t.Fatal("transporttest: frames are being tampered with already")
	}
	t.Cleanup(func() { tamper.Hook.Store(nil) })
}
