package stage

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"dchain/transport"
	"dchain/units"
)

// heartbeat is how often a stage reports the progress of its open sessions to the head.
const heartbeat = 2 * time.Second

// outboxSize bounds the frames waiting for a slow successor; beyond it the ring fails.
const outboxSize = 256

// member is this stage's part in one ring.
type member struct {
	server *Server
	assign *transport.Assignment
	head   *transport.Link
	model  uint32 // model hash of every activation
	hidden int

	next   *transport.Link // nil: results go to the head
	outbox chan transport.Frame
	queued atomic.Int64  // frames put into it and not yet sent
	stop   chan struct{} // closed by close
	wg     sync.WaitGroup

	mu       sync.Mutex
	engine   *Engine
	sessions map[int32]*memberSession
	finished int32 // highest session that has ended; late activations of it are dropped
	closed   bool
	failed   bool
}

// memberSession is one session on this stage.
type memberSession struct {
	*slotSession
	ask    *transport.Ask // in force, nil for none
	passed int            // last position passed on, -1 for none
	steps  uint32
	micros uint64
	rows   uint32
}

func newMember(s *Server, head *transport.Link, a *transport.Assignment) *member {
	return &member{
		server: s, assign: a, head: head, model: modelHash(a.Fingerprint),
		outbox: make(chan transport.Frame, outboxSize), stop: make(chan struct{}), sessions: map[int32]*memberSession{},
	}
}

// hold gives the member its layers.
func (m *member) hold(h *holding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.engine, m.hidden = h.engine, h.model.Spec.Hidden
}

// holds says whether the member has its layers.
func (m *member) holds() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine != nil
}

// dialAttempts bounds the tries to reach the next stage: it may not have read its own assignment yet.
const dialAttempts = 4

// dialNext connects to the next stage as its predecessor in the ring.
func (m *member) dialNext(ctx context.Context) error {
	addr := transport.PeerAddr{Host: m.assign.NextAddr, Fingerprint: m.assign.NextFingerprint}
	dial := m.server.opts.Dial
	dial.Endpoint = m.server.listener.Endpoint() // one port for the operator to open
	var err error
	for attempt := range dialAttempts {
		if attempt > 0 {
			select {
			case <-time.After(time.Duration(attempt) * 200 * time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		var link *transport.Link
		if link, err = transport.Dial(ctx, addr, dial); err != nil {
			continue
		}
		hello := m.server.opts.Local
		hello.Role, hello.Ring = transport.RoleHop, m.assign.Ring
		if _, err = greet(ctx, link, &hello); err == nil {
			m.next = link
			return nil
		}
		link.Close(err)
	}
	return err
}

// start begins sending and reporting.
func (m *member) start() {
	m.wg.Go(m.send)
	m.wg.Go(m.report)
	if m.next != nil {
		m.wg.Go(m.watchNext)
	}
}

// close frees every session and ends the member's goroutines and its link to the next stage, which is told why; nil means that
// the ring is over. Idempotent.
func (m *member) close(why error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	m.closed = true
	sessions := m.sessions
	m.sessions = nil
	m.mu.Unlock()
	close(m.stop)
	for _, s := range sessions {
		s.close()
	}
	if m.next != nil {
		m.next.Close(why)
	}
	m.wg.Wait()
}

// headFrame handles a frame from the head.
func (m *member) headFrame(f transport.Frame) error {
	switch f := f.(type) {
	case *transport.Activation, *transport.Ask:
		m.work(f)
	case *transport.Token:
		if m.server.opts.Watch != nil {
			m.server.opts.Watch(*f)
		}
	case *transport.Finished:
		m.finish(f)
	default:
		return refuse(transport.FaultProtocol, "unexpected %v from the head", f.Kind())
	}
	return nil
}

// work handles what goes round the ring, from the head or the stage before, and says whether f is of that kind.
func (m *member) work(f transport.Frame) bool {
	var err error
	var seq int32
	switch f := f.(type) {
	case *transport.Activation:
		seq, err = f.Seq, m.accept(f)
	case *transport.Ask:
		seq, err = f.Seq, m.heed(f)
	default:
		return false
	}
	if err != nil {
		m.fault(seq, "receiving", err)
	}
	return true
}

// heed takes an ask to the last stage, or remembers it there.
func (m *member) heed(f *transport.Ask) error {
	if m.assign.Stage < m.assign.Stages {
		return m.put(f)
	}
	m.mu.Lock()
	reads := m.engine != nil && m.engine.model != nil
	m.mu.Unlock()
	if !reads {
		return refuse(transport.FaultProtocol, "an ask arrived at a stage that does not read out")
	}
	s, err := m.session(f.Seq)
	if err != nil || s == nil {
		return err
	}
	m.mu.Lock()
	s.ask = f
	m.mu.Unlock()
	return nil
}

// asked is what is asked of an activation whose last row is at pos, nil for the row itself.
func (m *member) asked(s *memberSession, pos int) *ask {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.ask == nil || pos < int(s.ask.TokenIdx) {
		return nil
	}
	return &ask{top: int(s.ask.Top)}
}

// put queues a frame for the next stage or the head.
func (m *member) put(f transport.Frame) error {
	m.queued.Add(1)
	select {
	case m.outbox <- f:
		return nil
	default:
		m.queued.Add(-1)
		return refuse(transport.FaultNextHop, "%d frames are waiting for a next stage that does not take them", outboxSize)
	}
}

// accept checks rows that arrived, queues them, and passes the result on when it is computed.
func (m *member) accept(f *transport.Activation) error {
	if f.NextIndex != m.assign.Stage {
		return refuse(transport.FaultProtocol, "an activation for stage %d arrived at stage %d", f.NextIndex, m.assign.Stage)
	}
	if !m.holds() {
		return refuse(transport.FaultProtocol, "an activation arrived before the stage was ready")
	}
	if err := checkActivation(f, m.model); err != nil {
		return err
	}
	if len(f.Hidden)%m.hidden != 0 {
		return refuse(transport.FaultShape, "an activation of %d floats arrived, not a multiple of the hidden width %d", len(f.Hidden), m.hidden)
	}
	s, err := m.session(f.Seq)
	if err != nil || s == nil {
		return err
	}
	pos, n := int(f.TokenIdx), len(f.Hidden)/m.hidden
	a := m.asked(s, pos+n-1)
	// A link may take its time, for which the engine must not wait: of what is called here only the receipts of a trace are sent at once.
	var own *transport.Activation // sent by this goroutine afterwards
	err = s.submit(pos, input{hidden: f.Hidden}, a, m.assign.Trace, func(here bool, rows []float32, took time.Duration, err error) {
		if err != nil {
			seq := f.Seq
			if units.Unusable(err) {
				m.server.condemn(err)
				seq = -1 // of the whole ring
			}
			m.wg.Go(func() { m.fault(seq, "computing", err) })
			return
		}
		out, alone := m.result(s, done{seq: f.Seq, pos: pos, n: n, rows: rows, ask: a, took: took})
		f.Release()
		if here && alone && m.queued.Load() == 0 { // nothing goes before it, and nobody waits for this goroutine
			own = out
		} else if err := m.put(out); err != nil {
			m.wg.Go(func() { m.fault(-1, "sending", err) })
		}
	})
	if own != nil {
		m.deliver(own)
	}
	return err
}

// session finds the session of seq or takes a slot for it; nil for one that has ended.
func (m *member) session(seq int32) (*memberSession, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || seq <= m.finished && m.sessions[seq] == nil {
		return nil, nil
	}
	if s := m.sessions[seq]; s != nil {
		return s, nil
	}
	slot, err := m.engine.open(Groups(int(m.assign.Stages), m.assign.Stage == 1 && m.assign.First > 0))
	if err != nil {
		return nil, err
	}
	s := &memberSession{slotSession: slot, passed: -1}
	m.sessions[seq] = s
	return s, nil
}

// done is an activation that has been computed.
type done struct {
	seq    int32
	pos, n int       // of its rows
	rows   []float32 // absent where they were read out and nobody wants them
	ask    *ask      // of the last row, answered; nil for none
	took   time.Duration
}

// result is what goes to the next stage of computed rows, or what is asked for and goes back to the head. alone says that the ring has
// no other session. It is called by whoever runs the engine.
func (m *member) result(s *memberSession, d done) (f *transport.Activation, alone bool) {
	a := m.assign
	last := d.pos + d.n - 1
	m.mu.Lock()
	s.passed = last
	s.rows += uint32(d.n)
	if d.n == 1 {
		s.steps++
		s.micros += uint64(d.took.Microseconds())
	}
	alone = len(m.sessions) == 1
	m.mu.Unlock()
	if a.Trace {
		m.head.Send(&transport.Receipt{Seq: d.seq, TokenIdx: int32(d.pos), Stage: a.Stage, Micros: uint32(d.took.Microseconds()), Hashes: rowHashes(d.rows, m.hidden)})
	}
	switch {
	case a.Stage < a.Stages:
		f = newActivation(d.seq, d.pos, a.Stage+1, m.model, d.rows)
	case d.ask != nil:
		f = sealScores(d.seq, last, m.model, &d.ask.scores)
	case a.ReturnAll:
		f = newActivation(d.seq, d.pos, transport.Return, m.model, d.rows)
	default:
		f = newActivation(d.seq, last, transport.Return, m.model, d.rows[(d.n-1)*m.hidden:])
	}
	return f, alone
}

// send writes the outbox to the next stage or the head.
func (m *member) send() {
	for {
		select {
		case f := <-m.outbox:
			if !m.deliver(f) {
				return
			}
			m.queued.Add(-1)
		case <-m.stop:
			return
		}
	}
}

// deliver sends a frame to the next stage or the head, and says whether more may follow.
func (m *member) deliver(f transport.Frame) bool {
	to, phase := m.next, "sending"
	if to == nil {
		to, phase = m.head, "returning"
	}
	if err := to.Send(f); err != nil {
		switch {
		case to != m.head:
			err = refuse(transport.FaultNextHop, "%v", err)
		case errors.Is(err, io.EOF):
			return false // the head has closed the ring and wants nothing more
		}
		m.fault(-1, phase, err)
		return false
	}
	if a, ok := f.(*transport.Activation); ok {
		a.Release()
	}
	return true
}

// watchNext notices a lost next stage even when nothing is being sent.
func (m *member) watchNext() {
	select {
	case <-m.next.Done():
		m.fault(-1, "waiting", refuse(transport.FaultNextHop, "%v", m.next.Err()))
	case <-m.stop:
	}
}

// endLinger bounds how much later than its predecessor a stage learns that the head has closed the ring. The head closes all
// links at once, each when what was sent on it has been read, for which transport.Link.Close waits half a second.
const endLinger = 2 * time.Second

// endsSoon waits for the end of the ring, which the stage before may be the first to know of, and says whether it has come.
func (m *member) endsSoon() bool {
	select {
	case <-m.stop:
	case <-m.head.Done():
	case <-time.After(endLinger):
		return false
	}
	return true
}

// report tells the head every heartbeat how far each open session is.
func (m *member) report() {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, r := range m.progress() {
				if m.head.Send(r) != nil {
					return
				}
			}
		case <-m.stop:
			return
		}
	}
}

func (m *member) progress() []*transport.Receipt {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*transport.Receipt
	for seq, s := range m.sessions {
		all = append(all, &transport.Receipt{Seq: seq, TokenIdx: int32(s.passed), Stage: m.assign.Stage})
	}
	return all
}

// finish ends a session and answers with what it took.
func (m *member) finish(f *transport.Finished) {
	m.mu.Lock()
	s := m.sessions[f.Seq]
	delete(m.sessions, f.Seq)
	m.finished = max(m.finished, f.Seq)
	m.mu.Unlock()
	reply := &transport.Finished{Seq: f.Seq, Reason: f.Reason}
	if s != nil {
		s.close()
		m.mu.Lock()
		reply.Steps, reply.ComputeMicros, reply.Rows = s.steps, s.micros, s.rows
		m.mu.Unlock()
	}
	m.head.Send(reply)
}

// fault reports an error to the head. Of faults of the whole ring only the first is sent: the rest follow from it.
func (m *member) fault(seq int32, phase string, err error) {
	m.mu.Lock()
	last := -1
	if s := m.sessions[seq]; s != nil {
		last = s.passed
	}
	skip := m.closed || m.failed
	m.failed = m.failed || seq < 0
	m.mu.Unlock()
	if skip {
		return
	}
	f := asFault(err, seq, m.assign.Stage, phase, last)
	m.server.event("ring of %s failed: %v", m.head.Addr(), f)
	m.head.Send(f)
}
