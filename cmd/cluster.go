package cmd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
)

// cluster is a model ready to generate: the head in this process and, when split, a ring of stages.
type cluster struct {
	app       *app
	req       *clusterRequest
	model     *inspect.Model
	device    units.Device
	head      *stage.Head
	ring      *stage.Ring // nil when unsplit
	plan      *plan.Plan
	positions int
	hash      [32]byte
	closers   []func()
}

// clusterNeeds is what a command asks of a cluster beside the flags.
type clusterNeeds struct {
	positions int  // positions of the longest sequence; 0 = as many as --ctx or the model gives
	sessions  int  // sessions at once
	returnAll bool // hidden states of every position, for likelihoods
	recorder  *stage.Recorder
}

// close ends everything in reverse order of its start.
func (c *cluster) close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.closers[i]()
	}
	c.closers = nil
}

func (c *cluster) onClose(f func()) { c.closers = append(c.closers, f) }

// openCluster loads the model here and on the stages. The model stays the caller's.
func (a *app) openCluster(ctx context.Context, m *inspect.Model, r *clusterRequest, needs clusterNeeds) (*cluster, error) {
	c := &cluster{app: a, req: r, model: m, hash: m.Fingerprint(r.mode.String(), units.NumericsVersion)}
	if err := c.open(ctx, needs); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *cluster) open(ctx context.Context, needs clusterNeeds) error {
	var err error
	if c.positions, err = c.contextFor(needs.positions); err != nil {
		return err
	}
	if c.device, err = units.NewCPU(units.CPUOptions{Threads: c.req.threads, AuditEvery: c.req.audit}); err != nil {
		return err
	}
	c.onClose(func() { c.device.Close() })
	own := plan.Range{First: 0, Last: c.model.Spec.Layers - 1}
	var peers []*stage.Peer
	var opts stage.RingOptions
	if c.req.split() {
		if opts, err = c.ringOptions(ctx, needs); err != nil {
			return err
		}
		if peers, err = stage.DialPeers(ctx, opts); err != nil {
			return err
		}
		var ordered []*stage.Peer
		if ordered, err = c.planFor(peers, needs); err != nil {
			stage.ClosePeers(peers, err)
			return err
		}
		peers, own = ordered, c.plan.Stages[0].Range
	} else if c.req.layers.Len() > 0 && c.req.layers != own {
		return usageError("--layers %v: without stages the head runs all layers", c.req.layers)
	}
	var stages []stage.Stage
	var weights *stage.Weights
	g, loading := errgroup.WithContext(ctx)
	g.Go(func() error {
		p := c.app.ui.progress("loading")
		defer p.end()
		var err error
		weights, err = stage.Load(loading, c.model, c.device, stage.LoadOptions{Range: own, Readout: true, Mode: c.req.mode, Context: c.positions, Progress: p.of})
		return err
	})
	if len(peers) > 0 {
		g.Go(func() error {
			var err error
			c.ring, err = stage.NewRing(loading, peers, c.peerRanges(), opts)
			return err
		})
	}
	err = g.Wait()
	if c.ring != nil {
		c.onClose(func() { c.ring.Close() })
	}
	if err != nil {
		return err
	}
	if own.Len() > 0 {
		e := stage.EngineOptions{Context: c.positions, Sessions: max(needs.sessions, 1), ReturnAll: needs.returnAll || c.ring != nil}
		if needs.recorder != nil {
			e.Trace = needs.recorder.Trace
		}
		engine, err := stage.NewEngine(weights, e)
		if err != nil {
			return err
		}
		c.onClose(func() { engine.Close() })
		stages = append(stages, engine)
	}
	if c.ring != nil {
		stages = append(stages, c.ring)
		for _, hop := range c.ring.Relayed() {
			c.app.ui.note("stage %d cannot reach the next one: the head passes its results on", hop)
		}
	}
	c.head, err = stage.NewHead(weights, stage.HeadOptions{Stages: stages, Chunk: c.req.chunk})
	return err
}

// contextFor is the positions per session: --ctx, or as many as the request needs.
func (c *cluster) contextFor(need int) (int, error) {
	asked := c.req.ctx
	if asked == 0 && c.req.plan != nil {
		asked = c.req.plan.Context
	}
	positions, err := contextOf(&c.model.Spec, asked)
	if err != nil {
		return 0, err
	}
	switch {
	case need == 0:
	case asked == 0:
		positions = min(need, c.model.Spec.MaxPos)
	}
	return positions, nil
}

// ringOptions gathers peers and keys, after starting the stages of --spawn.
func (c *cluster) ringOptions(ctx context.Context, needs clusterNeeds) (stage.RingOptions, error) {
	r := c.req
	o := stage.RingOptions{
		Peers: r.peers, Model: c.model, ModelName: modelName(r.model), Mode: r.mode, Context: c.positions, Sessions: max(needs.sessions, 1),
		Route: r.route, ReturnAll: needs.returnAll,
	}
	if needs.recorder != nil {
		o.Trace = needs.recorder.Trace
	}
	var err error
	if o.Local, err = c.app.localHello(ctx, c.model, r.mode); err != nil {
		return o, err
	}
	o.Local.Role = transport.RoleHead
	if r.spawn == 0 {
		if o.Dial.Identity, err = headIdentity(r.identity); err != nil {
			return o, err
		}
		o.Dial.Known, err = c.app.knownHosts(r.knownHosts)
		return o, err
	}
	ranges, err := c.spawnRanges()
	if err != nil {
		return o, err
	}
	kids, err := c.app.spawn(ctx, r, ranges, c.positions, o.Sessions)
	if err != nil {
		return o, err
	}
	c.onClose(kids.close)
	o.Dial.Identity = kids.head
	for _, p := range kids.procs {
		o.Peers = append(o.Peers, p.addr)
	}
	return o, nil
}

// spawnRanges cuts the layers the head does not run evenly.
func (c *cluster) spawnRanges() ([]plan.Range, error) {
	first := c.req.layers.Last + 1
	if c.req.layers.Len() > 0 && c.req.layers.First != 0 {
		return nil, usageError("--layers %v: the head's layers start at 0", c.req.layers)
	}
	rest := c.model.Spec.Layers - first
	if rest < c.req.spawn {
		return nil, usageError("--spawn %d: only %d layers are left for stages", c.req.spawn, max(rest, 0))
	}
	var ranges []plan.Range
	for i := range c.req.spawn {
		ranges = append(ranges, plan.Range{First: first + rest*i/c.req.spawn, Last: first + rest*(i+1)/c.req.spawn - 1})
	}
	return ranges, nil
}

// peerRanges are the layers of the plan's stages after the head.
func (c *cluster) peerRanges() []plan.Range {
	var ranges []plan.Range
	for _, s := range c.plan.Stages[1:] {
		ranges = append(ranges, s.Range)
	}
	return ranges
}

// localHello is what this process says of itself to peers.
func (a *app) localHello(ctx context.Context, m *inspect.Model, mode units.WeightMode) (transport.Hello, error) {
	h := transport.Hello{Wire: transport.WireVersion, Numerics: units.NumericsVersion, Build: readBuildInfo().String(), Last: -1}
	if m == nil {
		return h, nil
	}
	h.Model, h.Fingerprint, h.Weights = m.Source.ID(), m.Fingerprint(mode.String(), units.NumericsVersion), uint8(mode)
	h.Layers, h.Hidden = int32(m.Spec.Layers), int32(m.Spec.Hidden)
	if strings.Contains(m.Source.ID(), "@") {
		return h, nil // a commit of a hub repository fixes its tokenizer too
	}
	data, err := m.Source.ReadFile(ctx, "tokenizer.json")
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("reading the tokenizer: %w", err)
	}
	h.TokenizerHash = sha256.Sum256(data)
	return h, nil
}
