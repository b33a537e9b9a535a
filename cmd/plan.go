package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
)

// planFlags are the flags of the plan command.
type planFlags struct {
	trustFlags
	peers   string
	layers  string
	threads int
	backendFlags
	capacity string
	ctx      int
	sessions int
	weights  string
	latency  time.Duration
	out      string
	json     bool
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:   "plan [MODEL]",
		Short: "Decide which machine holds which layers, and predict the speed",
		Long: `plan shares the layers of a model out over machines in proportion to their capacity, within their memory, and predicts
how fast the result decodes. It says so when one machine alone would be faster. A model that does not fit is refused
with the numbers; nothing is shrunk to make it fit.

With --peers the stages are asked for their capacity and memory, and the round trip to each is measured; this machine is
the head, and takes its share of the layers too unless --layers says which (none, or A-B from 0). With --capacity nothing
is measured, and the first machine is the head.

A score is GB/s: bytes of quantised weights, in 1e9, that a machine gets through per second while decoding, as dchain
probe measures it.

Memory is that of weights and KV cache. Where the head is a GPU that gets all layers and has as much again to spare, it keeps
the embedding too, and the plan shows it; nothing is refused for that.`,
		Example: `  dchain plan Qwen/Qwen2.5-0.5B-Instruct --peers SHA256:...@desk:7433,SHA256:...@box:7433 --out plan.json
  dchain plan Qwen/Qwen2.5-0.5B-Instruct --capacity laptop=20:8GiB,desk=60:32GiB
  dchain plan synthetic:llama-3.1-8b --capacity a=40:6GiB,b=40:6GiB --ctx 8192 --sessions 2 --json
  dchain plan --capacity a=10,b=30 --out plan.json`,
		Args: atMost(1, "one MODEL"),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := a.makePlan(c.Context(), firstArg(args), &f)
			if err != nil {
				return err
			}
			if f.out != "" {
				if err := writePlan(f.out, p); err != nil {
					return err
				}
			}
			if f.json {
				return a.ui.json(p)
			}
			return a.showPlan(p)
		},
	}
	c.Flags().StringVar(&f.peers, "peers", "", "stages to ask, as [FINGERPRINT@]host:port,...")
	c.Flags().StringVar(&f.layers, "layers", "", "with --peers: layers of the head, none or A-B from 0 (default: its share)")
	c.Flags().IntVar(&f.threads, "threads", 0, "with --peers: computing threads of the head (default: the cores)")
	f.backendFlags.register(c.Flags())
	f.trustFlags.register(c)
	c.Flags().StringVar(&f.capacity, "capacity", "", "machines as name=score[:memory],... (score in GB/s); the first is the head")
	c.Flags().IntVar(&f.ctx, "ctx", 0, "positions per session (default: the model's, at most 4096)")
	c.Flags().IntVar(&f.sessions, "sessions", 1, "sessions at a time")
	c.Flags().StringVar(&f.weights, "weights", "int8", "weight format: int8 or int8x2")
	c.Flags().DurationVar(&f.latency, "latency", time.Duration(plan.LAN.OneWay*1e9), "with --capacity: one-way network latency between machines")
	c.Flags().StringVar(&f.out, "out", "", "also write the plan to `FILE`, for generate --plan")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// check rejects what no plan could be made from.
func (f *planFlags) check() error {
	switch {
	case f.capacity == "" && f.peers == "":
		return usageError("plan needs the machines").
			hint("--peers asks running stages, --capacity name=score[:memory],... describes machines")
	case f.capacity != "" && f.peers != "":
		return usageError("--capacity and --peers exclude each other")
	case f.layers != "" && f.peers == "":
		return usageError("--layers goes with --peers")
	case f.latency < 0:
		return usageError("--latency: %v is negative", f.latency)
	case f.sessions < 1:
		return usageError("--sessions: %d is not at least 1", f.sessions)
	case f.threads < 0:
		return usageError("--threads: %d is negative", f.threads)
	}
	return f.backendFlags.check()
}

// makePlan apportions a model over the machines of --capacity or --peers.
func (a *app) makePlan(ctx context.Context, model string, f *planFlags) (*plan.Plan, error) {
	mode, err := units.ParseWeightMode(f.weights)
	if err != nil {
		return nil, usageError("--weights: %w", err)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	var devices []plan.Device
	if f.capacity != "" {
		if devices, err = plan.ParseCapacities(f.capacity); err != nil {
			return nil, usageError("--capacity: %w", err)
		}
	}
	m, err := a.openModel(ctx, model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	positions, err := contextOf(&m.Spec, f.ctx)
	if err != nil {
		return nil, err
	}
	need := needOf(&m.Spec, mode, positions, f.sessions)
	base := plan.Plan{
		Model: modelName(model), Fingerprint: fmt.Sprintf("%x", m.Fingerprint(mode.String(), units.NumericsVersion)), Weights: mode.String(),
		Layers: m.Spec.Layers, Context: positions, Sessions: f.sessions,
	}
	if f.peers != "" {
		return a.planPeers(ctx, m, mode, f, planner{base: base, need: need})
	}
	if base.Stages, err = plan.Apportion(need, devices); err == nil {
		err = base.Validate(m.Spec.Layers)
	}
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", base.Model, err)
	}
	link := plan.LAN
	link.OneWay = f.latency.Seconds()
	links := make([]plan.Link, len(base.Stages))
	for i := range links {
		links[i] = link
	}
	return &base, predict(&base, need, devices, links)
}

// planPeers asks the stages, measures this machine, and apportions.
func (a *app) planPeers(ctx context.Context, m *inspect.Model, mode units.WeightMode, f *planFlags, p planner) (*plan.Plan, error) {
	p.head = plan.Stage{Name: "head", Head: true, Range: plan.None}
	p.helps = f.layers == ""
	var err error
	if f.layers != "" {
		if p.head.Range, err = plan.ParseRange(f.layers); err != nil {
			return nil, usageError("--layers: %w", err)
		}
	}
	opts := stage.RingOptions{Model: m, Mode: mode, Context: f.ctx, Sessions: f.sessions}
	if opts.Peers, err = parsePeers(f.peers); err != nil {
		return nil, err
	}
	probe, gate, err := a.probeSelf(ctx, &m.Spec, mode, f)
	if err != nil {
		return nil, err
	}
	p.head.Memory, p.head.GPU = gate.memory(), gate.gpu
	p.need.Table = stage.TableBytes(m)
	p.head.Score = scoreOf(probe.GMACs)
	if opts.Local, err = a.localHello(ctx, m, mode); err != nil {
		return nil, err
	}
	opts.Local.ProbeHash = probe.Hash
	if opts.Dial, err = f.dial(a); err != nil {
		return nil, err
	}
	peers, err := stage.DialPeers(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer stage.ClosePeers(peers, nil)
	if err := checkProbes(probe.Hash, peers); err != nil {
		return nil, err
	}
	if p.base.Context, err = commonContext(peers, p.base.Context, f); err != nil {
		return nil, err
	}
	p.need.Context = p.base.Context
	made, err := p.plan(peers)
	if err == nil {
		err = made.Validate(m.Spec.Layers)
	}
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", p.base.Model, err)
	}
	p.need.Size(made.Stages)
	devices := []plan.Device{{ID: "head", Name: p.head.Name, Head: true, Score: p.head.Score, Memory: p.head.Memory}}
	for _, peer := range peers {
		s := peerStage(peer)
		devices = append(devices, plan.Device{ID: s.Fingerprint + "@" + s.Addr, Name: s.Name, Score: s.Score, Memory: s.Memory, Readout: s.Readout})
	}
	return made, predict(made, p.need, devices, linksOf(made.Stages))
}

// commonContext is the positions per session that every stage serves: those asked for, or as many as all of them have.
func commonContext(peers []*stage.Peer, positions int, f *planFlags) (int, error) {
	for _, p := range peers {
		has, sessions := int(p.Hello.Context), int(p.Hello.MaxSessions)
		switch {
		case sessions < f.sessions:
			return 0, usageError("%s serves %s, %d are asked for", p.Addr.Host, plan.Plural(sessions, "session"), f.sessions).
				hint("restart it with --max-sessions %d", f.sessions)
		case has < f.ctx:
			return 0, usageError("%s holds a context of %s, %d are asked for", p.Addr.Host, plan.Plural(has, "position"), f.ctx).
				hint("restart it with --ctx %d", f.ctx)
		}
		positions = min(positions, has)
	}
	return positions, nil
}

// probeSelf measures this machine, with the backend that passes the gates.
func (a *app) probeSelf(ctx context.Context, s *inspect.Spec, mode units.WeightMode, f *planFlags) (units.ProbeResult, kernelGate, error) {
	device, gate, err := a.openDevice(ctx, &f.backendFlags, units.CPUOptions{Threads: f.threads}, anyMemory, gateShapes(s, mode, true, true, headGateContext))
	if err != nil {
		return units.ProbeResult{}, gate, err
	}
	defer device.Close()
	probe, err := units.Probe(device)
	return probe, gate, err
}

// linksOf are the hops of the ring: from each stage to the next, and from the last to the head. Round trips are known
// between the head and each stage only; two stages are taken to be as far apart as the farther is from the head.
func linksOf(stages []plan.Stage) []plan.Link {
	links := make([]plan.Link, len(stages))
	for i := range stages {
		next := stages[(i+1)%len(stages)]
		links[i] = plan.Link{OneWay: max(stages[i].RoundTrip, next.RoundTrip) / 2, Protocol: plan.LAN.Protocol}
	}
	return links
}

// predict adds the predicted speed, the alternatives and the advice to a plan. A machine without a score leaves the plan without them. The
// alternatives are judged with the mean of the links.
func predict(p *plan.Plan, need plan.Need, devices []plan.Device, links []plan.Link) error {
	prediction, err := plan.Predict(need, p.Stages, links)
	if err != nil {
		return nil
	}
	p.Prediction = &prediction
	mean := plan.Link{Protocol: links[0].Protocol}
	for _, l := range links {
		mean.OneWay += l.OneWay / float64(len(links))
	}
	options, err := plan.Compare(need, devices, mean)
	if err != nil {
		return err
	}
	p.Options = plan.WithChosen(options, p.Stages, prediction)
	p.Advice = plan.Advice(prediction, p.Options)
	return nil
}

// defaultContext is the positions per session when --ctx is not given and the model allows more.
const defaultContext = 4096

// contextOf is the positions per session: asked, or as many as the model allows up to defaultContext.
func contextOf(s *inspect.Spec, asked int) (int, error) {
	switch {
	case asked < 0:
		return 0, usageError("--ctx: %d is not at least 1", asked)
	case asked == 0:
		return min(s.MaxPos, defaultContext), nil
	case asked > s.MaxPos:
		return 0, usageError("--ctx: %d positions, but the model was made for %d", asked, s.MaxPos)
	}
	return asked, nil
}

// scratchRows is the batch the activation buffers of a stage are sized for.
const scratchRows = 128

// needOf counts what a model asks of the machines.
func needOf(s *inspect.Spec, mode units.WeightMode, positions, sessions int) plan.Need {
	_, readout := s.HeadRoles()
	perPosition := units.CacheSpec{Layers: 1, Slots: 1, Context: 1, KVHeads: s.KVHeads, HeadDim: s.HeadDim}
	row := 8*s.Hidden + 4*s.Inter + 4*s.Heads*s.HeadDim
	return plan.Need{
		Layers: s.Layers, Limbs: mode.Limbs(),
		Layer: largestLayer(s, mode), Head: tensorsOf(s, readout),
		KVPosition: perPosition.Bytes(), Context: positions, Sessions: sessions,
		Scratch: 4 * (int64(scratchRows)*int64(row) + int64(positions)*int64(s.RotaryDim) + int64(s.Vocab)),
	}
}

// largestLayer counts the layer that takes most memory; most models have layers of one size.
func largestLayer(s *inspect.Spec, mode units.WeightMode) plan.Tensors {
	var largest plan.Tensors
	for layer := range s.Layers {
		if t := tensorsOf(s, s.LayerRoles(layer)); t.Bytes(mode.Limbs()) > largest.Bytes(mode.Limbs()) {
			largest = t
		}
	}
	return largest
}

func tensorsOf(s *inspect.Spec, roles []inspect.Role) plan.Tensors {
	var t plan.Tensors
	for _, role := range roles {
		n, k := s.Dims(role)
		if k == 0 {
			t.Vectors += int64(n)
		} else {
			t.Weights += int64(n) * int64(k)
			t.Rows += int64(n)
		}
		if s.Biased(role) {
			t.Vectors += int64(n)
		}
	}
	return t
}

func writePlan(file string, p *plan.Plan) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("writing plan: %w", err)
	}
	if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing plan: %w", err)
	}
	return nil
}

// showPlan prints a plan, its prediction and its alternatives.
func (a *app) showPlan(p *plan.Plan) error {
	if err := a.ui.printf("%s, %s, %s weights, context %d, sessions %d\n\n", p.Model, plan.Plural(p.Layers, "layer"), p.Weights, p.Context, p.Sessions); err != nil {
		return err
	}
	measured := slices.ContainsFunc(p.Stages, func(s plan.Stage) bool { return s.RoundTrip > 0 })
	tables := slices.ContainsFunc(p.Stages, func(s plan.Stage) bool { return s.TableBytes > 0 })
	rows := make([][]string, len(p.Stages))
	for i, s := range p.Stages {
		name := s.Name
		if s.Head {
			name += " (head)"
		}
		memory := "-"
		if s.Memory > 0 {
			memory = plan.Bytes(s.Memory).String()
		}
		rows[i] = []string{fmt.Sprint(i), oneLine(name), s.Range.String(), fmt.Sprint(s.Range.Len()),
			plan.Bytes(s.WeightBytes).String(), plan.Bytes(s.KVBytes).String(), memory, fmt.Sprintf("%.4g", s.Score)}
		if tables {
			rows[i] = slices.Insert(rows[i], 6, plan.Bytes(s.TableBytes).String())
		}
		if measured {
			rows[i] = append(rows[i], roundTrip(s))
		}
	}
	header := []string{">stage", "machine", "layers", ">count", ">weights", ">KV cache", ">memory", ">GB/s"}
	if tables {
		header = slices.Insert(header, 6, ">embedding")
	}
	if measured {
		header = append(header, ">RTT ms")
	}
	if err := a.ui.table(header, rows); err != nil {
		return err
	}
	if p.Prediction == nil {
		return nil
	}
	if err := a.ui.printf("\npredicted: %.1f tokens/s (per token: %.2f ms computing, %.2f ms on the network)\n",
		p.Prediction.TokensPerSecond, 1e3*p.Prediction.ComputeSeconds, 1e3*p.Prediction.NetworkSeconds); err != nil {
		return err
	}
	if len(p.Options) > 1 {
		if err := a.showOptions(p.Options); err != nil {
			return err
		}
	}
	if p.Advice != "" {
		return a.ui.printf("\n%s\n", p.Advice)
	}
	return nil
}

func roundTrip(s plan.Stage) string {
	if s.RoundTrip == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", 1e3*s.RoundTrip)
}

func (a *app) showOptions(options []plan.Option) error {
	rows := make([][]string, len(options))
	for i, o := range options {
		speed := "does not fit"
		if o.Fits {
			speed = fmt.Sprintf("%.1f", o.TokensPerSecond)
		}
		rows[i] = []string{fmt.Sprint(o.Stages), oneLine(strings.Join(o.Devices, ", ")), speed}
	}
	if err := a.ui.printf("\n"); err != nil {
		return err
	}
	return a.ui.table([]string{">machines", "which", ">tokens/s"}, rows)
}
