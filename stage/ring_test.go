package stage_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
)

func newIdentity(t testing.TB) *transport.Identity {
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

// cluster is a head identity and stages serving on loopback in this process.
type cluster struct {
	t       testing.TB
	model   *inspect.Model
	head    *transport.Identity
	servers []*stage.Server
	addrs   []transport.PeerAddr
	ids     []*transport.Identity
	context int
	session int
	edit    func(*stage.ServerOptions) // of every stage, nil for none
	table   bool                       // the head's device embeds
}

// greet dials the first stage with the head's key and says hello, of which the answer is still to come.
func (c *cluster) greet(ctx context.Context, hello transport.Hello) *transport.Link {
	c.t.Helper()
	link, err := transport.Dial(ctx, c.addrs[0], transport.DialOptions{Identity: c.head})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { link.Close(nil) })
	if err := link.Send(&hello); err != nil {
		c.t.Fatal(err)
	}
	return link
}

// startCluster serves each range on its own server; an empty range waits for an assignment.
func startCluster(t testing.TB, m *inspect.Model, ranges []plan.Range, sessions int) *cluster {
	t.Helper()
	c := &cluster{t: t, model: m, head: newIdentity(t), context: 256, session: sessions}
	for _, rng := range ranges {
		c.serve(m, rng, nil)
	}
	return c
}

func local(m *inspect.Model) transport.Hello {
	return transport.Hello{
		Wire: transport.WireVersion, Numerics: units.NumericsVersion, Build: "test", Model: m.Source.ID(),
		Fingerprint: m.Fingerprint(units.Int8.String(), units.NumericsVersion), Layers: int32(m.Spec.Layers), Hidden: int32(m.Spec.Hidden), Last: -1,
	}
}

// serve starts one more stage; edit, which may be nil, changes its options.
func (c *cluster) serve(m *inspect.Model, rng plan.Range, edit func(*stage.ServerOptions)) *stage.Server {
	c.t.Helper()
	id := newIdentity(c.t)
	opts := stage.ServerOptions{
		Device: newDevice(c.t, 1),
		Listen: transport.ListenOptions{Addr: "127.0.0.1:0", Identity: id, Authorize: func(k transport.PublicKey) bool { return k.Equal(c.head.PublicKey()) }},
		Dial:   transport.DialOptions{Identity: id},
		Local:  transport.Hello{Wire: transport.WireVersion, Numerics: units.NumericsVersion, Build: "test"},
		Model:  m, Range: rng, Mode: units.Int8, Context: c.context, Sessions: c.session,
	}
	for _, edit := range []func(*stage.ServerOptions){c.edit, edit} {
		if edit != nil {
			edit(&opts)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := stage.NewServer(ctx, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	c.servers = append(c.servers, s)
	c.ids = append(c.ids, id)
	c.addrs = append(c.addrs, transport.PeerAddr{Host: s.Addr().String(), Fingerprint: id.Fingerprint()})
	return s
}

func (c *cluster) options() stage.RingOptions {
	return stage.RingOptions{
		Peers: c.addrs, Dial: transport.DialOptions{Identity: c.head}, Local: local(c.model), Model: c.model, ModelName: "builtin",
		Mode: units.Int8, Context: c.context, Sessions: c.session, Route: stage.RouteAuto,
	}
}

// connect dials the stages and builds a head on the ring.
func (c *cluster) connect(ranges []plan.Range, opts stage.RingOptions) (*stage.Head, *stage.Ring, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	peers, err := stage.DialPeers(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	ring, err := stage.NewRing(ctx, peers, ranges, opts)
	if err != nil {
		return nil, nil, err
	}
	c.t.Cleanup(func() { ring.Close() })
	w, err := stage.Load(ctx, c.model, newDevice(c.t, 1), stage.LoadOptions{Range: plan.None, Readout: true})
	if err != nil {
		return nil, nil, err
	}
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{ring}})
	return h, ring, err
}

func (c *cluster) mustConnect(ranges []plan.Range, opts stage.RingOptions) (*stage.Head, *stage.Ring) {
	c.t.Helper()
	h, ring, err := c.connect(ranges, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	return h, ring
}

// TestRingIsUnsplit: rings over real QUIC give the unsplit run's ids and boundary hashes, by every route.
func TestRingIsUnsplit(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	opts := stage.GenerateOptions{Prompt: longPrompt(t, m, 80), MaxTokens: 16}
	reference := stage.NewRecorder()
	observed, _ := localHead(t, m, localOptions{mode: units.Int8, context: 256, cuts: everyLayer(m.Spec.Layers), trace: reference.Trace})
	for _, ranges := range [][]plan.Range{cutAt(8), cutAt(8, 3), cutAt(8, 0, 4), everyLayer(8)} {
		for _, route := range []stage.Route{stage.RouteRing, stage.RouteStar} {
			c := startCluster(t, m, ranges, 2)
			rec := stage.NewRecorder()
			ring := c.options()
			ring.Route, ring.Trace = route, rec.Trace
			h, r := c.mustConnect(ranges, ring)
			if got := len(r.Relayed()); (route == stage.RouteStar) != (got == len(ranges)-1 && got > 0) && len(ranges) > 1 {
				t.Fatalf("route %s over %d stages relays %d hops", route, len(ranges), got)
			}
			diff, got, err := stage.Compare(context.Background(), stage.Run{Head: h, Recorder: rec}, stage.Run{Head: observed, Recorder: reference}, opts)
			if err != nil {
				t.Fatal(err)
			}
			if diff != nil {
				t.Errorf("stages %v, route %s: %v", ranges, route, diff)
			}
			if len(got.IDs) != 16 {
				t.Errorf("stages %v, route %s: %d ids", ranges, route, len(got.IDs))
			}
		}
	}
}

// TestRingLooks: a head that looks out for what comes back gives the unsplit ids, and is not kept from seeing that it is told to end or
// that the ring has.
func TestRingLooks(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	near, _ := localHead(t, m, localOptions{mode: units.Int8, context: 256})
	c := startCluster(t, m, cutAt(8, 3), 2)
	opts := c.options()
	opts.Dial.Poll = func() time.Duration { return time.Second }
	h, ring := c.mustConnect(cutAt(8, 3), opts)
	g := stage.GenerateOptions{Prompt: longPrompt(t, m, 80), MaxTokens: 8}
	want, err := near.Generate(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Generate(t.Context(), g); err != nil || !slices.Equal(got.IDs, want.IDs) {
		t.Errorf("ids %v (%v), the unsplit run gives %v", got.IDs, err, want.IDs)
	}
	s, err := ring.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
	if _, err := s.Pull(ctx); !errors.Is(err, enough) {
		t.Errorf("told to end while nothing comes: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, func() { ring.Close() })
	if _, err := s.Pull(t.Context()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("in a ring that ends: %v", err)
	}
}

// TestAssignedRing: stages without layers load what the head assigns, and another assignment replaces it.
func TestAssignedRing(t *testing.T) {
	m := openModel(t, "tales-llama")
	want, _ := localHead(t, m, localOptions{mode: units.Int8})
	opts := stage.GenerateOptions{Prompt: []int{5, 6, 7}, MaxTokens: 8}
	ref, err := want.Generate(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, m, []plan.Range{plan.None, plan.None}, 1)
	for _, ranges := range [][]plan.Range{cutAt(6, 3), cutAt(6, 0)} {
		h, ring := c.mustConnect(ranges, c.options())
		res, err := h.Generate(context.Background(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(res.IDs, ref.IDs) {
			t.Errorf("ranges %v: ids %v, want %v", ranges, res.IDs, ref.IDs)
		}
		ring.Close()
		waitFor(t, "the stages to leave the ring", func() bool { return c.servers[0].Rings() == 0 && c.servers[1].Rings() == 0 })
	}
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

// TestManySessionsLeaveNothing: sessions one after another and several at once free every slot and goroutine.
func TestManySessionsLeaveNothing(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	ranges := cutAt(8, 3)
	c := startCluster(t, m, ranges, 8)
	h, ring := c.mustConnect(ranges, c.options())
	ctx := context.Background()
	one := func(i int) ([]int, error) {
		res, err := h.Generate(ctx, stage.GenerateOptions{Prompt: []int{10 + i, 20}, MaxTokens: 3})
		return res.IDs, err
	}
	if _, err := one(0); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	want := map[int][]int{}
	for i := range 100 {
		ids, err := one(i % 8)
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		if w, ok := want[i%8]; ok && !slices.Equal(w, ids) {
			t.Fatalf("session %d gives %v, before %v", i, ids, w)
		}
		want[i%8] = ids
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 4 {
				if ids, err := one(i); err != nil || !slices.Equal(ids, want[i]) {
					t.Errorf("session %d beside others: %v, %v, want %v", i, ids, err, want[i])
				}
			}
		})
	}
	wg.Wait()
	for i, s := range c.servers {
		if n := s.Engine().SessionsInUse(); n != 0 {
			t.Errorf("stage %d holds %d sessions", i+1, n)
		}
	}
	if n := ring.SessionsOpen(); n != 0 {
		t.Errorf("the ring holds %d sessions", n)
	}
	waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestSessionsExhausted: one session too many is refused by name and hurts no other.
func TestSessionsExhausted(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	ranges := cutAt(8, 3)
	c := startCluster(t, m, ranges, 1)
	h, _ := c.mustConnect(ranges, c.options())
	ctx := context.Background()
	seq, err := h.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seq.Forward(ctx, []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	_, err = h.Generate(ctx, stage.GenerateOptions{Prompt: []int{3}, MaxTokens: 1})
	if !errors.Is(err, stage.ErrSessions) {
		t.Fatalf("a second session on a stage of one: %v", err)
	}
	if _, err := seq.Forward(ctx, []int{3}); err != nil {
		t.Fatalf("the first session after the second was refused: %v", err)
	}
	seq.Close()
	if _, err := h.Generate(ctx, stage.GenerateOptions{Prompt: []int{3}, MaxTokens: 1}); err != nil {
		t.Fatalf("after the first session was closed: %v", err)
	}
}

// TestLostStage: a stage that goes away ends in an error that names it, within bounds, and the others stay up.
func TestLostStage(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	ranges := cutAt(8, 2, 5)
	c := startCluster(t, m, ranges[:2], 1)
	ctx, kill := context.WithCancel(context.Background())
	id := newIdentity(t)
	s, err := stage.NewServer(ctx, stage.ServerOptions{
		Device: newDevice(t, 1), Model: m, Range: ranges[2], Mode: units.Int8, Context: 256, Sessions: 1,
		Listen: transport.ListenOptions{Addr: "127.0.0.1:0", Identity: id, Authorize: func(transport.PublicKey) bool { return true }},
		Dial:   transport.DialOptions{Identity: id}, Local: transport.Hello{Wire: transport.WireVersion, Numerics: units.NumericsVersion},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	c.addrs = append(c.addrs, transport.PeerAddr{Host: s.Addr().String(), Fingerprint: id.Fingerprint()})
	h, _ := c.mustConnect(ranges, c.options())
	seq, err := h.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := seq.Forward(context.Background(), []int{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	kill()
	<-ended
	start := time.Now()
	_, err = seq.Forward(context.Background(), []int{4})
	for err == nil {
		_, err = seq.Forward(context.Background(), []int{4})
	}
	var hop *stage.HopError
	if !errors.As(err, &hop) || hop.Hop != 3 || hop.Last < 2 {
		t.Fatalf("error %v (%T) does not name hop 3 and the last good position", err, err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v to notice", took)
	}
	seq.Close()
	waitFor(t, "the other stages to drop the ring", func() bool { return c.servers[0].Rings() == 0 && c.servers[1].Rings() == 0 })
	waitFor(t, "stage 1 to give back the session", func() bool { return c.servers[0].Engine().SessionsInUse() == 0 })
}

// TestRefusals: peers that cannot work together are refused before any activation, by name.
func TestRefusals(t *testing.T) {
	qwen, llama := openModel(t, "tales-qwen2"), openModel(t, "tales-llama")
	for _, tt := range []struct {
		name  string
		edit  func(c *cluster, o *stage.RingOptions)
		wants string
	}{
		{"numerics", func(_ *cluster, o *stage.RingOptions) { o.Local.Numerics++ }, "numerics version"},
		{"wire", func(_ *cluster, o *stage.RingOptions) { o.Local.Wire++ }, "wire version"},
		{"weights", func(_ *cluster, o *stage.RingOptions) { o.Mode = units.Int8x2 }, "int8 weights"},
		{"model", func(_ *cluster, o *stage.RingOptions) { o.Local = local(llama) }, "another model or revision"},
		{"context", func(_ *cluster, o *stage.RingOptions) { o.Context = 4096 }, "--ctx 4096"},
		{"sessions", func(_ *cluster, o *stage.RingOptions) { o.Sessions = 9 }, "--max-sessions 9"},
		{"unauthorised", func(c *cluster, o *stage.RingOptions) { o.Dial.Identity = newIdentity(c.t) }, "authoris"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := startCluster(t, qwen, []plan.Range{{First: 0, Last: 7}}, 1)
			o := c.options()
			tt.edit(c, &o)
			_, _, err := c.connect([]plan.Range{{First: 0, Last: 7}}, o)
			var hop *stage.HopError
			if !errors.As(err, &hop) || !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("error %v (%T) does not say %q", err, err, tt.wants)
			}
			// The stage is there for the next head.
			c.mustConnect([]plan.Range{{First: 0, Last: 7}}, c.options())
		})
	}
}
