package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/transport"
	"dchain/units"
)

// Route says how activations pass between stages.
type Route string

const (
	RouteAuto Route = "auto" // stage to stage, through the head where a stage cannot reach the next
	RouteRing Route = "ring" // stage to stage only
	RouteStar Route = "star" // everything through the head
)

// RingOptions describes the peers of a ring.
type RingOptions struct {
	Peers []transport.PeerAddr
	Dial  transport.DialOptions
	Local transport.Hello // what the head says of itself
	Model *inspect.Model
	// ModelName is what a stage without a model of its own is told to open.
	ModelName string
	Mode      units.WeightMode
	Context   int
	Sessions  int
	Route     Route
	ReturnAll bool
	Trace     func(Boundary) // nil: stages send no receipts
	// Limits; zero means the default.
	LoadTimeout time.Duration // all stages ready, 30 minutes
	Silence     time.Duration // no sign of life from the stage whose turn it is, 8 s
}

// Peer is a dialled stage.
type Peer struct {
	Addr  transport.PeerAddr
	Hello *transport.Hello
	link  *transport.Link
}

// Fixed says whether the stage was started with --layers.
func (p *Peer) Fixed() bool { return p.Hello.Last >= p.Hello.First }

// Range is the layers a fixed stage holds.
func (p *Peer) Range() plan.Range {
	return plan.Range{First: int(p.Hello.First), Last: int(p.Hello.Last)}
}

// Fingerprint is that of the key the stage has proven to hold.
func (p *Peer) Fingerprint() string { return transport.Fingerprint(p.link.Peer()) }

// RTT is the round-trip time measured on the link, 0 before the first measurement.
func (p *Peer) RTT() time.Duration { return p.link.RTT() }

// OnLane says whether the head reaches the stage on a local socket.
func (p *Peer) OnLane() bool { return p.link.OnLane() }

// DialPeers connects to every peer at once and exchanges hellos. On an error all links are closed.
func DialPeers(ctx context.Context, opts RingOptions) ([]*Peer, error) {
	peers := make([]*Peer, len(opts.Peers))
	g, ctx := errgroup.WithContext(ctx)
	for i, addr := range opts.Peers {
		g.Go(func() error {
			p, err := dialPeer(ctx, addr, opts)
			if err != nil {
				return &HopError{Hop: i + 1, Addr: addr.Host, Layers: plan.None, Phase: "connecting", Last: -1, Err: err}
			}
			peers[i] = p
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		ClosePeers(peers, err)
		return nil, err
	}
	return peers, nil
}

// helloTimeout bounds the exchange of hellos, which needs no computing.
const helloTimeout = 5 * time.Second

func dialPeer(ctx context.Context, addr transport.PeerAddr, opts RingOptions) (*Peer, error) {
	link, err := transport.Dial(ctx, addr, opts.Dial)
	if err != nil {
		return nil, err
	}
	hello, err := greet(ctx, link, &opts.Local)
	if err == nil {
		err = compatible(hello, opts)
	}
	if err != nil {
		link.Close(err)
		return nil, err
	}
	return &Peer{Addr: addr, Hello: hello, link: link}, nil
}

// greet sends the local hello and waits for the other side's.
func greet(ctx context.Context, link *transport.Link, local *transport.Hello) (*transport.Hello, error) {
	if err := link.Send(local); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloTimeout, errors.New("no hello within 5 s"))
	defer cancel()
	f, err := link.Recv(ctx)
	if err != nil {
		return nil, err
	}
	switch f := f.(type) {
	case *transport.Hello:
		return f, nil
	case *transport.Fault:
		return nil, hopFault{f}
	default:
		return nil, fmt.Errorf("expected a hello, got %T", f)
	}
}

// compatible checks what must be equal before any activation is sent.
func compatible(h *transport.Hello, opts RingOptions) error {
	switch {
	case h.Wire != opts.Local.Wire:
		return fmt.Errorf("the stage speaks wire version %d, this head %d: use the same dchain on both", h.Wire, opts.Local.Wire)
	case h.Numerics != opts.Local.Numerics:
		return fmt.Errorf("the stage computes with numerics version %d, this head with %d: %w", h.Numerics, opts.Local.Numerics, ErrModelMismatch)
	case h.Fingerprint == [32]byte{}:
		return nil // holds no model yet
	case units.WeightMode(h.Weights) != opts.Mode:
		return fmt.Errorf("the stage holds %v weights, this head asks for %v: %w", units.WeightMode(h.Weights), opts.Mode, ErrModelMismatch)
	case h.Fingerprint != opts.Local.Fingerprint:
		return fmt.Errorf("the stage holds another model or revision (%s) than this head (%s): %w", h.Model, opts.Local.Model, ErrModelMismatch)
	case h.TokenizerHash != opts.Local.TokenizerHash && h.TokenizerHash != [32]byte{} && opts.Local.TokenizerHash != [32]byte{}:
		return fmt.Errorf("the stage's model has another tokenizer than this head's: %w", ErrModelMismatch)
	case h.Last >= h.First && int(h.Context) < opts.Context:
		return fmt.Errorf("the stage holds a context of %s, %d are asked for: restart it with --ctx %d or ask for less", plan.Plural(int(h.Context), "position"), opts.Context, opts.Context)
	}
	return nil
}

// ReadsOut says whether the last of peers in layer order reads out, so that the head need not hold the readout.
func ReadsOut(peers []*Peer) bool { return len(peers) > 0 && peers[len(peers)-1].Hello.Readout }

// ClosePeers closes the links of peers that no ring took over.
func ClosePeers(peers []*Peer, reason error) {
	for _, p := range peers {
		if p != nil {
			p.link.Close(reason)
		}
	}
}

// Ring is a far Stage: peers in layer order, the first fed by the head, the last returning to it.
type Ring struct {
	opts   RingOptions
	reads  bool // the last stage reads out
	id     [16]byte
	hops   []*hop
	hidden int
	model  uint32 // model hash of every activation

	mu       sync.Mutex
	sessions map[int32]*ringSession
	nextSeq  int32
	err      error         // first failure; the ring is dead
	down     chan struct{} // closed by fail
	workers  sync.WaitGroup
	cancel   context.CancelFunc
}

// hop is one stage of the ring as the head sees it.
type hop struct {
	index int // 1-based
	peer  *Peer
	rng   plan.Range
	relay bool // its output comes back to the head, which passes it on

	mu     sync.Mutex
	seen   time.Time       // last frame of any kind
	passed map[int32]int32 // session -> last position the stage says it has passed on
}

func (h *hop) error(phase string, last int, err error) *HopError {
	return &HopError{Hop: h.index, Addr: h.peer.Addr.Host, Layers: h.rng, Phase: phase, Last: last, Err: err}
}

// NewRing assigns ranges[i] to peers[i], which must be in layer order, waits until every stage is ready, and sends a
// probe activation once around. It owns the peers' links from here on.
func NewRing(ctx context.Context, peers []*Peer, ranges []plan.Range, opts RingOptions) (*Ring, error) {
	if opts.Silence == 0 {
		opts.Silence = 8 * time.Second
	}
	if opts.LoadTimeout == 0 {
		opts.LoadTimeout = 30 * time.Minute
	}
	run, cancel := context.WithCancel(context.Background())
	r := &Ring{opts: opts, reads: ReadsOut(peers), id: newRingID(), hidden: opts.Model.Spec.Hidden, model: modelHash(opts.Local.Fingerprint), sessions: map[int32]*ringSession{}, down: make(chan struct{}), cancel: cancel}
	for i, p := range peers {
		r.hops = append(r.hops, &hop{index: i + 1, peer: p, rng: ranges[i], seen: time.Now(), passed: map[int32]int32{}})
	}
	if err := r.assign(ctx); err != nil {
		r.Close()
		return nil, err
	}
	for _, h := range r.hops {
		r.workers.Go(func() { r.read(run, h) })
	}
	if err := r.probe(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// assign sends every stage its part and waits for all to be ready; they load in parallel. The last stage is told first, so
// that it expects its predecessor by the time that one dials.
func (r *Ring) assign(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.opts.LoadTimeout, fmt.Errorf("not ready within %v", r.opts.LoadTimeout))
	defer cancel()
	for _, h := range slices.Backward(r.hops) {
		if err := h.peer.link.Send(r.assignment(h)); err != nil {
			return h.error("assigning", -1, err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, h := range r.hops {
		g.Go(func() error {
			f, err := h.peer.link.Recv(ctx)
			if err != nil {
				return h.error("loading", -1, err)
			}
			switch f := f.(type) {
			case *transport.Ready:
				return r.ready(h, f)
			case *transport.Fault:
				return h.error("loading", -1, hopFault{f})
			}
			return h.error("loading", -1, fmt.Errorf("expected ready, got %T", f))
		})
	}
	return g.Wait()
}

func (r *Ring) assignment(h *hop) *transport.Assignment {
	a := &transport.Assignment{
		Ring: r.id, Stage: int32(h.index), Stages: int32(len(r.hops)),
		Model: r.opts.ModelName, Fingerprint: r.opts.Local.Fingerprint, Weights: uint8(r.opts.Mode),
		First: int32(h.rng.First), Last: int32(h.rng.Last), Context: int32(r.opts.Context), Sessions: int32(r.opts.Sessions),
		Relay: r.opts.Route == RouteStar, ReturnAll: r.opts.ReturnAll, Trace: r.opts.Trace != nil,
	}
	if h.index > 1 {
		a.PrevFingerprint = transport.Fingerprint(r.hops[h.index-2].peer.link.Peer())
	}
	if h.index < len(r.hops) {
		next := r.hops[h.index].peer
		a.NextAddr, a.NextFingerprint = next.Addr.Host, transport.Fingerprint(next.link.Peer())
	}
	return a
}

func (r *Ring) ready(h *hop, f *transport.Ready) error {
	if f.Fingerprint != r.opts.Local.Fingerprint {
		return h.error("loading", -1, ErrModelMismatch)
	}
	h.relay = f.Relay
	if f.Relay && r.opts.Route == RouteRing {
		return h.error("connecting", -1, fmt.Errorf("it cannot reach the next stage (%s); open the port, or use --route auto", f.Detail))
	}
	return nil
}

// Relayed lists the hops whose output passes through the head, for the operator to see.
func (r *Ring) Relayed() []int {
	var hops []int
	for _, h := range r.hops {
		if h.relay && h.index < len(r.hops) {
			hops = append(hops, h.index)
		}
	}
	return hops
}

// probe sends one row around, so that ready means that an activation went through, and was read out where that is to be.
func (r *Ring) probe(ctx context.Context) error {
	s, err := r.open(true)
	if err != nil {
		return err
	}
	defer s.Close()
	row := make([]float32, r.hidden)
	for i := range row {
		row[i] = float32(i%7-3) / 4
	}
	var a *ask
	if r.reads {
		a = &ask{top: 1}
	}
	if err := s.pushRead(0, row, a); err != nil {
		return err
	}
	_, err = s.Pull(ctx)
	return err
}

// Range is all layers of the ring.
func (r *Ring) Range() plan.Range {
	return plan.Range{First: r.hops[0].rng.First, Last: r.hops[len(r.hops)-1].rng.Last}
}

// Cuts are the layers of each hop.
func (r *Ring) Cuts() []plan.Range {
	var cuts []plan.Range
	for _, h := range r.hops {
		cuts = append(cuts, h.rng)
	}
	return cuts
}

// read handles everything one stage sends to the head.
func (r *Ring) read(ctx context.Context, h *hop) {
	for {
		f, err := h.peer.link.Recv(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.fail(h.error("waiting", r.lastGood(), err))
			}
			return
		}
		h.mu.Lock()
		h.seen = time.Now()
		h.mu.Unlock()
		switch f := f.(type) {
		case *transport.Activation:
			err = r.activation(h, f)
		case *transport.Ask:
			err = r.relayAsk(h, f)
		case *transport.Receipt:
			r.receipt(h, f)
		case *transport.Finished:
			r.finished(h, f)
		case *transport.Fault:
			r.fault(h, f)
		default:
			err = fmt.Errorf("unexpected frame %T", f)
		}
		if err != nil {
			r.fail(h.error("returning", r.lastGood(), err))
			return
		}
	}
}

// activation takes a returned row, or passes a relayed one on to the stage it is addressed to.
func (r *Ring) activation(h *hop, f *transport.Activation) error {
	if f.NextIndex != transport.Return {
		if !h.relay || int(f.NextIndex) != h.index+1 || h.index == len(r.hops) {
			return fmt.Errorf("an activation of stage %d is addressed to %d", h.index, f.NextIndex)
		}
		next := r.hops[h.index]
		if err := next.peer.link.Send(f); err != nil {
			r.fail(next.error("relaying", r.lastGood(), err))
		}
		return nil
	}
	if err := checkActivation(f, r.model); err != nil {
		return err
	}
	if s := r.session(f.Seq); s != nil {
		return s.deliver(f)
	}
	return nil // a session closed meanwhile
}

// relayAsk passes an ask on for a stage that cannot.
func (r *Ring) relayAsk(h *hop, f *transport.Ask) error {
	if !h.relay || h.index == len(r.hops) {
		return fmt.Errorf("an ask came back from stage %d", h.index)
	}
	next := r.hops[h.index]
	if err := next.peer.link.Send(f); err != nil {
		r.fail(next.error("relaying", r.lastGood(), err))
	}
	return nil
}

func (r *Ring) receipt(h *hop, f *transport.Receipt) {
	h.mu.Lock()
	h.passed[f.Seq] = f.TokenIdx
	h.mu.Unlock()
	s := r.session(f.Seq)
	if len(f.Hashes) == 0 || r.opts.Trace == nil || s == nil || s.silent {
		return
	}
	r.opts.Trace(Boundary{Session: f.Seq, Stage: h.index, Layers: h.rng, Pos: int(f.TokenIdx), Hashes: f.Hashes, Micros: int64(f.Micros)})
}

func (r *Ring) fault(h *hop, f *transport.Fault) {
	// A lost stage is noticed by its neighbours first: it is the one to name.
	switch {
	case f.Code == transport.FaultNextHop && h.index < len(r.hops):
		r.fail(r.hops[h.index].error(f.Phase, r.lastGood(), hopFault{f}))
		return
	case f.Code == transport.FaultPrevHop && h.index > 1:
		r.fail(r.hops[h.index-2].error("sending", r.lastGood(), hopFault{f}))
		return
	}
	err := h.error(f.Phase, r.lastGood(), hopFault{f})
	if s := r.session(f.Seq); s != nil {
		err.Last = s.lastGood()
		s.fail(err)
		return
	}
	if f.Seq < 0 {
		r.fail(err)
	}
}

func (r *Ring) session(seq int32) *ringSession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[seq]
}

// lastGood is the highest position that came back in any open session.
func (r *Ring) lastGood() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := -1
	for _, s := range r.sessions {
		last = max(last, s.lastGood())
	}
	return last
}

// fail ends the ring: every session fails with err, and the links are closed so that the stages free theirs.
func (r *Ring) fail(err error) {
	r.mu.Lock()
	if r.err != nil {
		r.mu.Unlock()
		return
	}
	r.err = err
	close(r.down)
	sessions := make([]*ringSession, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
	}
	r.mu.Unlock()
	for _, s := range sessions {
		s.fail(err)
	}
	r.cancel()
	for _, h := range r.hops {
		r.workers.Go(func() { h.peer.link.Close(nil) })
	}
}

// Close ends all sessions and links.
func (r *Ring) Close() error {
	r.fail(errRingClosed)
	r.workers.Wait()
	return nil
}

var errRingClosed = errors.New("the ring is closed")

// SessionsOpen counts the sessions not yet closed.
func (r *Ring) SessionsOpen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}
