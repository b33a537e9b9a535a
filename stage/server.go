package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"dchain/inspect"
	"dchain/plan"
	"dchain/transport"
	"dchain/units"
)

// ServerOptions configures a stage that serves heads over the network.
type ServerOptions struct {
	Device units.Device
	// Demote closes the device, which gave a wrong bit, is lost, or has no room for layers that are fixed, and opens the next
	// best that computes right ones, with what the stage says of itself then. It is called when nothing of the old device is in
	// use. Without it, the stage refuses all work.
	Demote func(ctx context.Context) (units.Device, transport.Hello, error)
	Listen transport.ListenOptions // Authorize is extended by the predecessors of assigned rings
	Dial   transport.DialOptions   // for reaching the next stage
	Local  transport.Hello         // what the stage says of itself, model fields aside
	// OpenModel opens the model a head assigns.
	OpenModel func(ctx context.Context, name string) (*inspect.Model, error)
	// Model, which may be nil, fixes the model; Range, when not empty, fixes the layers, which are loaded at once.
	Model    *inspect.Model
	Range    plan.Range
	Mode     units.WeightMode
	Context  int    // positions per session, the most an assignment may ask for
	Sessions int    // sessions at once, over all heads
	Cache    string // LoadOptions.Cache
	// Readout makes the stage hold the readout too where its layers are the model's last.
	Readout bool
	// Load progress and events; all may be nil. They must not block.
	Progress func(n, total int64)
	Watch    func(t transport.Token)
	Event    func(text string)
}

// Server is a stage behind a listener.
//
//	head link:  hello, assignment -> load, dial next -> ready; activations of the first stage; finished
//	hop link:   hello naming the ring; activations
//
// A failure ends the ring or session it belongs to. The server stays up for the next head.
type Server struct {
	opts     ServerOptions
	listener *transport.Listener
	turn     chan struct{} // capacity 1; full while layers, or a device, are being chosen for an assignment

	mu        sync.Mutex
	device    units.Device
	local     transport.Hello
	condemned error // why the device computes nothing more
	held      *holding
	rings     map[[16]byte]*member
}

// holding is the model part a stage has loaded.
type holding struct {
	model       *inspect.Model
	name        string
	fingerprint [32]byte
	rng         plan.Range
	weights     *Weights
	engine      *Engine
	bytesRead   int64
	loadTime    time.Duration
}

// close ends the engine and frees what it ran on.
func (h *holding) close() {
	h.engine.Close()
	h.weights.Close()
}

// NewServer listens, and loads the layers when they are fixed. Run serves.
func NewServer(ctx context.Context, opts ServerOptions) (*Server, error) {
	s := &Server{opts: opts, turn: make(chan struct{}, 1), device: opts.Device, local: opts.Local, rings: map[[16]byte]*member{}}
	if opts.Range.Len() > 0 {
		if opts.Model == nil {
			return nil, errors.New("serving fixed layers: no model given")
		}
		if err := s.loadFirst(ctx); err != nil {
			return nil, err
		}
	}
	listen := opts.Listen
	listen.Authorize = func(k transport.PublicKey) bool { return opts.Listen.Authorize(k) || s.expects(k) }
	var err error
	if s.listener, err = transport.Listen(listen); err != nil {
		if s.held != nil {
			s.held.close()
		}
		return nil, err
	}
	return s, nil
}

// Addr is the address the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run serves until ctx ends, then closes every ring and frees the layers.
func (s *Server) Run(ctx context.Context) error {
	var links sync.WaitGroup
	run, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		s.listener.Close()
		links.Wait()
		s.mu.Lock()
		held := s.held
		s.held = nil
		s.mu.Unlock()
		if held != nil {
			held.close()
		}
	}()
	for {
		link, err := s.listener.Accept(run)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		links.Go(func() { s.serve(run, link) })
	}
}

// Engine is the engine in use, nil before layers are loaded.
func (s *Server) Engine() *Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return nil
	}
	return s.held.engine
}

func (s *Server) event(format string, args ...any) {
	if s.opts.Event != nil {
		s.opts.Event(fmt.Sprintf(format, args...))
	}
}

// expects says whether a key belongs to the predecessor named by an assignment in force.
func (s *Server) expects(k transport.PublicKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.rings {
		if m.assign.PrevFingerprint != "" && m.assign.PrevFingerprint == transport.Fingerprint(k) {
			return true
		}
	}
	return false
}

// hello is what the stage says of itself now.
func (s *Server) hello() *transport.Hello {
	s.mu.Lock()
	h := s.local
	s.mu.Unlock()
	h.Role, h.First, h.Last = transport.RoleStage, 0, -1
	h.Context, h.MaxSessions = int32(s.opts.Context), int32(s.opts.Sessions)
	h.Weights, h.Readout = uint8(s.opts.Mode), s.opts.Readout
	if m := s.opts.Model; m != nil {
		h.Model, h.Fingerprint = m.Source.ID(), m.Fingerprint(s.opts.Mode.String(), units.NumericsVersion)
		h.Layers, h.Hidden = int32(m.Spec.Layers), int32(m.Spec.Hidden)
		if m.Spec.MaxPos > 0 {
			h.Context = min(h.Context, int32(m.Spec.MaxPos))
		}
	}
	if s.opts.Range.Len() > 0 {
		h.First, h.Last = int32(s.opts.Range.First), int32(s.opts.Range.Last)
	}
	return &h
}

// serve handles one link until it ends.
func (s *Server) serve(ctx context.Context, link *transport.Link) {
	err := s.greet(ctx, link)
	link.Close(err)
}

func (s *Server) greet(ctx context.Context, link *transport.Link) error {
	wait, cancel := context.WithTimeoutCause(ctx, helloTimeout, errors.New("no hello within 5 s"))
	defer cancel()
	f, err := link.Recv(wait)
	if err != nil {
		return err
	}
	hello, ok := f.(*transport.Hello)
	if !ok {
		return fmt.Errorf("expected a hello, got %v", f.Kind())
	}
	if hello.Role == transport.RoleHop {
		return s.serveHop(ctx, link, hello)
	}
	if err := link.Send(s.hello()); err != nil {
		return err
	}
	// A predecessor's key is let in by the handshake while its ring lasts, but only as a hop.
	if !s.opts.Listen.Authorize(link.Peer()) {
		return transport.ErrUnauthorized
	}
	return s.serveHead(ctx, link, hello)
}

// serveHead serves one head: its assignment, then its frames until the link ends.
func (s *Server) serveHead(ctx context.Context, link *transport.Link, hello *transport.Hello) error {
	s.event("head %s connected from %s (%s)", transport.Fingerprint(link.Peer()), link.Addr(), hello.Build)
	f, err := link.Recv(ctx)
	if err != nil {
		return nil // it only looked
	}
	a, ok := f.(*transport.Assignment)
	if !ok {
		return fmt.Errorf("expected an assignment, got %v", f.Kind())
	}
	m, err := s.join(ctx, link, a)
	if err != nil {
		fault := asFault(err, -1, a.Stage, "loading", -1)
		s.event("assignment refused: %v", fault)
		link.Send(fault)
		// The head closes the link once it has read why.
		drain(ctx, link)
		return nil
	}
	err = s.follow(ctx, m)
	s.leave(m, err)
	return err
}

// follow handles the frames of a member's head until the ring ends, and returns why: an error that matches io.EOF where the
// head has closed it.
func (s *Server) follow(ctx context.Context, m *member) error {
	for {
		f, err := m.head.Recv(ctx)
		if err != nil {
			s.event("ring of %s ended: %v", m.head.Addr(), err)
			if ctx.Err() != nil {
				return errStopping
			}
			return err
		}
		if err := m.headFrame(f); err != nil {
			m.fault(-1, "receiving", err)
			drain(ctx, m.head)
			return err
		}
	}
}

// drain lets the peer read what was sent last: it waits briefly for the peer to close.
func drain(ctx context.Context, link *transport.Link) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for {
		if _, err := link.Recv(ctx); err != nil {
			return
		}
	}
}

// join loads what the assignment asks for, reaches the next stage, and answers ready.
func (s *Server) join(ctx context.Context, link *transport.Link, a *transport.Assignment) (*member, error) {
	m := newMember(s, link, a)
	s.mu.Lock()
	s.rings[a.Ring] = m // from here on the predecessor may connect
	s.mu.Unlock()
	// A head that goes away ends the loading.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-link.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	held, err := s.take(ctx, m)
	if err != nil {
		s.leave(m, err)
		return nil, err
	}
	ready := &transport.Ready{Ring: a.Ring, Stage: a.Stage, Fingerprint: held.fingerprint, LoadMillis: uint32(held.loadTime.Milliseconds()), BytesRead: uint64(held.bytesRead)}
	if a.NextAddr != "" && !a.Relay {
		if err := m.dialNext(ctx); err != nil {
			ready.Detail = err.Error()
			s.event("cannot reach the next stage at %s: %v", a.NextAddr, err)
		}
	}
	ready.Relay = a.NextAddr != "" && m.next == nil
	m.start()
	if err := link.Send(ready); err != nil {
		s.leave(m, err)
		return nil, err
	}
	s.event("ready: stage %d of %d, layers %v", a.Stage, a.Stages, held.rng)
	return m, nil
}

// errStopping ends what a stage does when it is to end itself.
var errStopping = errors.New("the stage is being stopped by its operator")

// leave removes a member and frees its sessions and links. The next stage is told why, unless the head has closed the ring,
// which it then learns from the head too.
func (s *Server) leave(m *member, why error) {
	s.mu.Lock()
	delete(s.rings, m.assign.Ring)
	s.mu.Unlock()
	if errors.Is(why, io.EOF) {
		why = nil
	}
	m.close(why)
}

// serveHop feeds the activations of a predecessor to its ring. The answer to its hello says that the ring is known: a
// predecessor whose assignment came first is refused before that, so that it dials again instead of sending into nothing.
func (s *Server) serveHop(ctx context.Context, link *transport.Link, hello *transport.Hello) error {
	s.mu.Lock()
	m := s.rings[hello.Ring]
	s.mu.Unlock()
	if m == nil || m.assign.PrevFingerprint != transport.Fingerprint(link.Peer()) {
		return fmt.Errorf("a hop of an unknown ring")
	}
	if err := link.Send(s.hello()); err != nil {
		return err
	}
	for {
		f, err := link.Recv(ctx)
		if ctx.Err() != nil {
			m.fault(-1, "serving", refuse(transport.FaultStopping, "%v", errStopping))
			return nil
		}
		if errors.Is(err, io.EOF) && m.endsSoon() {
			return err
		}
		if err != nil {
			m.fault(-1, "receiving", refuse(transport.FaultPrevHop, "%v", err))
			return err
		}
		if !m.work(f) {
			err := fmt.Errorf("unexpected %v from the stage before", f.Kind())
			m.fault(-1, "receiving", err)
			return err
		}
	}
}

// Rings counts the rings the server is part of.
func (s *Server) Rings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rings)
}
