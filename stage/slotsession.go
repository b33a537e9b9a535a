package stage

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// slotSession is a session's place on an engine: its cache slot and position.
type slotSession struct {
	engine *Engine
	id     int32
	slot   int
	groups int // of its ring

	mu     sync.Mutex
	next   int // next position
	closed bool
	flying sync.WaitGroup // pushes not yet completed
}

// open takes a cache slot for a session in a ring of so many groups.
func (e *Engine) open(groups int) (*slotSession, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.free) == 0 {
		return nil, fmt.Errorf("opening a session on layers %v: %w (%d)", e.weights.Range, ErrSessions, e.opts.Sessions)
	}
	slot := e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.nextID++
	return &slotSession{engine: e, id: e.nextID, slot: slot, groups: groups}, nil
}

// submit queues rows at pos, or runs them if there is nothing else to do. They become the engine's; done gets the result, and is told
// whether that is before submit returns, by the goroutine that called it. If a is not nil it has been answered by then, and there
// are rows only if they are to be kept.
func (s *slotSession) submit(pos int, in input, a *ask, keep bool, done func(here bool, rows []float32, took time.Duration, err error)) error {
	e := s.engine
	n := len(in.ids)
	if n == 0 {
		n = len(in.hidden) / e.hidden
	}
	if n == 0 || in.ids == nil && len(in.hidden)%e.hidden != 0 {
		return fmt.Errorf("pushing %d floats: not a positive multiple of the hidden width %d", len(in.hidden), e.hidden)
	}
	r := &request{session: s.id, slot: s.slot, groups: s.groups, pos: pos, n: n, input: in, ask: a, keep: keep}
	r.done = func(rows []float32, took time.Duration, err error) {
		e.flying.Add(-1)
		done(r.claimed, rows, took, err)
		s.flying.Done()
	}
	e.life.RLock()
	defer e.life.RUnlock()
	err := s.enqueue(r)
	if r.claimed {
		e.runClaimed(r)
	}
	return err
}

// enqueue queues a request, unless it claims the engine's turn for it. It is called with the engine's life held.
func (s *slotSession) enqueue(r *request) error {
	e := s.engine
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || e.closed:
		return errEngineClosed
	case r.pos != s.next:
		return &PositionError{Want: s.next, Got: r.pos}
	case r.pos+r.n > e.opts.Context:
		return &ContextError{Context: e.opts.Context, Need: r.pos + r.n}
	}
	s.flying.Add(1)
	e.flying.Add(1)
	s.next += r.n
	if r.claimed = e.claim(r); !r.claimed {
		e.queue <- r // the loop runs, and takes from the queue, until closed is set
	}
	return nil
}

// close waits for pushes in flight, which still use the slot, and frees it.
func (s *slotSession) close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.mu.Unlock()
	s.flying.Wait()
	e := s.engine
	e.mu.Lock()
	e.free, e.ended = append(e.free, s.slot), append(e.ended, s.id)
	e.mu.Unlock()
}

// Open begins a near session.
func (e *Engine) Open(context.Context) (Session, error) {
	s, err := e.open(e.opts.Groups)
	if err != nil {
		return nil, err
	}
	return &nearSession{slotSession: s, results: make(chan result, 256)}, nil
}

type nearSession struct {
	*slotSession
	results chan result // written by whoever runs the engine, never closed
}

type result struct {
	rows []float32
	err  error
}

func (s *nearSession) Push(_ context.Context, pos int, hidden []float32) error {
	return s.push(pos, input{hidden: hidden}, nil)
}

// pushRead is Push for rows the last of which is to be read out: when Pull has returned, a is answered.
func (s *nearSession) pushRead(pos int, hidden []float32, a *ask) error {
	return s.push(pos, input{hidden: hidden}, a)
}

// pushIDs is Push, or with an ask pushRead, for an engine that embeds.
func (s *nearSession) pushIDs(pos int, ids []float32, a *ask) error {
	return s.push(pos, input{ids: ids}, a)
}

func (s *nearSession) push(pos int, in input, a *ask) error {
	return s.submit(pos, in, a, false, func(_ bool, rows []float32, _ time.Duration, err error) {
		switch {
		case err != nil || a != nil:
			rows = nil
		default:
			rows = s.engine.returned(rows)
		}
		s.results <- result{rows, err}
	})
}

func (s *nearSession) Pull(ctx context.Context) ([]float32, error) {
	select {
	case r := <-s.results:
		return r.rows, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *nearSession) Announce(int, int, string) {}

func (s *nearSession) Close() error {
	s.close()
	return nil
}
