package cmd

import (
	"fmt"
	"slices"

	"dchain/plan"
	"dchain/stage"
)

// planner makes a plan for stages that were reached.
type planner struct {
	base plan.Plan // everything but the stages
	need plan.Need
	head plan.Stage // layers that the head runs in any case, its score and memory
	// helps lets the head take layers by its score, like the stages, instead of those of head.
	helps bool
}

// plan decides the layers of the head and of each peer: those that peers hold already, or else shares. The last peer reads
// out if it can.
func (p *planner) plan(peers []*stage.Peer) (*plan.Plan, error) {
	if slices.IndexFunc(peers, (*stage.Peer).Fixed) < 0 {
		return p.apportion(peers)
	}
	stages := make([]plan.Stage, len(peers))
	for i, peer := range peers {
		if !peer.Fixed() {
			return nil, usageError("%s holds no layers while others do", peer.Addr.Host).
				hint("start it with --layers, or start all stages without")
		}
		stages[i] = peerStage(peer)
		stages[i].Range = peer.Range()
	}
	made, err := plan.FromRanges(p.base, p.head, stages)
	if err != nil {
		return nil, err
	}
	for i := range made.Stages[:len(made.Stages)-1] { // who is not last holds no readout
		made.Stages[i].Readout = false
	}
	return made, nil
}

// apportion shares out the layers the head does not run in any case over peers that hold none yet.
func (p *planner) apportion(peers []*stage.Peer) (*plan.Plan, error) {
	own := p.head.Range
	if own.Len() > 0 && own.First != 0 {
		return nil, fmt.Errorf("--layers %v: the head's layers start at 0", own)
	}
	need := p.need
	if need.Layers -= own.Len(); need.Layers <= 0 {
		return nil, fmt.Errorf("--layers %v leaves no layers to the stages", own)
	}
	head := plan.Device{ID: "head", Name: p.head.Name, Head: true, Memory: p.head.Memory}
	if own.Len() > 0 && head.Memory > 0 {
		head.Memory = max(head.Memory-p.need.Total(own.Len(), false), 1)
	}
	if p.helps {
		head.Score = p.head.Score
	}
	devices := []plan.Device{head}
	// Where one stage does not tell its capacity, all count the same.
	trips := map[string]float64{}
	known := !slices.ContainsFunc(peers, func(p *stage.Peer) bool { return !(p.Hello.CapacityGMACs > 0) })
	for _, peer := range peers {
		s := peerStage(peer)
		if !known {
			s.Score = 1
			devices[0].Score = min(devices[0].Score, 1)
		}
		id := s.Fingerprint + "@" + s.Addr
		trips[id] = s.RoundTrip
		devices = append(devices, plan.Device{
			ID: id, Name: s.Name, Addr: s.Addr, Fingerprint: s.Fingerprint, Score: s.Score, Memory: s.Memory, Readout: s.Readout,
		})
	}
	stages, err := plan.Apportion(need, devices)
	if err != nil {
		return nil, err
	}
	if own.Len() > 0 {
		stages[0].Range = own
		for i := range stages[1:] {
			stages[i+1].Range.First += own.Len()
			stages[i+1].Range.Last += own.Len()
		}
	}
	for i, s := range stages {
		stages[i].RoundTrip = trips[s.Fingerprint+"@"+s.Addr]
	}
	stages[0].Score, stages[0].GPU = p.head.Score, p.head.GPU
	done := p.base
	done.Stages = stages
	return &done, nil
}

// peerStage is a dialled peer as the plan sees it.
func peerStage(p *stage.Peer) plan.Stage {
	return plan.Stage{
		Name: p.Addr.Host, Addr: p.Addr.Host, Fingerprint: p.Fingerprint(), Score: scoreOf(p.Hello.CapacityGMACs),
		Memory: int64(p.Hello.MemoryBytes), RoundTrip: p.RTT().Seconds(), Readout: p.Hello.Readout,
	}
}

// planFor decides the layers of the head and of each peer, and returns the peers in layer order.
func (c *cluster) planFor(peers []*stage.Peer, needs clusterNeeds) ([]*stage.Peer, error) {
	p := planner{need: c.need(needs), head: plan.Stage{Name: "head", Head: true, Range: c.req.layers}}
	p.base = plan.Plan{
		Model: modelName(c.req.model), Fingerprint: fmt.Sprintf("%x", c.hash), Weights: c.req.mode.String(),
		Layers: c.model.Spec.Layers, Context: c.positions, Sessions: p.need.Sessions,
	}
	var err error
	if c.req.plan == nil {
		c.plan, err = p.plan(peers)
	} else if c.plan = c.req.plan; c.plan.Fingerprint != "" && c.plan.Fingerprint != p.base.Fingerprint {
		err = fmt.Errorf("--plan %s was made for another model, revision or weight format", c.req.clusterFlags.plan)
	} else {
		err = c.plan.Validate(c.model.Spec.Layers)
	}
	if err != nil {
		return nil, usageError("planning %s: %w", modelName(c.req.model), err)
	}
	ordered, err := orderPeers(c.plan, peers)
	if err != nil {
		return nil, err
	}
	// A plan may be older than the stages that it names.
	c.plan.Stages[len(c.plan.Stages)-1].Readout = stage.ReadsOut(ordered)
	p.need.Size(c.plan.Stages)
	return ordered, nil
}

// need counts what the model asks of the machines.
func (c *cluster) need(needs clusterNeeds) plan.Need {
	n := needOf(&c.model.Spec, c.req.mode, c.positions, max(needs.sessions, 1))
	n.Table = stage.TableBytes(c.model)
	return n
}

// orderPeers puts the peers in the order of the plan's stages. A peer the plan leaves out is hung up on.
func orderPeers(p *plan.Plan, peers []*stage.Peer) ([]*stage.Peer, error) {
	rest := slices.Clone(peers)
	var ordered []*stage.Peer
	for _, s := range p.Stages[1:] {
		i := slices.IndexFunc(rest, func(p *stage.Peer) bool {
			return p.Addr.Host == s.Addr && (s.Fingerprint == "" || p.Fingerprint() == s.Fingerprint)
		})
		if i < 0 {
			return nil, fmt.Errorf("the plan's stage %s was not reached", s.Addr)
		}
		ordered = append(ordered, rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	stage.ClosePeers(rest, nil)
	return ordered, nil
}
