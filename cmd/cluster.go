package cmd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"time"

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
	gate      kernelGate // what the device was compared on
	head      *stage.Head
	ring      *stage.Ring // nil when unsplit
	lanes     int         // stages reached on local sockets
	kids      *children   // of --spawn, else nil
	plan      *plan.Plan  // nil when unsplit
	positions int
	hash      [32]byte
	loadTime  time.Duration // to load here and on the stages and to connect
	closers   []func()
}

// clusterNeeds is what a command asks of a cluster beside the flags.
type clusterNeeds struct {
	positions int // positions of the longest sequence; 0 = as many as --ctx or the model gives
	// reach are the positions worth having if the model and the stages allow them and --ctx does not say otherwise.
	reach     int
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
	err := c.open(ctx, needs)
	if err == nil {
		return c, nil
	}
	c.close()
	if !r.standIn(err) || ctx.Err() != nil {
		return nil, err
	}
	a.ui.note("%s is not used: %v", c.gate.Device, err)
	other := *r
	other.backend = "cpu"
	return a.openCluster(ctx, m, &other, needs)
}

// open gates the device, reaches the stages, agrees on who holds what, and loads.
func (c *cluster) open(ctx context.Context, needs clusterNeeds) error {
	if err := c.contextFor(needs); err != nil {
		return err
	}
	if r := c.req; !r.split() && r.layers.Len() > 0 && r.layers != c.ownLayers() {
		return usageError("--layers %v: without stages the head runs all layers", r.layers)
	}
	if err := c.openDevice(ctx, needs); err != nil {
		return err
	}
	fits := func(readout bool) error {
		return c.checkFit(needs, c.gate.memory(), c.gate.Device, c.gate.alike, readout)
	}
	if err := fits(len(c.req.peers) == 0); err != nil {
		return err
	}
	start := time.Now()
	own := plan.Range{First: 0, Last: c.model.Spec.Layers - 1}
	var peers []*stage.Peer
	var opts stage.RingOptions
	if c.req.split() {
		var err error
		if peers, opts, err = c.reachPeers(ctx, needs); err != nil {
			return err
		}
		own = c.plan.Stages[0].Range
		if c.req.spawn == 0 && c.readsHere(peers, needs) {
			if err := fits(true); err != nil {
				stage.ClosePeers(peers, err)
				return err
			}
		}
		for _, p := range peers {
			if p.OnLane() {
				c.lanes++
			}
		}
	}
	weights, err := c.load(ctx, own, peers, opts, needs)
	if err != nil {
		return err
	}
	err = c.assemble(weights, own, needs)
	c.loadTime = time.Since(start)
	return err
}

// ownLayers says which layers this process is going to run, before the stages are reached.
func (c *cluster) ownLayers() plan.Range {
	if c.req.split() {
		return c.req.layers
	}
	return plan.Range{First: 0, Last: c.model.Spec.Layers - 1}
}

// readsHere says whether the head holds the readout: if the last stage does not, or the logits of every position are wanted.
func (c *cluster) readsHere(peers []*stage.Peer, needs clusterNeeds) bool {
	return !stage.ReadsOut(peers) || needs.returnAll
}

// checkFit refuses what a device has no memory for before anything is loaded. Who holds the readout beside --peers is known
// when these are reached.
func (c *cluster) checkFit(needs clusterNeeds, have int64, device string, alike []int, readout bool) error {
	layers := c.ownLayers().Len()
	if c.req.spawn > 0 { // some of the stages use it too
		o, err := c.spawnOptions(needs, alike)
		if err != nil {
			return err
		}
		readout = needs.returnAll
		for i, rng := range o.ranges {
			if o.deviceOf(i) == 0 {
				layers += rng.Len()
				readout = readout || o.reads(i)
			}
		}
	}
	return checkMemory(have, device, c.need(needs), layers, readout)
}

// openDevice opens what is to compute and gates it at the shapes that this process, and the stages it spawns, will use.
func (c *cluster) openDevice(ctx context.Context, needs clusterNeeds) error {
	fits := func(have int64, device string, alike []int) error {
		return c.checkFit(needs, have, device, alike, true)
	}
	layers := c.ownLayers().Len() > 0 || c.req.spawn > 0
	shapes := gateShapes(&c.model.Spec, c.req.mode, layers, true, min(c.positions, headGateContext))
	var err error
	c.device, c.gate, err = c.app.openDevice(ctx, &c.req.backendFlags, units.CPUOptions{Threads: c.req.threads, AuditEvery: c.req.audit}, fits, shapes)
	if err != nil {
		return err
	}
	c.onClose(func() { c.device.Close() })
	return nil
}

// reachPeers dials the stages, after starting those of --spawn, and returns them in layer order.
func (c *cluster) reachPeers(ctx context.Context, needs clusterNeeds) ([]*stage.Peer, stage.RingOptions, error) {
	opts, err := c.ringOptions(ctx, needs)
	if err != nil {
		return nil, opts, err
	}
	peers, err := stage.DialPeers(ctx, opts)
	if err != nil {
		return nil, opts, err
	}
	c.widen(peers, needs)
	opts.Context = c.positions
	var ordered []*stage.Peer
	if err = checkProbes(opts.Local.ProbeHash, peers); err == nil {
		ordered, err = c.planFor(peers, needs)
	}
	if err != nil {
		stage.ClosePeers(peers, err)
	}
	return ordered, opts, err
}

var errWrongBits = errors.New("one of the two computes wrong bits")

// checkProbes refuses a stage whose arithmetic gave other bits than this machine's on the same numbers.
func checkProbes(own [32]byte, peers []*stage.Peer) error {
	for i, p := range peers {
		if h := p.Hello.ProbeHash; h != own && h != [32]byte{} && own != [32]byte{} {
			return &stage.HopError{Hop: i + 1, Addr: p.Addr.Host, Layers: plan.None, Phase: "connecting", Last: -1, Err: fmt.Errorf(
				"its kernel probe is %x, this machine's is %x: %w (dchain probe tells which)", h[:4], own[:4], errWrongBits)}
		}
	}
	return nil
}

// load reads the head's part here while the stages load theirs.
func (c *cluster) load(ctx context.Context, own plan.Range, peers []*stage.Peer, opts stage.RingOptions, needs clusterNeeds) (*stage.Weights, error) {
	var weights *stage.Weights
	g, loading := errgroup.WithContext(ctx)
	g.Go(func() error {
		p := c.app.ui.progress("loading")
		defer p.end()
		var err error
		readout := c.readsHere(peers, needs)
		table := own.Len() > 0 && c.gate.gpu && c.need(needs).HoldsTable(c.gate.memory())
		weights, err = c.loadHere(loading, own, readout, table, p.of)
		return err
	})
	if len(peers) > 0 {
		g.Go(func() error {
			var err error
			c.ring, err = stage.NewRing(loading, peers, c.peerRanges(), opts)
			if err == nil && c.kids != nil {
				c.kids.dropKeys()
			}
			return err
		})
	}
	err := g.Wait()
	if c.ring != nil {
		c.onClose(func() { c.ring.Close() })
	}
	return weights, err
}

// loadHere loads layers, and what a head needs, into this process until the cluster is closed. A head that leaves the readout
// to its last stage needs little; with a table the device embeds, too.
func (c *cluster) loadHere(ctx context.Context, layers plan.Range, readout, table bool, progress func(n, total int64)) (*stage.Weights, error) {
	cache, err := c.app.packedFolder(c.req.cache)
	if err != nil {
		return nil, err
	}
	w, err := stage.Load(ctx, c.model, c.device, stage.LoadOptions{
		Range: layers, Embed: true, Readout: readout, Table: table, Mode: c.req.mode, Context: c.positions, Progress: progress, Cache: cache,
		Note: func(text string) { c.app.ui.note("%s", text) },
	})
	if err == nil {
		c.onClose(func() { w.Close() })
	}
	return w, err
}

// assemble puts the head before its stages.
func (c *cluster) assemble(weights *stage.Weights, own plan.Range, needs clusterNeeds) error {
	var stages []stage.Stage
	groups := 1
	if c.ring != nil {
		groups = stage.Groups(len(c.peerRanges()), own.Len() > 0)
	}
	if own.Len() > 0 {
		e := stage.EngineOptions{Groups: groups, Context: c.positions, Sessions: max(needs.sessions, 1), ReturnAll: needs.returnAll || c.ring != nil}
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
		if c.req.route != stage.RouteStar { // there the head passes all results on, as it was told to
			for _, hop := range c.ring.Relayed() {
				c.app.ui.note("stage %d cannot reach the next one: the head passes its results on", hop)
			}
		}
	}
	var err error
	c.head, err = stage.NewHead(weights, stage.HeadOptions{Stages: stages, Chunk: c.req.chunk, Groups: groups})
	return err
}

// contextFor sets the positions per session: --ctx, or as many as the request needs.
func (c *cluster) contextFor(needs clusterNeeds) error {
	asked := c.req.askedContext()
	positions, err := contextOf(&c.model.Spec, asked)
	if err != nil {
		return err
	}
	c.positions = positions
	if asked == 0 && needs.positions > 0 {
		c.positions = min(needs.positions, c.model.Spec.MaxPos)
		if len(c.req.peers) == 0 { // nobody else to ask
			c.widen(nil, needs)
		}
	}
	return nil
}

// widen takes as many positions as are worth having and the stages allow.
func (c *cluster) widen(peers []*stage.Peer, needs clusterNeeds) {
	if c.req.askedContext() != 0 || needs.reach == 0 || c.req.spawn > 0 && peers != nil {
		return
	}
	most := min(needs.reach, c.model.Spec.MaxPos)
	for _, p := range peers {
		most = min(most, int(p.Hello.Context))
	}
	c.positions = max(c.positions, most)
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
	var gpu atomic.Bool
	gpu.Store(c.gate.gpu)
	carrier := transport.CarrierOptions{Lane: r.lanes, Poll: pollWhile(&gpu)}
	if r.spawn == 0 {
		if o.Local.ProbeHash, err = units.ProbeHash(c.device); err != nil {
			return o, err
		}
		o.Dial, err = r.dial(c.app)
		o.Dial.CarrierOptions = carrier
		return o, err
	}
	spawn, err := c.spawnOptions(needs, c.gate.alike)
	if err != nil {
		return o, err
	}
	if c.kids, err = c.app.spawn(ctx, spawn); err != nil {
		return o, err
	}
	c.onClose(c.kids.close)
	o.Dial.Identity, o.Dial.CarrierOptions = c.kids.head, carrier
	for _, p := range c.kids.procs {
		o.Peers = append(o.Peers, p.addr)
	}
	return o, nil
}

// spawnOptions say what --spawn starts.
func (c *cluster) spawnOptions(needs clusterNeeds, devices []int) (spawnOptions, error) {
	ranges, err := c.spawnRanges()
	return spawnOptions{
		request: c.req, kernels: c.gate.Kernels, devices: devices, ranges: ranges, positions: c.positions, sessions: max(needs.sessions, 1),
		returnAll: needs.returnAll,
	}, err
}

// spawnRanges cuts the layers the head does not run evenly.
func (c *cluster) spawnRanges() ([]plan.Range, error) {
	first := c.req.layers.Last + 1
	if c.req.layers.Len() > 0 && c.req.layers.First != 0 {
		return nil, usageError("--layers %v: the head's layers start at 0", c.req.layers)
	}
	rest := c.model.Spec.Layers - first
	if rest < c.req.spawn {
		return nil, usageError("--spawn %d: stages have no more than %s to share", c.req.spawn, plan.Plural(max(rest, 0), "layer"))
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
