package units

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"dchain/units/vk"
)

const (
	// statusWords are the words of status.glsl before the counters.
	statusWords = 2
	// downOut is where Out begins in the buffer that is copied down, after those words.
	downOut = 256
	// maxVulkanOps and maxVulkanRows are what the status word has room for.
	maxVulkanOps  = 1 << 16
	maxVulkanRows = 1<<16 - 1
	// maxRecordings is how many shapes of batch an executable keeps recorded.
	maxRecordings = 24
	noFailure     = math.MaxUint32
)

// vulkanExecutable is a program on a Vulkan device. A step copies rows and positions up, executes one recorded command
// buffer and copies the result and the status down, all in one submission.
type vulkanExecutable struct {
	dev      *vulkanDevice
	prog     Program
	maxRows  int // of one submission
	attends  bool
	busy     atomic.Bool
	capacity int // rows that the buffers below have room for

	positions int  // of a session; 0 is any number
	alone     bool // no step is run ahead

	bufs  []*vk.Buffer // per buffer of the program
	step  *vk.Buffer   // status words, counters, then rows
	lanes [2]lane      // the second for steps that are run ahead

	flights []flight // begun and not awaited, at most as many as lanes

	counters int   // of chained dispatches
	rowsAt   int64 // where the rows begin in step: a multiple of every offset alignment

	scratch    scratchPool
	recordings map[recordingKey]*recording
	order      []recordingKey // of recordings, the one used last at the end
	audit      *vulkanAuditor // nil for none
	profile    bool           // new recordings take the time of each dispatch
}

// lane is what the host shares with a step while it is under way.
type lane struct {
	up   *vk.Buffer // step, then In
	down *vk.Buffer // status words, then Out, from downOut
}

// batchShape is what the operations of a recording are made for.
type batchShape struct{ rows, context int }

// recordingKey is what a recording is made for.
type recordingKey struct {
	batchShape
	lane    int
	follows bool // In comes from the step before
	last    bool // of Out the last row alone is copied down
}

func (d *vulkanDevice) Compile(p Program) (Executable, error) {
	p.Bufs = append([]BufSpec(nil), p.Bufs...)
	p.Ops = append([]Op(nil), p.Ops...)
	e := &vulkanExecutable{dev: d, prog: p, scratch: scratchPool{}, recordings: map[recordingKey]*recording{}}
	e.counters = len(p.Ops)
	e.rowsAt = int64(padded(4*(statusWords+e.counters), 256))
	err := (&checker{dev: d, p: &e.prog}).check()
	if err == nil && len(p.Ops) > maxVulkanOps {
		err = fmt.Errorf("%d operations, at most %d", len(p.Ops), maxVulkanOps)
	}
	if err == nil {
		err = e.size()
	}
	if err != nil {
		return nil, fmt.Errorf("compiling a program: %w", err)
	}
	e.positions, e.alone = p.positions(), !followable(&e.prog)
	if d.auditEvery > 0 {
		e.audit = newVulkanAuditor(e, d.auditEvery, d.compiled.Add(1))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs = append(d.runs, e)
	return e, nil
}

// size finds how many rows fit the buffers.
func (e *vulkanExecutable) size() error {
	widest := 8 + rowBytes(e.prog.Bufs[e.prog.In]) // what a row takes of what is copied up
	for _, b := range e.prog.Bufs {
		widest = max(widest, rowBytes(b))
	}
	e.maxRows = int(min(maxVulkanRows, (e.dev.info.MaxRange-e.rowsAt)/widest))
	if e.maxRows < 1 {
		return fmt.Errorf("a row of %d bytes, the device binds %d", widest, e.dev.info.MaxRange)
	}
	for i := range e.prog.Ops {
		op := &e.prog.Ops[i]
		e.attends = e.attends || op.Kind == OpAttend
		if op.Kind == OpExperts {
			e.maxRows = min(e.maxRows, e.expertRows(op))
		}
	}
	if e.maxRows < 1 {
		return fmt.Errorf("the experts of a row need more than the %d bytes that the device binds", e.dev.info.MaxRange)
	}
	return nil
}

// rowBytes is what a row takes in a buffer.
func rowBytes(b BufSpec) int64 {
	if b.Kind == Limbs {
		return limbsRowBytes(b.Width)
	}
	return 4 * int64(b.Width)
}

func (e *vulkanExecutable) Close() error {
	d := e.dev
	d.mu.Lock()
	d.runs = slices.DeleteFunc(d.runs, func(x *vulkanExecutable) bool { return x == e })
	d.mu.Unlock()
	e.drop()
	return nil
}

// enter guards against two calls at a time, and against a device that is not used any more.
func (e *vulkanExecutable) enter() error {
	if !e.busy.CompareAndSwap(false, true) {
		return errRunning
	}
	if err := e.dev.verdict.allow(); err != nil {
		e.busy.Store(false)
		return err
	}
	return nil
}

// takes says why a step cannot begin with these arguments, or at this time.
func (e *vulkanExecutable) takes(rows []Row, in, out []float32) error {
	if len(e.flights) > 0 {
		return errUnderWay
	}
	if err := e.prog.checkRows(rows, in, out); err != nil {
		return fmt.Errorf("running a program: %w", err)
	}
	return nil
}

// failing notes an error of a step.
func (e *vulkanExecutable) failing(err error) error {
	e.dev.verdict.note(err)
	return fmt.Errorf("running a program: %w", err)
}

func (e *vulkanExecutable) Run(rows []Row, in, out []float32) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.busy.Store(false)
	if err := e.takes(rows, in, out); err != nil {
		return err
	}
	if err := e.submitAll(rows, in, out); err != nil {
		return e.failing(err)
	}
	return nil
}

// submitAll runs rows in as many submissions as they take.
func (e *vulkanExecutable) submitAll(rows []Row, in, out []float32) error {
	inWidth, outWidth := e.prog.Bufs[e.prog.In].Width, e.prog.Bufs[e.prog.Out].Width
	for first := 0; first < len(rows); first += e.maxRows {
		end := min(first+e.maxRows, len(rows))
		to := out // of which the last part leaves the last row
		if len(out) > outWidth {
			to = out[first*outWidth : end*outWidth]
		}
		if err := e.submit(rows[first:end], in[first*inWidth:end*inWidth], to); err != nil {
			var oe *OpError
			var ae *AuditError
			if errors.As(err, &oe) {
				oe.Row += first
			} else if errors.As(err, &ae) {
				ae.Row += first
			}
			return err
		}
	}
	return nil
}

// submit runs as many rows as one submission takes, and waits for them.
func (e *vulkanExecutable) submit(rows []Row, in, out []float32) error {
	f := flight{rows: rows, in: in, out: out}
	if err := e.fly(&f); err != nil {
		return err
	}
	return e.land(&f)
}

// recordingOf is the recording for a step.
func (e *vulkanExecutable) recordingOf(f *flight) (*recording, error) {
	if err := e.reserve(len(f.rows)); err != nil {
		return nil, err
	}
	if err := e.reserveLane(f.lane); err != nil {
		return nil, err
	}
	return e.recorded(recordingKey{batchShape{len(f.rows), e.contextOf(f.rows)}, f.lane, f.in == nil, e.lastOnly(f)})
}

// lastOnly says that of the rows of a step the last alone is wanted.
func (e *vulkanExecutable) lastOnly(f *flight) bool {
	return len(f.out) < len(f.rows)*e.prog.Bufs[e.prog.Out].Width
}

// fill writes what the step copies up: of In only what there is.
func (e *vulkanExecutable) fill(l *lane, rows []Row, in []float32) {
	up := l.up.Bytes()
	clear(up[:e.rowsAt])
	binary.LittleEndian.PutUint32(up, noFailure)
	for i, row := range rows {
		at := int(e.rowsAt) + 8*i
		binary.LittleEndian.PutUint32(up[at:], uint32(row.Slot))
		binary.LittleEndian.PutUint32(up[at+4:], uint32(row.Pos))
	}
	to := floats32(up[e.inOffset():])
	inChunks(len(in), func(first, end int) { copy(to[first:end], in[first:end]) })
}

// inOffset is where In lies in up.
func (e *vulkanExecutable) inOffset() int { return int(e.rowsAt) + 8*e.capacity }

// failed says whether an operation of the step could not compute a row.
func (l *lane) failed() bool { return binary.LittleEndian.Uint32(l.down.Bytes()) != noFailure }

// collect reads what the step copied down.
func (e *vulkanExecutable) collect(l *lane, rows int, out []float32) error {
	down := l.down.Bytes()
	if s := binary.LittleEndian.Uint32(down); l.failed() {
		op, row := &e.prog.Ops[s>>16], int(s&0xffff)
		if op.Kind == OpExperts {
			row /= op.TopK // they count rows by expert
		}
		return &OpError{op.Kind, op.Layer, row, op.failure()}
	}
	if i := copyFinite(out, floats32(down[downOut:])); i >= 0 {
		op := e.prog.lastWriter()
		width := e.prog.Bufs[e.prog.Out].Width
		return &OpError{op.Kind, op.Layer, rows - len(out)/width + i/width, errNotFinite}
	}
	return nil
}

// copyFinite copies and returns notFinite.
func copyFinite(dst, src []float32) int {
	var mu sync.Mutex
	bad := len(dst)
	inChunks(len(dst), func(first, end int) {
		copy(dst[first:end], src[first:end])
		if i := notFinite(dst[first:end]); i >= 0 {
			mu.Lock()
			bad = min(bad, first+i)
			mu.Unlock()
		}
	})
	if bad == len(dst) {
		return -1
	}
	return bad
}

// inChunks calls f for all of n values, side by side if they are many: the rows of a long prompt, or the logits of many sessions,
// are tens of megabytes, more than one core copies in a small part of a step.
func inChunks(n int, f func(first, end int)) {
	const chunk = 1 << 18
	if n <= chunk {
		f(0, n)
		return
	}
	var chunks sync.WaitGroup
	for first := 0; first < n; first += chunk {
		chunks.Go(func() { f(first, min(first+chunk, n)) })
	}
	chunks.Wait()
}

// contextOf bounds the positions that the rows see, coarsely, so that few recordings serve a long session.
func (e *vulkanExecutable) contextOf(rows []Row) int {
	if !e.attends {
		return 0
	}
	last := 0
	for _, r := range rows {
		last = max(last, r.Pos)
	}
	n := blockPositions
	for n <= last {
		n *= 2
	}
	return min(n, e.prog.Cache.Spec().Context)
}

// reserve makes room for rows, a power of two of them. Recordings hold the old buffers, so they go.
func (e *vulkanExecutable) reserve(rows int) error {
	if rows <= e.capacity {
		return nil
	}
	e.drop()
	n := 1
	for n < rows {
		n *= 2
	}
	n = min(n, e.maxRows)
	var err error
	for _, b := range e.prog.Bufs {
		var buf *vk.Buffer
		if buf, err = e.dev.vk.NewBuffer(int64(n)*rowBytes(b), vk.Local); err != nil {
			break
		}
		e.bufs = append(e.bufs, buf)
	}
	if err == nil {
		e.step, err = e.dev.vk.NewBuffer(e.rowsAt+8*int64(n), vk.Local)
	}
	if err != nil {
		e.drop()
		return err
	}
	e.capacity = n
	return nil
}

// reserveLane makes the buffers of a lane, for as many rows as the others.
func (e *vulkanExecutable) reserveLane(i int) error {
	l := &e.lanes[i]
	if l.down != nil {
		return nil
	}
	n := int64(e.capacity)
	up, err := e.dev.vk.NewBuffer(int64(e.inOffset())+n*rowBytes(e.prog.Bufs[e.prog.In]), vk.Upload)
	if err != nil {
		return err
	}
	down, err := e.dev.vk.NewBuffer(downOut+n*rowBytes(e.prog.Bufs[e.prog.Out]), vk.Readback)
	if err != nil {
		up.Free()
		return err
	}
	*l = lane{up, down}
	return nil
}

// drop frees the recordings and buffers.
func (e *vulkanExecutable) drop() {
	e.abandon()
	for shape := range e.recordings {
		e.forget(shape)
	}
	e.order = nil
	if e.audit != nil {
		e.audit.drop()
	}
	for _, b := range append(e.bufs, e.step, e.lanes[0].up, e.lanes[0].down, e.lanes[1].up, e.lanes[1].down) {
		if b != nil {
			b.Free()
		}
	}
	e.bufs, e.step, e.lanes, e.capacity = nil, nil, [2]lane{}, 0
}

func (e *vulkanExecutable) forget(key recordingKey) {
	e.recordings[key].free()
	delete(e.recordings, key)
}

// recorded is the recording for a key, made if there is none. Nothing that it frees is under way: that is used with the other lane,
// and was used last.
func (e *vulkanExecutable) recorded(key recordingKey) (*recording, error) {
	if i := slices.Index(e.order, key); i >= 0 {
		e.order = slices.Delete(e.order, i, i+1)
		if r := e.recordings[key]; !r.chain.on || !e.dev.unchained.Load() {
			e.order = append(e.order, key)
			return r, nil
		}
		e.forget(key)
	}
	if len(e.order) == maxRecordings {
		e.forget(e.order[0])
		e.order = e.order[1:]
	}
	r := e.newRecording(key.batchShape)
	r.lane, r.follows, r.last = &e.lanes[key.lane], key.follows, key.last
	err := e.compile(key.batchShape)
	if err == nil {
		err = r.record()
	}
	if err != nil {
		r.free()
		return nil, fmt.Errorf("recording %d rows: %w", key.rows, err)
	}
	e.recordings[key] = r
	e.order = append(e.order, key)
	return r, nil
}

// cutOf is the recording that is cut between groups, made if there is none.
func (e *vulkanExecutable) cutOf(whole *recording) (*recording, error) {
	if whole.cut == nil {
		r := e.newRecording(batchShape{whole.rows, whole.context})
		r.cuts, r.profile, r.chain.on = true, false, false
		r.scratch, r.lane, r.follows, r.last = whole.scratch, whole.lane, whole.follows, whole.last
		if err := r.record(); err != nil {
			r.cmds.Free()
			return nil, fmt.Errorf("recording %d rows for an audit: %w", whole.rows, err)
		}
		whole.cut = r
	}
	return whole.cut, nil
}

func (e *vulkanExecutable) newRecording(shape batchShape) *recording {
	return &recording{dev: e.dev, exec: e, prog: &e.prog, rows: shape.rows, context: shape.context, profile: e.profile,
		cmds: e.dev.vk.NewCommands(), scratch: e.scratch.forRecording(), chain: chain{on: shape.rows == 1 && !e.profile && !e.dev.unchained.Load()}}
}

// partOf is the part of a list with cuts that a group is.
func partOf(group int) int { return 1 + group }

// record records a step: what it takes over, the operations, what it hands out.
func (r *recording) record() error {
	r.takeOver()
	r.cmds.CopyBarrier()
	if r.profile {
		r.cmds.Timestamp()
	}
	if r.cuts {
		r.cmds.Cut()
	}
	r.ops()
	r.cmds.CopyBarrier()
	r.handOut()
	r.cmds.CopyBarrier()
	if r.err == nil {
		r.err = r.cmds.End()
	}
	return r.err
}
