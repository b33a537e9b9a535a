package stage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

// Head is stage 0: it embeds ids, passes the hidden states through its stages and reads out logits.
// It serves several sequences at once.
type Head struct {
	Model  *inspect.Model
	stages []Stage
	chunk  int
	reads  bool // the last stage reads out itself
	embeds bool // the first stage embeds itself

	readout readout
	opened  atomic.Int32 // sequences so far

	mu        sync.Mutex       // guards what follows: an executable runs one batch at a time
	embedProj units.Executable // nil where embeddings are as wide as the layers
	embedNorm units.Executable // nil where embeddings have no norm
}

// HeadOptions configures a head.
type HeadOptions struct {
	Stages []Stage // in layer order, together every layer once; all but the last must return all rows
	Chunk  int     // prefill rows per push; 0 is what suits the stages
	Groups int     // in which the sessions that decode go round, so that each of as many machines has one; 0 is 1
}

// DefaultChunk is the number of prompt positions that travel together in a ring: large enough to reuse each weight many
// times, small enough that several chunks of one prompt keep several stages busy.
const DefaultChunk = 64

// chunkOf is the number of prompt positions that travel together. A single near stage on a device that says how many it
// takes well has no ring to keep busy.
func chunkOf(w *Weights, opts HeadOptions) int {
	most := batchRows(w.dev)
	switch {
	case opts.Chunk > 0:
		return min(opts.Chunk, most)
	case len(opts.Stages) == 1 && most > maxBatchRows:
		if e, ok := opts.Stages[0].(*Engine); ok {
			return e.maxRows
		}
	}
	return DefaultChunk
}

// pushWindow bounds the chunks of a sequence in flight in the last stage.
const pushWindow = 4

// NewHead compiles the readout of w, which must have been loaded with Readout, and checks that the stages cover the model.
func NewHead(w *Weights, opts HeadOptions) (*Head, error) {
	next := 0
	for _, s := range opts.Stages {
		if s.Range().First != next {
			return nil, fmt.Errorf("building the head: layers %d to %d are held by nobody", next, s.Range().First-1)
		}
		next = s.Range().Last + 1
	}
	spec := &w.Model.Spec
	if next != spec.Layers {
		return nil, fmt.Errorf("building the head: layers %d to %d are held by nobody", next, spec.Layers-1)
	}
	h := &Head{Model: w.Model, stages: opts.Stages, chunk: chunkOf(w, opts), readout: readout{forms: w.readout(), hidden: spec.Hidden, crowd: crowd{groups: opts.Groups, share: meetingShare, most: meetingMost}}}
	if e, ok := opts.Stages[0].(*Engine); ok {
		h.embeds = e.embeds()
	}
	if h.reads = reads(opts.Stages[len(opts.Stages)-1]); !h.reads && w.lmHead.w == nil {
		return nil, errors.New("building the head: neither it nor the last stage holds the readout")
	}
	var err error
	if w.embedProj.w != nil {
		if h.embedProj, err = w.dev.Compile(projectProgram(spec, w.embedProj)); err != nil {
			return nil, fmt.Errorf("compiling the projection of embeddings: %w", err)
		}
	}
	if w.embedNorm.weight == nil {
		return h, nil
	}
	p, err := embedProgram(spec, w.embedNorm)
	if err != nil {
		return nil, err
	}
	if h.embedNorm, err = w.dev.Compile(p); err != nil {
		return nil, fmt.Errorf("compiling the norm of embeddings: %w", err)
	}
	return h, nil
}

// reads says whether a stage can read out the last row of a push.
func reads(s Stage) bool {
	switch s := s.(type) {
	case *Engine:
		return s.model != nil
	case *Ring:
		return s.reads
	}
	return false
}

// reader is a session of a stage that reads out.
type reader interface {
	pushRead(pos int, hidden []float32, a *ask) error
}

// Cuts are the parts of the model at whose ends the stages report boundaries.
func (h *Head) Cuts() []plan.Range {
	var cuts []plan.Range
	for _, s := range h.stages {
		cuts = append(cuts, s.Cuts()...)
	}
	return cuts
}

// Sequence is one session across the head's stages.
type Sequence struct {
	head     *Head
	id       int32
	sessions []Session
	pos      int
	ask      ask
}

// Open begins a sequence on every stage.
func (h *Head) Open(ctx context.Context) (*Sequence, error) {
	s := &Sequence{head: h, id: h.opened.Add(1)}
	for _, st := range h.stages {
		session, err := st.Open(ctx)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.sessions = append(s.sessions, session)
	}
	return s, nil
}

// Close frees the sequence on every stage.
func (s *Sequence) Close() error {
	var first error
	for _, session := range s.sessions {
		if err := session.Close(); err != nil && first == nil {
			first = err
		}
	}
	s.sessions = nil
	s.head.readout.forget(s.id)
	return first
}

// Forward appends ids and returns the hidden state that the last stage returns: of the last position, or of every
// position when the last stage returns all rows. Long inputs go in chunks, several in flight.
func (s *Sequence) Forward(ctx context.Context, ids []int) ([]float32, error) {
	return s.forward(ctx, ids, nil)
}

// Next appends ids and returns the token that the sampler picks after them, from what is read out together with other
// sequences that ask at the time. history is every id so far, the appended ones included. more says that the token is to be
// appended next: a device may then begin before it is asked.
func (s *Sequence) Next(ctx context.Context, ids []int, sampler *Sampler, history []int, more bool) (int, error) {
	s.ask.top, s.ask.more = sampler.top(), more
	if s.head.reads {
		if _, err := s.forward(ctx, ids, &s.ask); err != nil {
			return 0, err
		}
		return sampler.pick(&s.ask.scores, history), nil
	}
	hidden, err := s.Forward(ctx, ids)
	if err != nil {
		return 0, err
	}
	r := &s.head.readout
	if err := r.row(s.id, hidden[len(hidden)-r.hidden:], &s.ask); err != nil {
		return 0, err
	}
	return sampler.pick(&s.ask.scores, history), nil
}

// forward is Forward; if there is an ask, the last position is read out for it and has no hidden state.
func (s *Sequence) forward(ctx context.Context, ids []int, a *ask) ([]float32, error) {
	last := s.sessions[len(s.sessions)-1]
	var rows []float32
	flying := 0
	pull := func() error {
		out, err := last.Pull(ctx)
		if err != nil {
			return err
		}
		flying--
		rows = append(rows, out...)
		return nil
	}
	for len(ids) > 0 {
		n := min(s.head.chunk, len(ids))
		read := a
		if n < len(ids) {
			read = nil
		}
		if err := s.push(ctx, ids[:n], read); err != nil {
			return nil, err
		}
		ids = ids[n:]
		flying++
		s.pos += n
		if flying == pushWindow {
			if err := pull(); err != nil {
				return nil, err
			}
		}
	}
	for flying > 0 {
		if err := pull(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// push hands ids to the first stage and what comes of them to the last, whose last row is read out if there is an ask.
func (s *Sequence) push(ctx context.Context, ids []int, a *ask) error {
	sessions := s.sessions
	last := sessions[len(sessions)-1]
	var hidden []float32
	var err error
	if s.head.embeds {
		numbers, err := s.head.numbers(ids, s.pos)
		if err != nil {
			return err
		}
		first := sessions[0].(*nearSession)
		if len(sessions) == 1 {
			return first.pushIDs(s.pos, numbers, a)
		}
		if err = first.pushIDs(s.pos, numbers, nil); err != nil {
			return err
		}
		if hidden, err = first.Pull(ctx); err != nil {
			return err
		}
		sessions = sessions[1:]
	} else if hidden, err = s.head.embed(ctx, ids, s.pos); err != nil {
		return err
	}
	for _, session := range sessions[:len(sessions)-1] {
		if err = session.Push(ctx, s.pos, hidden); err != nil {
			return err
		}
		if hidden, err = session.Pull(ctx); err != nil {
			return err
		}
	}
	if a != nil {
		return last.(reader).pushRead(s.pos, hidden, a)
	}
	return last.Push(ctx, s.pos, hidden)
}

// Announce tells every stage which token was picked for position pos.
func (s *Sequence) Announce(pos, id int, text string) {
	for _, session := range s.sessions {
		session.Announce(pos, id, text)
	}
}

// embed reads the embedding rows of ids from the model itself: exact values, no table in memory. They are scaled and
// projected, learned positions are added, and the sum is normalised, where the model has these.
func (h *Head) embed(ctx context.Context, ids []int, pos int) ([]float32, error) {
	spec := &h.Model.Spec
	width := spec.EmbedWidth()
	rows := make([]float32, len(ids)*width)
	// A GPU takes chunks so large that it would wait for one core to read them.
	var rest errgroup.Group
	rest.SetLimit(runtime.GOMAXPROCS(0))
	own := min(DefaultChunk, len(ids))
	for first := own; first < len(ids); first += DefaultChunk {
		end := min(first+DefaultChunk, len(ids))
		rest.Go(func() error { return h.embedTokens(ctx, ids[first:end], pos+first, rows[first*width:end*width]) })
	}
	err := h.embedTokens(ctx, ids[:own], pos, rows[:own*width])
	if restErr := rest.Wait(); err == nil {
		err = restErr
	}
	if err != nil {
		return nil, err
	}
	if rows, err = h.run(h.embedProj, rows, len(ids)); err != nil {
		return nil, fmt.Errorf("projecting embeddings: %w", err)
	}
	if spec.LearnedPos {
		if err := h.addPositions(ctx, rows, pos); err != nil {
			return nil, err
		}
	}
	if rows, err = h.run(h.embedNorm, rows, len(ids)); err != nil {
		return nil, fmt.Errorf("normalising embeddings: %w", err)
	}
	return rows, nil
}

// embedTokens reads the rows of ids, scaled where the model does so.
func (h *Head) embedTokens(ctx context.Context, ids []int, pos int, rows []float32) error {
	spec := &h.Model.Spec
	width := spec.EmbedWidth()
	for i, id := range ids {
		if err := h.checkID(id, pos+i); err != nil {
			return err
		}
		if err := h.embedRow(ctx, inspect.RoleEmbed, id, rows[i*width:][:width]); err != nil {
			return err
		}
	}
	units.Flush(rows)
	if scale := float32(spec.EmbedScale); scale != 0 {
		for k := range rows {
			rows[k] *= scale
		}
		units.Flush(rows)
	}
	return nil
}

// checkID refuses a token that the model does not know.
func (h *Head) checkID(id, pos int) error {
	if vocab := h.Model.Spec.Vocab; id < 0 || id >= vocab {
		return fmt.Errorf("embedding position %d: token id %d is outside the vocabulary of %d", pos, id, vocab)
	}
	return nil
}

// numbers are ids as an engine takes them.
func (h *Head) numbers(ids []int, pos int) ([]float32, error) {
	n := make([]float32, len(ids))
	for i, id := range ids {
		if err := h.checkID(id, pos+i); err != nil {
			return nil, err
		}
		n[i] = float32(id)
	}
	return n, nil
}

// run passes n rows of embeddings through a program, or as they are where there is none.
func (h *Head) run(exec units.Executable, rows []float32, n int) ([]float32, error) {
	if exec == nil {
		return rows, nil
	}
	out := make([]float32, n*h.Model.Spec.Hidden)
	h.mu.Lock()
	defer h.mu.Unlock()
	return out, exec.Run(make([]units.Row, n), rows, out)
}

// addPositions adds the learned positions pos, pos+1, ... to rows.
func (h *Head) addPositions(ctx context.Context, rows []float32, pos int) error {
	spec := &h.Model.Spec
	learned := make([]float32, spec.Hidden)
	for i := range len(rows) / spec.Hidden {
		if pos+i >= spec.MaxPos {
			return &ContextError{Context: spec.MaxPos, Need: pos + i + 1}
		}
		if err := h.embedRow(ctx, inspect.RolePosEmbed, pos+i+spec.PosOffset, learned); err != nil {
			return err
		}
		units.Flush(learned)
		row := rows[i*spec.Hidden:][:spec.Hidden]
		for k, v := range learned {
			row[k] += v
		}
		units.Flush(row)
	}
	return nil
}

func (h *Head) embedRow(ctx context.Context, role inspect.Role, index int, row []float32) error {
	name := h.Model.Spec.WeightNames(role, 0)[0]
	t, ok := h.Model.Index.Tensors[name]
	if !ok {
		return fmt.Errorf("embedding: tensor %q is not in the model", name)
	}
	return h.Model.Floats(ctx, t, int64(index)*int64(len(row)), int64(len(row)), row)
}
