package stage

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dchain/plan"
	"dchain/transport"
	"dchain/units"
)

// EngineOptions sizes an engine.
type EngineOptions struct {
	Context  int // positions per session
	Sessions int // cache slots
	// Cuts splits the layers into segments that run one after another; nil is one segment. It changes no bit and
	// exists to observe the boundaries a split would have.
	Cuts   []plan.Range
	Groups int // in which the sessions that decode go round, see HeadOptions; 0 is 1
	// ReturnAll makes sessions return every row of a push instead of the last.
	ReturnAll bool
	// Trace, which may be nil, is called after each segment. It must not block.
	Trace func(Boundary)
}

// maxBatchRows bounds the rows of one step, so that a long prefill delays other sessions by at most one such step. A
// device that is quicker with more says so by a method BatchRows.
const maxBatchRows = 128

// batchRows is the bound for a device.
func batchRows(dev units.Device) int {
	if b, ok := dev.(interface{ BatchRows() int }); ok {
		return b.BatchRows()
	}
	return maxBatchRows
}

// Engine is a near Stage: it owns the cache of a range of layers and runs the queued rows of all sessions in batches.
type Engine struct {
	weights  *Weights
	opts     EngineOptions
	cache    units.Cache
	segments []segment
	model    *forms    // all layers and the readout in one program; nil unless the weights have the last layer and the readout
	ofIDs    *forms    // model of ids in place of rows; nil unless there is one and the device keeps the embedding
	readout  *forms    // the readout of rows that came out of the segments; nil like model
	layered  []float32 // rows that came out of the segments, of a batch of ids
	hidden   int
	maxRows  int // of a batch

	queue  chan *request
	flying atomic.Int64  // requests not yet completed
	held   *request      // taken from the queue, not yet part of a batch; of the loop
	stop   chan struct{} // closed by Close
	done   chan struct{} // closed when the loop has ended

	turn  sync.Mutex // held while a batch runs; guards what follows
	crowd crowd
	ahead *ahead // nil for none

	life   sync.RWMutex // held shared while queueing, exclusively to close: nothing is queued after closed is set
	closed bool

	mu     sync.Mutex
	free   []int   // cache slots not in use
	ended  []int32 // sessions that crowd is to forget
	nextID int32
	rows   int64
	busy   time.Duration
}

type segment struct {
	rng   plan.Range
	exec  units.Executable
	ofIDs units.Executable // of the first one, of ids in place of rows; nil unless the device keeps the embedding
}

// request is a push on its way through the engine.
type request struct {
	session int32
	slot    int
	groups  int // of the session's ring
	pos     int
	n       int
	input             // owned by the request
	ask     *ask      // of the last row, which is read out; nil for none
	keep    bool      // the rows are wanted in spite of the ask
	claimed bool      // run by whoever submitted it; written before it is run
	rows    []float32 // the result, which a request with an ask may lack
	// done is called with the rows or an error, by whoever runs the engine, whose turn it holds up: it must not block.
	done func(rows []float32, took time.Duration, err error)
}

// input is what a push begins with: rows [n][hidden], or ids [n] for an engine that embeds.
type input struct{ hidden, ids []float32 }

// NewEngine compiles the weights' layers and allocates the whole cache. It starts one goroutine, ended by Close.
func NewEngine(w *Weights, opts EngineOptions) (*Engine, error) {
	if opts.Context <= 0 || opts.Sessions <= 0 {
		return nil, fmt.Errorf("starting layers %v: context %d and sessions %d must be positive", w.Range, opts.Context, opts.Sessions)
	}
	if w.Model.Spec.Rope && opts.Context > w.context {
		return nil, fmt.Errorf("starting layers %v: context %d is larger than the %d loaded", w.Range, opts.Context, w.context)
	}
	s := &w.Model.Spec
	if s.LongContext(opts.Context) != s.LongContext(w.context) {
		return nil, fmt.Errorf("starting layers %v: rotary positions of a context of %d are others than of the %d loaded", w.Range, opts.Context, w.context)
	}
	cache, err := w.newCache(units.CacheSpec{Layers: w.Range.Len(), Slots: opts.Sessions, Context: opts.Context, KVHeads: s.KVHeads, HeadDim: s.HeadDim})
	if err != nil {
		return nil, fmt.Errorf("allocating the KV cache of layers %v: %w", w.Range, err)
	}
	e := &Engine{
		weights: w, opts: opts, cache: cache, hidden: s.Hidden, maxRows: batchRows(w.dev),
		crowd: crowd{share: passingShare, most: passingMost},
		queue: make(chan *request, 256), stop: make(chan struct{}), done: make(chan struct{}),
	}
	cuts := opts.Cuts
	if cuts == nil {
		cuts = []plan.Range{w.Range}
	}
	for _, rng := range cuts {
		if err := e.compile(rng); err != nil {
			return nil, errors.Join(err, e.release())
		}
	}
	if w.lmHead.w != nil && w.Range.Last == s.Layers-1 {
		e.model, e.ofIDs, e.readout = w.whole(cache), w.wholeOfIDs(cache), w.readout()
	}
	for slot := opts.Sessions - 1; slot >= 0; slot-- {
		e.free = append(e.free, slot)
	}
	go e.loop()
	return e, nil
}

// compile adds a segment.
func (e *Engine) compile(rng plan.Range) error {
	p, err := layerProgram(e.weights, rng, e.cache)
	if err != nil {
		return err
	}
	exec, err := e.weights.dev.Compile(p)
	if err != nil {
		return fmt.Errorf("compiling layers %v: %w", rng, err)
	}
	seg := segment{rng: rng, exec: exec}
	if e.weights.table != nil && len(e.segments) == 0 {
		ofIDs := e.weights.layersOfIDs
		if e.opts.ReturnAll {
			ofIDs = e.weights.ofIDs
		}
		if seg.ofIDs, err = e.weights.dev.Compile(ofIDs(p)); err != nil {
			return errors.Join(fmt.Errorf("compiling layers %v of ids: %w", rng, err), exec.Close())
		}
	}
	e.segments = append(e.segments, seg)
	return nil
}

// embeds says that the engine takes ids.
func (e *Engine) embeds() bool { return e.segments[0].ofIDs != nil }

// release gives back the segments and the cache.
func (e *Engine) release() error {
	var errs []error
	for _, seg := range e.segments {
		errs = append(errs, seg.exec.Close())
		if seg.ofIDs != nil {
			errs = append(errs, seg.ofIDs.Close())
		}
	}
	if e.model != nil {
		errs = append(errs, e.model.close(), e.readout.close())
	}
	if e.ofIDs != nil {
		errs = append(errs, e.ofIDs.close())
	}
	return errors.Join(append(errs, e.cache.Close())...)
}

// Range is the layers the engine holds.
func (e *Engine) Range() plan.Range { return e.weights.Range }

// Cuts are the engine's segments.
func (e *Engine) Cuts() []plan.Range {
	var cuts []plan.Range
	for _, seg := range e.segments {
		cuts = append(cuts, seg.rng)
	}
	return cuts
}

// Close ends the loop, fails what is queued and gives back what the engine holds, but for the weights.
func (e *Engine) Close() error {
	e.life.Lock()
	if e.closed {
		e.life.Unlock()
		return nil
	}
	e.closed = true
	e.life.Unlock()
	close(e.stop)
	<-e.done
	return e.release()
}

// Work is what the engine has computed so far.
func (e *Engine) Work() (rows int64, busy time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rows, e.busy
}

// SessionsInUse counts the cache slots held by open sessions.
func (e *Engine) SessionsInUse() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opts.Sessions - len(e.free)
}

var errEngineClosed = errors.New("the stage is closed")

// loop gathers batches and runs them.
func (e *Engine) loop() {
	defer close(e.done)
	for {
		var first *request
		if first, e.held = e.held, nil; first == nil {
			select {
			case first = <-e.queue:
			case <-e.stop:
				e.drain()
				return
			}
		}
		e.turn.Lock()
		batch, sessions := e.gather(first)
		e.turnOf(batch, sessions)
		e.turn.Unlock()
	}
}

// turnOf runs a batch. It is called with turn held.
func (e *Engine) turnOf(batch []*request, sessions map[int32]bool) {
	e.step(batch, e.crowd.steady(sessions))
	e.crowd.ran(sessions)
}

// claim takes the turn for a request of one row beside which there is no other, and for which no batch would wait: whoever has
// come with it may run it then, which spares two changes from one thread to another.
func (e *Engine) claim(r *request) bool {
	if r.n > 1 || e.flying.Load() > 1 || !e.turn.TryLock() {
		return false
	}
	e.forget()
	e.meet(r)
	if e.crowd.expect() > 1 {
		e.turn.Unlock()
		return false
	}
	return true
}

// runClaimed runs the request that the turn was claimed for.
func (e *Engine) runClaimed(r *request) {
	defer e.turn.Unlock()
	e.turnOf([]*request{r}, map[int32]bool{r.session: true})
}

// meet tells the crowd what a request is.
func (e *Engine) meet(r *request) {
	e.crowd.groups = r.groups
	e.crowd.meets(r.ask != nil)
}

// gather fills a batch up to maxRows with what is queued, and waits a moment for the sessions that are likely to
// come. In a ring of several stages it leaves the sessions of other groups for the next batch.
func (e *Engine) gather(first *request) (batch []*request, sessions map[int32]bool) {
	rows := 0
	sessions = map[int32]bool{}
	take := func(r *request) {
		batch, rows = append(batch, r), rows+r.n
		sessions[r.session] = true
		e.meet(r)
	}
	e.forget()
	take(first)
	want := e.crowd.expect()
	var patience <-chan time.Time
	for rows < e.maxRows {
		var r *request
		select {
		case r = <-e.queue:
		default:
			if len(sessions) >= want {
				if patience != nil {
					e.crowd.waited(true)
				}
				return batch, sessions
			}
			if patience == nil {
				patience = time.After(e.crowd.patience())
			}
			select {
			case r = <-e.queue:
			case <-patience:
				e.crowd.waited(false)
				return batch, sessions
			case <-e.stop:
				return batch, sessions
			}
		}
		others := e.crowd.full(len(sessions)) && !sessions[r.session] || (r.ids == nil) != (first.ids == nil)
		if others || rows+r.n > e.maxRows {
			e.held = r
			return batch, sessions
		}
		take(r)
	}
	return batch, sessions
}

// forget takes note of sessions that have ended.
func (e *Engine) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.ended {
		e.crowd.forget(id)
	}
	e.ended = e.ended[:0]
}

// drain fails everything still queued.
func (e *Engine) drain() {
	for {
		select {
		case r := <-e.queue:
			r.done(nil, 0, errEngineClosed)
		default:
			return
		}
	}
}

// run executes one batch and completes its requests. When a batch of several sessions fails, the sessions are run one by
// one, so that a session that cannot be computed does not take the others down.
func (e *Engine) run(batch []*request, n int) {
	start := time.Now()
	if err := e.compute(batch, n); err != nil {
		var audit *units.AuditError // a wrong result: nothing of this batch can be trusted
		if len(batch) > 1 && !errors.As(err, &audit) {
			for _, r := range batch {
				e.run([]*request{r}, r.n)
			}
			return
		}
		for _, r := range batch {
			r.done(nil, 0, err)
		}
		return
	}
	took := time.Since(start)
	e.count(n, took)
	for _, r := range batch {
		r.done(r.rows, took, nil)
	}
}

// count adds to Work.
func (e *Engine) count(rows int, took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows += int64(rows)
	e.busy += took
}

// compute fills in the results of a batch, which is of rows or of ids.
func (e *Engine) compute(batch []*request, n int) error {
	rows := make([]units.Row, 0, n)
	in := batch[0].input
	if len(batch) > 1 {
		in = input{}
	}
	var asks []*ask
	keep := e.opts.Trace != nil
	for _, r := range batch {
		keep = keep || r.keep
		for i := range r.n {
			rows = append(rows, units.Row{Slot: r.slot, Pos: r.pos + i})
		}
		if len(batch) > 1 {
			in.hidden, in.ids = append(in.hidden, r.hidden...), append(in.ids, r.ids...)
		}
		if r.ask != nil {
			asks = append(asks, r.ask)
		}
	}
	merged := len(asks) == n && len(e.segments) == 1
	if merged && !keep {
		return e.readWhole(rows, in, asks)
	}
	if in.ids != nil && len(batch) == 1 && len(e.segments) == 1 && !keep && !e.opts.ReturnAll {
		return e.computeLast(rows, batch[0])
	}
	h := in.hidden // the result overwrites the rows
	switch {
	case in.ids != nil && len(batch) == 1:
		h = make([]float32, n*e.hidden) // the request's own
	case in.ids != nil:
		e.layered = slices.Grow(e.layered[:0], n*e.hidden)[:n*e.hidden]
		h = e.layered
	case merged: // what is observed must be what answers at other times, so it answers now too
		in.hidden = slices.Clone(h)
	}
	for i, seg := range e.segments {
		start := time.Now()
		exec, from := seg.exec, h
		if i == 0 && in.ids != nil {
			exec, from = seg.ofIDs, in.ids
		}
		if err := exec.Run(rows, from, h); err != nil {
			return err
		}
		if e.opts.Trace != nil {
			e.trace(batch, h, i, seg.rng, time.Since(start))
		}
	}
	at := 0
	var last []float32 // rows to be read out
	for _, r := range batch {
		end := at + r.n*e.hidden
		switch r.rows = h[at:end:end]; {
		case r.ask != nil:
			last = append(last, h[end-e.hidden:end]...)
		case in.ids != nil && len(batch) > 1: // the memory is the engine's
			r.rows = slices.Clone(e.returned(r.rows))
		}
		at = end
	}
	switch {
	case merged:
		return e.readWhole(rows, in, asks)
	case len(asks) > 0:
		return e.readout.run(make([]units.Row, len(asks)), last, asks)
	}
	return nil
}

// computeLast is compute for a long prompt, of whose rows nobody looks at more than the last: they need not come back.
func (e *Engine) computeLast(rows []units.Row, r *request) error {
	r.rows = make([]float32, e.hidden)
	if err := e.segments[0].ofIDs.Run(rows, r.ids, r.rows); err != nil || r.ask == nil {
		return err
	}
	return e.readout.run(make([]units.Row, 1), r.rows, []*ask{r.ask})
}

// readWhole answers an ask for each row by the program of all layers.
func (e *Engine) readWhole(rows []units.Row, in input, asks []*ask) error {
	if in.ids != nil {
		return e.ofIDs.run(rows, in.ids, asks)
	}
	return e.model.run(rows, in.hidden, asks)
}

// returned is what a near session gives back of the rows of a push.
func (e *Engine) returned(rows []float32) []float32 {
	if e.opts.ReturnAll {
		return rows
	}
	return rows[len(rows)-e.hidden:]
}

func (e *Engine) trace(batch []*request, h []float32, index int, rng plan.Range, took time.Duration) {
	at := 0
	for _, r := range batch {
		rows := h[at : at+r.n*e.hidden]
		at += len(rows)
		e.opts.Trace(Boundary{Session: r.session, Stage: index + 1, Layers: rng, Pos: r.pos, Hashes: rowHashes(rows, e.hidden), Micros: took.Microseconds()})
	}
}

// rowHashes hashes each row of width floats.
func rowHashes(rows []float32, width int) []uint64 {
	hashes := make([]uint64, 0, len(rows)/width)
	for row := range slices.Chunk(rows, width) {
		hashes = append(hashes, transport.RowHash(row))
	}
	return hashes
}
