package cmd

import (
	"fmt"
	"slices"

	"dchain/plan"
	"dchain/stage"
)

// planFor decides the layers of the head and of each peer, and returns the peers in layer order.
func (c *cluster) planFor(peers []*stage.Peer, needs clusterNeeds) ([]*stage.Peer, error) {
	need := needOf(&c.model.Spec, c.req.mode, c.positions, max(needs.sessions, 1))
	base := plan.Plan{
		Model: modelName(c.req.model), Fingerprint: fmt.Sprintf("%x", c.hash), Weights: c.req.mode.String(),
		Layers: c.model.Spec.Layers, Context: c.positions, Sessions: max(needs.sessions, 1),
	}
	head := plan.Stage{Name: "head", Head: true, Range: c.req.layers}
	fixed := slices.IndexFunc(peers, (*stage.Peer).Fixed) >= 0
	var err error
	switch {
	case c.req.plan != nil:
		c.plan = c.req.plan
		err = c.plan.Validate(c.model.Spec.Layers)
	case fixed:
		stages := make([]plan.Stage, len(peers))
		for i, p := range peers {
			if !p.Fixed() {
				return nil, usageError("%s holds no layers while others do", p.Addr.Host).
					hint("start it with --layers, or start all stages without")
			}
			stages[i] = peerStage(p)
			stages[i].Range = p.Range()
		}
		c.plan, err = plan.FromRanges(base, head, stages)
	default:
		base.Stages, err = c.apportion(peers, need)
		c.plan = &base
	}
	if err != nil {
		return nil, usageError("planning %s: %w", modelName(c.req.model), err)
	}
	for i := range c.plan.Stages {
		need.Size(&c.plan.Stages[i])
	}
	return orderPeers(c.plan, peers)
}

// apportion shares out the layers the head does not run over peers that hold none yet.
func (c *cluster) apportion(peers []*stage.Peer, need plan.Need) ([]plan.Stage, error) {
	if c.req.layers.Len() > 0 && c.req.layers.First != 0 {
		return nil, fmt.Errorf("--layers %v: the head's layers start at 0", c.req.layers)
	}
	own := c.req.layers.Len()
	need.Layers -= own
	devices := []plan.Device{{ID: "head", Name: "head", Head: true}}
	// Where one stage does not tell its capacity, all count the same.
	known := !slices.ContainsFunc(peers, func(p *stage.Peer) bool { return !(p.Hello.CapacityGMACs > 0) })
	for _, p := range peers {
		s := peerStage(p)
		if !known {
			s.Score = 1
		}
		devices = append(devices, plan.Device{ID: s.Fingerprint + "@" + s.Addr, Name: s.Name, Addr: s.Addr, Fingerprint: s.Fingerprint, Score: s.Score, Memory: s.Memory})
	}
	stages, err := plan.Apportion(need, devices)
	if err != nil {
		return nil, err
	}
	stages[0].Range = c.req.layers
	for i := range stages[1:] {
		stages[i+1].Range.First += own
		stages[i+1].Range.Last += own
	}
	return stages, nil
}

// peerStage is a dialled peer as the plan sees it.
func peerStage(p *stage.Peer) plan.Stage {
	return plan.Stage{Name: p.Addr.Host, Addr: p.Addr.Host, Fingerprint: p.Fingerprint(), Score: p.Hello.CapacityGMACs, Memory: int64(p.Hello.MemoryBytes)}
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
