package stage_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/transport/transporttest"
	"dchain/units"
)

// copyModel copies a model folder of testdata, so that a test can change it.
func copyModel(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} {
		src, err := os.Open(filepath.Join(testdata, name, file))
		if err != nil {
			t.Fatal(err)
		}
		dst, err := os.Create(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(dst, src); err != nil {
			t.Fatal(err)
		}
		src.Close()
		if err := dst.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// flipBit changes one bit of a tensor's element at index in a model folder.
func flipBit(t testing.TB, dir, tensor string, index int64, bit uint) {
	t.Helper()
	m, err := inspect.Open(context.Background(), dir, inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at, ok := m.Index.Tensors[tensor]
	m.Close()
	if !ok {
		t.Fatalf("no tensor %q", tensor)
	}
	f, err := os.OpenFile(filepath.Join(dir, at.File), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	offset := at.Begin + 2*index + int64(bit/8)
	if _, err := f.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1 << (bit % 8)
	if _, err := f.WriteAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
}

func openFolder(t testing.TB, dir string) *inspect.Model {
	t.Helper()
	m, err := inspect.Open(context.Background(), dir, inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestFlippedWeightIsNamed: one changed bit in one weight of one stage shows as a difference that names the stage.
func TestFlippedWeightIsNamed(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	dir := copyModel(t, "tales-qwen2")
	flipBit(t, dir, "model.layers.4.mlp.down_proj.weight", 5000, 13)
	bad := openFolder(t, dir)
	if bad.Source.ID() != m.Source.ID() {
		t.Fatal("the change is meant to escape the fingerprint")
	}
	ranges := cutAt(8, 2, 5)
	c := startCluster(t, m, nil, 1)
	for i, rng := range ranges {
		c.serve([]*inspect.Model{m, bad, m}[i], rng, nil)
	}
	rec, reference := stage.NewRecorder(), stage.NewRecorder()
	o := c.options()
	o.Trace = rec.Trace
	h, _ := c.mustConnect(ranges, o)
	observed, _ := localHead(t, m, localOptions{mode: units.Int8, context: 256, cuts: ranges, trace: reference.Trace})
	opts := stage.GenerateOptions{Prompt: longPrompt(t, m, 30), MaxTokens: 8}
	diff, _, err := stage.Compare(context.Background(), stage.Run{Head: h, Recorder: rec}, stage.Run{Head: observed, Recorder: reference}, opts)
	if err != nil {
		t.Fatal(err)
	}
	if diff == nil || diff.Layers != ranges[1] || !strings.Contains(diff.Error(), "layers 3-5") {
		t.Fatalf("difference %v does not name layers 3-5", diff)
	}
}

// TestOtherRevisionIsRefused: a stage whose weights differ where the fingerprint looks is refused by name.
func TestOtherRevisionIsRefused(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	dir := copyModel(t, "tales-qwen2")
	flipBit(t, dir, "model.layers.4.mlp.down_proj.weight", 5, 3)
	other := openFolder(t, dir)
	c := startCluster(t, m, nil, 1)
	c.serve(m, plan.Range{First: 0, Last: 3}, nil)
	c.serve(other, plan.Range{First: 4, Last: 7}, nil)
	_, _, err := c.connect(cutAt(8, 3), c.options())
	var hop *stage.HopError
	if !errors.Is(err, stage.ErrModelMismatch) || !errors.As(err, &hop) || hop.Hop != 2 {
		t.Fatalf("error %v does not name hop 2 as holding another model", err)
	}
}

// TestTamperedActivation: a bit flipped on the wire, by either neighbour, ends in an error that names the hop.
func TestTamperedActivation(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	for _, tt := range []struct {
		name string
		to   int // stage the tampered frames go to; 0 = the head
		hop  int
	}{{"head to 1", 1, 1}, {"1 to 2", 2, 2}, {"2 to head", 0, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			ranges := cutAt(8, 3)
			c := startCluster(t, m, ranges, 1)
			h, _ := c.mustConnect(ranges, c.options())
			target := c.head.PublicKey()
			if tt.to > 0 {
				target = c.ids[tt.to-1].PublicKey()
			}
			var done atomic.Bool
			transporttest.Tamper(t, target, func(frame []byte) {
				if kind := int32(binary.LittleEndian.Uint32(frame[4:])); kind == int32(transport.KindActivation) && !done.Swap(true) {
					frame[len(frame)-9] ^= 4
				}
			})
			_, err := h.Generate(context.Background(), stage.GenerateOptions{Prompt: []int{1, 2, 3}, MaxTokens: 4})
			var hop *stage.HopError
			if !errors.Is(err, stage.ErrActivation) || !errors.As(err, &hop) || hop.Hop != tt.hop {
				t.Fatalf("error %v does not name hop %d", err, tt.hop)
			}
		})
	}
}

// TestEarlyHop: a stage that connects before its ring is known here gets no hello, so that it tries again. Keys that are
// let in anyway, as those of stages that are heads too, must not get further.
func TestEarlyHop(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	c := startCluster(t, m, []plan.Range{{First: 4, Last: 7}}, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	hello := local(m)
	hello.Role, hello.Ring[0] = transport.RoleHop, 1
	f, err := c.greet(ctx, hello).Recv(ctx)
	if err == nil || !strings.Contains(err.Error(), "unknown ring") {
		t.Fatalf("got %T, error %v: want a refusal", f, err)
	}
}

// TestMuteNetwork: packets that vanish between head and stage, or between stages, end in an error within 10 s.
func TestMuteNetwork(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	ranges := cutAt(8, 3)
	c := startCluster(t, m, ranges, 1)
	net := transporttest.NewNetwork(t, c.addrs[1].Host)
	c.addrs[1].Host = net.Addr()
	h, _ := c.mustConnect(ranges, c.options())
	ctx := context.Background()
	seq, err := h.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer seq.Close()
	if _, err := seq.Forward(ctx, []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	net.Mute(true)
	start := time.Now()
	_, err = seq.Forward(ctx, []int{3})
	var hop *stage.HopError
	if !errors.As(err, &hop) || hop.Hop != 2 || hop.Last != 1 {
		t.Fatalf("error %v does not name hop 2 and position 1", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("noticed after %v", took)
	}
	waitFor(t, "stage 1 to drop the ring", func() bool { return c.servers[0].Rings() == 0 })
}

// TestMuteStage: a peer that is connected but never answers is named within 10 s.
func TestMuteStage(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	c := startCluster(t, m, []plan.Range{{First: 0, Last: 3}}, 1)
	id := newIdentity(t)
	l, err := transport.Listen(transport.ListenOptions{Addr: "127.0.0.1:0", Identity: id, Authorize: func(transport.PublicKey) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	hello := local(m)
	hello.Role, hello.First, hello.Last, hello.Context, hello.MaxSessions = transport.RoleStage, 4, 7, 256, 1
	go func() {
		for {
			link, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go impersonate(link, hello)
		}
	}()
	c.addrs = append(c.addrs, transport.PeerAddr{Host: l.Addr().String(), Fingerprint: id.Fingerprint()})
	start := time.Now()
	_, _, err = c.connect(cutAt(8, 3), c.options())
	var hop *stage.HopError
	if !errors.As(err, &hop) || hop.Hop != 2 || hop.Phase != "waiting" {
		t.Fatalf("error %v does not name hop 2 as the one waited for", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("noticed after %v", took)
	}
}

// impersonate greets, says ready, and then swallows everything.
func impersonate(link *transport.Link, hello transport.Hello) {
	for {
		f, err := link.Recv(context.Background())
		if err != nil {
			link.Close(nil)
			return
		}
		switch f := f.(type) {
		case *transport.Hello:
			link.Send(&hello)
		case *transport.Assignment:
			link.Send(&transport.Ready{Ring: f.Ring, Stage: f.Stage, Fingerprint: f.Fingerprint})
		}
	}
}

// TestRelayWhereUnreachable: a stage its predecessor cannot reach is fed through the head by route auto, refused by ring.
func TestRelayWhereUnreachable(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	ranges := cutAt(8, 3)
	want, _ := localHead(t, m, localOptions{mode: units.Int8})
	opts := stage.GenerateOptions{Prompt: []int{9, 8, 7}, MaxTokens: 6}
	ref, err := want.Generate(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	start := func() *cluster {
		c := startCluster(t, m, nil, 1)
		// The first stage trusts another key for its successor's address, so that its dial fails at once.
		c.serve(m, ranges[0], func(o *stage.ServerOptions) { o.Dial.Identity = newIdentity(t) })
		c.serve(m, ranges[1], nil)
		return c
	}
	c := start()
	o := c.options()
	h, ring := c.mustConnect(ranges, o)
	if r := ring.Relayed(); len(r) != 1 || r[0] != 1 {
		t.Fatalf("relayed hops %v, want 1", r)
	}
	res, err := h.Generate(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(res.IDs, ref.IDs) {
		t.Errorf("relayed ids %v, want %v", res.IDs, ref.IDs)
	}
	c = start()
	o = c.options()
	o.Route = stage.RouteRing
	_, _, err = c.connect(ranges, o)
	var hop *stage.HopError
	if !errors.As(err, &hop) || hop.Hop != 1 || !strings.Contains(err.Error(), "--route auto") {
		t.Errorf("error %v does not name hop 1 and the way out", err)
	}
}

// TestEarlyActivation: rows that come while the stage still loads are refused.
func TestEarlyActivation(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	c := startCluster(t, m, nil, 1)
	sent := make(chan struct{})
	dev := &slowDevice{Device: newDevice(t, 1), begin: func() { <-sent }}
	c.serve(m, plan.None, func(o *stage.ServerOptions) { o.Device = dev })
	t.Cleanup(func() { close(sent) })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dial := func(hello transport.Hello) *transport.Link {
		link := c.greet(ctx, hello)
		if _, err := link.Recv(ctx); err != nil {
			t.Fatal(err)
		}
		return link
	}
	hello := local(m)
	head := dial(hello)
	a := &transport.Assignment{Stage: 1, Stages: 1, Fingerprint: hello.Fingerprint, Last: int32(m.Spec.Layers - 1), Context: 8, Sessions: 1, PrevFingerprint: c.head.Fingerprint()}
	if err := head.Send(a); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the loading", func() bool { return dev.matrices.Load() > 0 })
	hello.Role = transport.RoleHop
	f := transport.NewActivation(m.Spec.Hidden)
	f.Seq, f.NextIndex, f.ModelHash = 1, 1, binary.LittleEndian.Uint32(hello.Fingerprint[:])
	f.Seal()
	if err := dial(hello).Send(f); err != nil {
		t.Fatal(err)
	}
	got, err := head.Recv(ctx)
	fault, ok := got.(*transport.Fault)
	if !ok || !strings.Contains(fault.Text, "before the stage was ready") {
		t.Errorf("got %+v, error %v", got, err)
	}
}
