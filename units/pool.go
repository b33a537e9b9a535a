package units

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// pool spreads the chunks of one job at a time over its workers and the caller. A caller that finds the workers taken
// by another job computes alone: it has a core already.
//
// A worker is a thread of its own, on another processor than the caller and the other workers when a step begins: on a
// machine with little to do the system tends to wake a thread where the one that woke it runs, and to leave it there for
// milliseconds. Workers look for the next job while a step is being computed and for a moment after it, since the
// operations of a step follow each other within microseconds and waking a sleeping core costs more than most of them.
// Then they park.
type pool struct {
	cur     atomic.Pointer[job]
	steps   atomic.Int32 // being computed
	workers []*poolWorker
	at      []atomic.Int32 // processor where each worker, the caller first, was last seen; -1 for unknown
	placing sync.Mutex     // held to move a worker
	stop    atomic.Bool
	wg      sync.WaitGroup
}

type poolWorker struct {
	parked atomic.Bool
	wake   chan struct{} // capacity 1; sent by whoever clears parked; never closed
}

const (
	spinFor   = 30 * time.Microsecond  // how long a worker after a step, or a caller, looks before it parks
	spinBatch = 16                     // looks between two readings of the clock
	yieldFor  = 200 * time.Microsecond // how long a worker looks during a step before it lets others run
)

// job is a counted loop. It may be used again when run has returned.
type job struct {
	fn     func(worker, chunk int)
	chunks atomic.Int64
	next   atomic.Int64
	// state is jobOpen while workers may join, plus the number inside, plus jobWaiting when the caller is parked.
	state atomic.Int64
	done  chan struct{} // capacity 1; sent by the last worker to leave a job whose caller is parked
}

const (
	jobOpen    = 1 << 40
	jobWaiting = 1 << 41
)

func newJob() *job { return &job{done: make(chan struct{}, 1)} }

// spareProcs is how many goroutines can run beside the threads of a pool: those that serve the network, and keep.
const spareProcs = 2

// givenProcs is GOMAXPROCS as it was given to the process.
var givenProcs = runtime.GOMAXPROCS(0)

// newPool starts threads-1 workers, numbered from 1; the caller of run is worker 0. It raises GOMAXPROCS, since workers do
// not give way to other goroutines while a step is computed.
func newPool(threads int) *pool {
	if n := threads + spareProcs; runtime.GOMAXPROCS(0) < n {
		runtime.GOMAXPROCS(n)
	}
	p := &pool{at: make([]atomic.Int32, threads)}
	for i := range p.at {
		p.at[i].Store(-1)
	}
	for i := 1; i < threads; i++ {
		w := &poolWorker{wake: make(chan struct{}, 1)}
		p.workers = append(p.workers, w)
		p.wg.Add(1)
		go p.serve(w, i)
	}
	return p
}

// close stops the workers and waits for them.
func (p *pool) close() {
	p.stop.Store(true)
	p.wakeAll()
	p.wg.Wait()
}

// begin wakes the workers for a step of several jobs, end lets them park.
func (p *pool) begin() {
	p.steps.Add(1)
	if len(p.workers) > 0 {
		p.at[0].Store(processor())
		p.wakeAll()
	}
	stepping()
}

func (p *pool) end() { p.steps.Add(-1) }

// place moves the calling worker if another one, or the caller of the step, was last seen on its processor.
func (p *pool) place(id int) {
	here := processor()
	p.at[id].Store(here)
	if here < 0 || !p.taken(here, id) {
		return
	}
	p.placing.Lock()
	defer p.placing.Unlock()
	for _, cpu := range processors() {
		if !p.taken(cpu, id) {
			moveTo(cpu)
			p.at[id].Store(cpu)
			return
		}
	}
}

// taken says whether a worker other than id was last seen on a processor.
func (p *pool) taken(cpu int32, id int) bool {
	for i := range p.at {
		if i != id && p.at[i].Load() == cpu {
			return true
		}
	}
	return false
}

var (
	lastStep atomic.Int64 // when a step of any pool began last, in nanoseconds
	kept     atomic.Bool  // keep runs
)

// stepping starts keep at the first of a series of steps.
func stepping() {
	lastStep.Store(time.Now().UnixNano())
	if !kept.Load() && kept.CompareAndSwap(false, true) {
		go func() {
			defer kept.Store(false)
			keep(func() time.Time { return time.Unix(0, lastStep.Load()) })
		}()
	}
}

func (p *pool) wakeAll() {
	for _, w := range p.workers {
		if w.parked.Load() && w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// run calls fn(worker, chunk) once for each chunk below chunks and returns when all have returned.
func (p *pool) run(j *job, chunks int, fn func(worker, chunk int)) {
	if len(p.workers) == 0 || chunks < 2 || p.cur.Load() != nil {
		for i := range chunks {
			fn(0, i)
		}
		return
	}
	j.fn = fn
	j.chunks.Store(int64(chunks))
	j.next.Store(0)
	j.state.Store(jobOpen)
	if p.cur.CompareAndSwap(nil, j) {
		p.wakeAll()
		j.work(0)
		p.cur.Store(nil)
	} else {
		j.work(0)
	}
	j.finish()
}

// work takes chunks until none is left.
func (j *job) work(worker int) {
	for {
		i := j.next.Add(1) - 1
		if i >= j.chunks.Load() {
			return
		}
		j.fn(worker, int(i))
	}
}

// join enters an open job.
func (j *job) join() bool {
	for {
		s := j.state.Load()
		if s&jobOpen == 0 {
			return false
		}
		if j.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

func (j *job) leave() {
	if j.state.Add(-1) == jobWaiting {
		j.done <- struct{}{}
	}
}

// finish closes the job and waits until every worker has left it.
func (j *job) finish() {
	if j.state.Add(-jobOpen) == 0 {
		return
	}
	for end := time.Now().Add(spinFor); time.Now().Before(end); {
		for range spinBatch {
			if j.state.Load() == 0 {
				return
			}
		}
	}
	if j.state.Add(jobWaiting) > jobWaiting {
		<-j.done
	}
	j.state.Store(0)
}

// serve is the loop of one worker.
func (p *pool) serve(w *poolWorker, id int) {
	defer p.wg.Done()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for !p.stop.Load() {
		if j := p.await(w, id); j != nil && j.join() {
			j.work(id)
			j.leave()
		}
	}
}

// await returns the current job, or nil when it was woken for none.
func (p *pool) await(w *poolWorker, id int) *job {
	now := time.Now()
	end, yield := now.Add(spinFor), now.Add(yieldFor)
	for ; p.steps.Load() > 0 || now.Before(end); now = time.Now() {
		for range spinBatch {
			if j := p.cur.Load(); j != nil && j.open() {
				return j
			}
		}
		if p.stop.Load() {
			return nil
		}
		if now.After(yield) { // the thread sleeps and wakes for it
			runtime.Gosched()
			yield = time.Now().Add(yieldFor)
		}
	}
	w.parked.Store(true)
	if j := p.cur.Load(); (j != nil && j.open()) || p.stop.Load() {
		if w.parked.CompareAndSwap(true, false) {
			return j
		}
	}
	<-w.wake
	p.place(id)
	return p.cur.Load()
}

// open says whether the job still takes workers and has chunks left.
func (j *job) open() bool {
	return j.state.Load()&jobOpen != 0 && j.next.Load() < j.chunks.Load()
}
