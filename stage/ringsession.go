package stage

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"dchain/transport"
)

// stepLimit bounds the wait for one push even while the stage whose turn it is shows signs of life.
const stepLimit = 5 * time.Minute

// closeTimeout bounds the wait for the stages to confirm the end of a session.
const closeTimeout = 3 * time.Second

// ringSession is one sequence on a ring.
type ringSession struct {
	ring *Ring
	seq  int32
	// silent: the probe, of which no boundary is reported.
	silent  bool
	results chan arrival  // written by the last stage's reader, never closed
	failed  chan struct{} // closed by fail
	ended   chan struct{} // closed when every stage has confirmed the end

	mu       sync.Mutex
	next     int // next position to push
	returned int // last position that came back, -1 for none
	flying   []flight
	ask      *transport.Ask // in force, nil for none
	err      error
	closing  bool
	pending  int // stages that have not confirmed the end
	stats    SessionStats
}

// flight is a push that has not come back.
type flight struct {
	pos, n int
	ask    *ask // of the last row, nil for none
	sent   time.Time
}

// arrival is what came back of a push: rows, or an ask and its answer.
type arrival struct {
	rows   []float32
	ask    *ask
	scores scores
}

// SessionStats is what the stages of a ring computed for one session, known once it is closed.
type SessionStats struct {
	DecodeTrips int           // single rows that went round the ring
	DecodeWait  time.Duration // from their push to their return
	DecodeBusy  time.Duration // their computing time, summed over the stages
	Rows        int
	Stages      int
}

// Open begins a session. No frame is sent: stages take a slot when the first activation arrives.
func (r *Ring) Open(context.Context) (Session, error) {
	s, err := r.open(false)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (r *Ring) open(silent bool) (*ringSession, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return nil, r.err
	}
	r.nextSeq++
	s := &ringSession{ring: r, seq: r.nextSeq, silent: silent, results: make(chan arrival, pushWindow*4), failed: make(chan struct{}), ended: make(chan struct{}), returned: -1, pending: len(r.hops)}
	r.sessions[s.seq] = s
	return s, nil
}

func (s *ringSession) Push(_ context.Context, pos int, hidden []float32) error {
	return s.pushRead(pos, hidden, nil)
}

// pushRead is Push for rows the last of which is to be read out, unless a is nil: when Pull has returned, a is answered.
func (s *ringSession) pushRead(pos int, hidden []float32, a *ask) error {
	r := s.ring
	n := len(hidden) / r.hidden
	var wish *transport.Ask // to be sent
	s.mu.Lock()
	err := s.err
	switch {
	case err != nil:
	case pos != s.next:
		err = &PositionError{Want: s.next, Got: pos}
	case pos+n > r.opts.Context:
		err = &ContextError{Context: r.opts.Context, Need: pos + n}
	case len(s.flying) >= cap(s.results):
		err = fmt.Errorf("pushing position %d: %d pushes are in flight", pos, len(s.flying))
	default:
		s.next += n
		s.flying = append(s.flying, flight{pos, n, a, time.Now()})
		wish = s.wishLocked(pos+n-1, a)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	first := r.hops[0]
	f := newActivation(s.seq, pos, 1, r.model, hidden)
	defer f.Release()
	if wish != nil {
		err = first.peer.link.Send(wish)
	}
	if err == nil {
		err = first.peer.link.Send(f)
	}
	if err != nil {
		err = first.error("sending", s.lastGood(), err)
		r.fail(err)
	}
	return err
}

// wishLocked is what the last stage must be told so that it reads out the row at pos for a, or does not; nil for nothing.
func (s *ringSession) wishLocked(pos int, a *ask) *transport.Ask {
	in := s.ask != nil && pos >= int(s.ask.TokenIdx)
	switch {
	case a == nil && !in, a != nil && in && int(s.ask.Top) == a.wire():
		return nil
	case a == nil:
		s.ask = &transport.Ask{Seq: s.seq, TokenIdx: math.MaxInt32}
	default:
		s.ask = &transport.Ask{Seq: s.seq, TokenIdx: int32(pos), Top: int32(a.wire())}
	}
	return s.ask
}

// deliver takes a returned activation, which must be the oldest in flight.
func (s *ringSession) deliver(f *transport.Activation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.flying) == 0 {
		return fmt.Errorf("session %d: position %d came back twice", s.seq, f.TokenIdx)
	}
	want := s.flying[0]
	pos, n := want.pos, want.n
	if !s.ring.opts.ReturnAll || want.ask != nil {
		pos, n = pos+n-1, 1
	}
	came := arrival{rows: f.Hidden}
	if want.ask != nil && int(f.TokenIdx) == pos {
		var err error
		if came.scores, err = parseScores(f.Hidden, want.ask.wire(), s.ring.opts.Model.Spec.Vocab); err != nil {
			return fmt.Errorf("session %d, position %d: %w", s.seq, pos, err)
		}
		came.rows, came.ask = nil, want.ask
	} else if int(f.TokenIdx) != pos || len(f.Hidden) != n*s.ring.hidden {
		return fmt.Errorf("session %d: position %d (%d rows) came back, expected position %d (%d rows)", s.seq, f.TokenIdx, len(f.Hidden)/s.ring.hidden, pos, n)
	}
	s.flying = s.flying[1:]
	s.returned = pos + n - 1
	if want.n == 1 {
		s.stats.DecodeTrips++
		s.stats.DecodeWait += time.Since(want.sent)
	}
	s.results <- came // capacity is at least the pushes in flight
	return nil
}

// Pull waits for the oldest push, and names the stage that keeps it waiting when nothing comes.
func (s *ringSession) Pull(ctx context.Context) ([]float32, error) {
	s.look(ctx)
	tick := time.NewTicker(s.ring.opts.Silence / 8)
	defer tick.Stop()
	for {
		select {
		case came := <-s.results:
			if came.ask != nil {
				came.ask.scores = came.scores
			}
			return came.rows, nil
		case <-s.failed:
			s.mu.Lock()
			defer s.mu.Unlock()
			return nil, s.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-tick.C:
			s.checkSilence()
		}
	}
}

// look awaits a result without sleeping, for as long as the links of the ring look for bytes, if no other session could use the
// core: who sleeps is woken late, and on another core, which has nothing at hand of what the next step needs.
func (s *ringSession) look(ctx context.Context) {
	poll := s.ring.opts.Dial.Poll
	if poll == nil || s.ring.SessionsOpen() > 1 {
		return
	}
	for since := time.Now(); len(s.results) == 0 && time.Since(since) < poll() && ctx.Err() == nil; {
		select {
		case <-s.failed:
			return
		default:
		}
	}
}

// checkSilence fails the ring when the stage whose turn it is has given no sign of life for too long.
func (s *ringSession) checkSilence() {
	s.mu.Lock()
	if len(s.flying) == 0 {
		s.mu.Unlock()
		return
	}
	oldest := s.flying[0]
	s.mu.Unlock()
	r := s.ring
	late := s.culprit(oldest)
	late.mu.Lock()
	seen := late.seen
	late.mu.Unlock()
	if seen.Before(oldest.sent) {
		seen = oldest.sent
	}
	switch {
	case time.Since(seen) > r.opts.Silence:
		r.fail(late.error("waiting", s.lastGood(), fmt.Errorf("no sign of life for %v", r.opts.Silence)))
	case time.Since(oldest.sent) > stepLimit:
		r.fail(late.error("waiting", s.lastGood(), fmt.Errorf("position %d has not come back for %v", oldest.pos, stepLimit)))
	}
}

// culprit is the first stage that has not reported the oldest push as passed on.
func (s *ringSession) culprit(oldest flight) *hop {
	for _, h := range s.ring.hops {
		h.mu.Lock()
		passed, ok := h.passed[s.seq]
		h.mu.Unlock()
		if !ok || int(passed) < oldest.pos {
			return h
		}
	}
	return s.ring.hops[len(s.ring.hops)-1]
}

func (s *ringSession) lastGood() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.returned
}

func (s *ringSession) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.failed)
	}
}

// Announce sends the token to the stages that asked to watch. A lost link shows in the next push.
func (s *ringSession) Announce(pos, id int, text string) {
	for _, h := range s.ring.hops {
		if h.peer.Hello.Watch {
			h.peer.link.Send(&transport.Token{Seq: s.seq, TokenIdx: int32(pos), ID: int32(id), Text: text})
		}
	}
}

// Close tells every stage that the session is over and waits, within bounds, until all have freed it.
func (s *ringSession) Close() error {
	r := s.ring
	s.mu.Lock()
	closing := !s.closing
	s.closing = true
	s.mu.Unlock()
	if closing {
		for _, h := range r.hops {
			if err := h.peer.link.Send(&transport.Finished{Seq: s.seq, Reason: "done"}); err != nil {
				r.fail(h.error("finishing", s.lastGood(), err))
			}
		}
		select {
		case <-s.ended:
		case <-r.down:
		case <-time.After(closeTimeout):
		}
	}
	r.mu.Lock()
	delete(r.sessions, s.seq)
	r.mu.Unlock()
	for _, h := range r.hops {
		h.mu.Lock()
		delete(h.passed, s.seq)
		h.mu.Unlock()
	}
	return nil
}

// finished counts a stage's confirmation.
func (r *Ring) finished(h *hop, f *transport.Finished) {
	s := r.session(f.Seq)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.DecodeBusy += time.Duration(f.ComputeMicros) * time.Microsecond
	s.stats.Rows += int(f.Rows)
	s.stats.Stages++
	s.pending--
	if s.pending == 0 {
		close(s.ended)
	}
}

// Stats is what the stages computed for the session; complete after Close.
func (s *ringSession) Stats() SessionStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
