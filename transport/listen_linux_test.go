package transport

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"
)

// A peer that does not answer the offer of a lane keeps no other waiting.
func TestSilentPeerKeepsNobodyWaiting(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(ListenOptions{Addr: "127.0.0.1:0", Identity: id, Authorize: func(PublicKey) bool { return true }, CarrierOptions: CarrierOptions{Lane: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), laneTimeout*9/10)
	defer cancel()
	links := make(chan *Link, 1)
	go func() {
		link, _ := l.Accept(ctx)
		links <- link
	}()

	e, err := newEndpoint(nil, id, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	cert, _, err := id.material()
	if err != nil {
		t.Fatal(err)
	}
	silent, err := e.quic.Dial(ctx, l.Addr(), tlsConfig(cert, func(PublicKey) error { return nil }), config(time.Second, time.Second, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.AcceptStream(ctx); err != nil { // by then the offer is made
		t.Fatal(err)
	}
	dialled, err := Dial(ctx, PeerAddr{Host: l.Addr().String(), Fingerprint: id.Fingerprint()}, DialOptions{Identity: id, CarrierOptions: CarrierOptions{Lane: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close(nil)
	if link := <-links; link == nil || link.Addr() == silent.LocalAddr().String() {
		t.Errorf("accepted %v", link)
	}
}
