package stage

import (
	"context"
	"errors"
	"time"

	"dchain/inspect"
	"dchain/plan"
	"dchain/transport"
	"dchain/units"
	"dchain/units/vk"
)

// take gives a member the layers of its assignment. Assignments take turns: of two at once, the second finds what the first has
// loaded.
func (s *Server) take(ctx context.Context, m *member) (*holding, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	held, err := s.hold(ctx, m.assign)
	if err == nil {
		m.hold(held)
	}
	return held, err
}

// busy says whether a ring computes here. The one whose turn it is has nothing to compute with yet.
func (s *Server) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.rings {
		if m.holds() {
			return true
		}
	}
	return false
}

// hold returns the layers an assignment asks for: the ones held, or freshly loaded ones when no ring uses the old.
func (s *Server) hold(ctx context.Context, a *transport.Assignment) (*holding, error) {
	rng := plan.Range{First: int(a.First), Last: int(a.Last)}
	if units.WeightMode(a.Weights) != s.opts.Mode {
		return nil, refuse(transport.FaultWeights, "the stage serves %v weights, the head asks for %v", s.opts.Mode, units.WeightMode(a.Weights))
	}
	if int(a.Context) > s.opts.Context {
		return nil, refuse(transport.FaultContext, "the stage holds a context of %s, the head asks for %d: restart it with --ctx %d", plan.Plural(s.opts.Context, "position"), a.Context, a.Context)
	}
	if int(a.Sessions) > s.opts.Sessions {
		return nil, refuse(transport.FaultAssignment, "the stage serves %s, the head asks for %d: restart it with --max-sessions %d", plan.Plural(s.opts.Sessions, "session"), a.Sessions, a.Sessions)
	}
	if err := s.demote(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held == nil && s.opts.Range.Len() > 0 { // given back with a device
		var err error
		if held, err = s.loadFixed(ctx); err != nil {
			return nil, refuse(transport.FaultLoad, "%v", err)
		}
	}
	if held != nil {
		same := held.fingerprint == a.Fingerprint && held.rng == rng
		spec := &held.model.Spec
		fits := spec.LongContext(held.engine.opts.Context) == spec.LongContext(int(a.Context))
		if same && fits {
			return held, nil
		}
		if s.opts.Range.Len() > 0 && same {
			return nil, refuse(transport.FaultContext, "the stage holds a context of %d positions, whose rotary positions are others than those of %d: restart it with --ctx %d", held.engine.opts.Context, a.Context, a.Context)
		}
		if s.opts.Range.Len() > 0 {
			return nil, s.refusal(held, a, rng)
		}
		if s.busy() {
			return nil, refuse(transport.FaultBusy, "the stage is serving layers %v of %s to another head", held.rng, held.name)
		}
		s.mu.Lock()
		s.held = nil
		s.mu.Unlock()
		held.close()
	}
	model, err := s.model(ctx, a)
	if err != nil {
		return nil, err
	}
	positions := s.opts.Context
	if spec := &model.Spec; spec.LongContext(positions) != spec.LongContext(int(a.Context)) {
		positions = int(a.Context)
	}
	held, err = s.load(ctx, model, rng, positions)
	if err != nil {
		return nil, refuse(transport.FaultLoad, "%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	return held, nil
}

// loadFirst loads the layers that are fixed when the stage starts, on the next best device as long as one is of no use for them.
func (s *Server) loadFirst(ctx context.Context) error {
	for {
		_, err := s.loadFixed(ctx)
		if s.opts.Demote == nil || !units.Unusable(err) && !errors.Is(err, vk.ErrOutOfMemory) {
			return err
		}
		s.condemn(err)
		if err := s.demote(ctx); err != nil {
			return err
		}
	}
}

// loadFixed loads the layers that are fixed.
func (s *Server) loadFixed(ctx context.Context) (*holding, error) {
	held, err := s.load(ctx, s.opts.Model, s.opts.Range, s.opts.Context)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	return held, nil
}

// condemn notes that the device gave a wrong bit or is lost. The rings that compute with it fail; an assignment takes another.
func (s *Server) condemn(err error) {
	s.mu.Lock()
	first := s.condemned == nil
	if first {
		s.condemned = err
	}
	s.mu.Unlock()
	if first {
		s.event("the device is not used any more: %v", err)
	}
}

// demote replaces a device that is condemned. What was loaded on it is given back.
func (s *Server) demote(ctx context.Context) error {
	s.mu.Lock()
	why, held := s.condemned, s.held
	s.mu.Unlock()
	switch {
	case why == nil:
		return nil
	case s.opts.Demote == nil:
		return refuse(transport.FaultAudit, "the stage computes nothing more, its device is not used any more (%v): restart it with another --backend", why)
	case s.busy():
		return refuse(transport.FaultBusy, "the stage's device is not used any more (%v): it takes another when the other heads have left", why)
	}
	if held != nil {
		s.mu.Lock()
		s.held = nil
		s.mu.Unlock()
		held.close()
	}
	device, local, err := s.opts.Demote(ctx)
	if err != nil {
		s.opts.Demote = nil
		return refuse(transport.FaultAudit, "the stage's device is not used any more (%v), and there is no other: %v", why, err)
	}
	units.Metrics.Demotions.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.device, s.local, s.condemned = device, local, nil
	return nil
}

// refusal says in what an assignment differs from the fixed layers.
func (s *Server) refusal(held *holding, a *transport.Assignment, rng plan.Range) error {
	if held.fingerprint != a.Fingerprint {
		return refuse(transport.FaultModel, "the stage holds %s, the head asks for another model or revision (%s)", held.name, a.Model)
	}
	return refuse(transport.FaultLayers, "the stage holds layers %v, the head asks for %v", held.rng, rng)
}

// model opens the assigned model, for which the device may have to make way for another, and checks that it is the head's.
func (s *Server) model(ctx context.Context, a *transport.Assignment) (*inspect.Model, error) {
	m := s.opts.Model
	for m == nil {
		var err error
		if m, err = s.opts.OpenModel(ctx, a.Model); err == nil {
			break
		}
		if !units.Unusable(err) {
			return nil, refuse(transport.FaultLoad, "%v", err)
		}
		s.condemn(err)
		if err := s.demote(ctx); err != nil {
			return nil, err
		}
	}
	if m.Fingerprint(s.opts.Mode.String(), units.NumericsVersion) != a.Fingerprint {
		return nil, refuse(transport.FaultModel, "the stage opens %s, which is another model or revision than the head's", m.Source.ID())
	}
	return m, nil
}

func (s *Server) load(ctx context.Context, m *inspect.Model, rng plan.Range, positions int) (_ *holding, err error) {
	defer func() {
		if units.Unusable(err) {
			s.condemn(err)
		}
	}()
	start := time.Now()
	before := m.Source.Stats().Bytes
	if m.Spec.MaxPos > 0 {
		positions = min(positions, m.Spec.MaxPos)
	}
	s.mu.Lock()
	device := s.device
	s.mu.Unlock()
	w, err := Load(ctx, m, device, LoadOptions{
		Range: rng, Readout: s.opts.Readout && rng.Last == m.Spec.Layers-1, Mode: s.opts.Mode, Context: positions, Progress: s.opts.Progress, Cache: s.opts.Cache, Note: s.opts.Event,
	})
	if err != nil {
		return nil, err
	}
	engine, err := NewEngine(w, EngineOptions{Context: positions, Sessions: s.opts.Sessions})
	if err != nil {
		w.Close()
		return nil, err
	}
	return &holding{
		model: m, name: m.Source.ID(), fingerprint: m.Fingerprint(s.opts.Mode.String(), units.NumericsVersion), rng: rng, weights: w, engine: engine,
		bytesRead: m.Source.Stats().Bytes - before, loadTime: time.Since(start),
	}, nil
}
