package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
)

// serveFlags are the flags of serve-stage.
type serveFlags struct {
	model          string
	layers         string
	listen         string
	threads        int
	authorizedKeys string
	identity       string
	maxSessions    int
	ctx            int
	weights        string
	watch          bool
	audit          int
	cache          bool
	lanes          bool
	readout        bool
	untilEOF       bool
	gated          string
	backendFlags
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve-stage",
		Short: "Hold a range of layers and serve heads",
		Long: `serve-stage makes this machine a stage. With --layers it loads them at once; without, it waits for a head to assign some.
It prints the address to paste into --peers, then "ready". It reads only the tensors of its layers, with its own
credentials, and stays up when a head goes away.

Heads are let in by their Ed25519 key, which must be in the authorized keys file: whoever can log in with such a key can
use the stage. There is no mode without.

A wrong bit, a lost device and a demotion are said when they occur. The last line counts them, gates and audits; SIGUSR1
(kill -USR1 PID, not on Windows) asks for that line at any time.`,
		Example: `  dchain serve-stage --model Qwen/Qwen2.5-0.5B-Instruct --layers 0-11
  dchain serve-stage --listen 10.0.0.2:7433 --threads 8
  dchain serve-stage --layers 4-7 --watch`,
		Args: atMost(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return a.serve(c.Context(), &f) },
	}
	s := c.Flags()
	s.StringVar(&f.model, "model", "", "serve this model only (default: with --layers builtin, else what a head asks for)")
	s.StringVar(&f.layers, "layers", "", "hold layers `A-B`, both inclusive")
	s.StringVar(&f.listen, "listen", fmt.Sprintf(":%d", transport.DefaultPort), "UDP address to listen on")
	s.IntVar(&f.threads, "threads", 0, "cores to use (default: all)")
	s.StringVar(&f.authorizedKeys, "authorized-keys", "", "`FILE` of keys that may connect (default ~/.ssh/authorized_keys)")
	s.StringVar(&f.identity, "identity", "", "OpenSSH ed25519 private key `FILE`, made when missing (default: one of dchain's own)")
	s.IntVar(&f.maxSessions, "max-sessions", 8, "sessions at a time")
	s.IntVar(&f.ctx, "ctx", 0, "positions per session (default: the model's, at most 4096)")
	s.StringVar(&f.weights, "weights", "int8", "weight format: int8 or int8x2")
	s.BoolVar(&f.watch, "watch", false, "print the text the heads generate")
	s.IntVar(&f.audit, "audit-every", defaultAudit, "recompute one operation of every `N`th step on the reference path; 0 = never")
	registerCache(s, &f.cache)
	registerLanes(s, &f.lanes)
	s.BoolVar(&f.readout, "readout", false, "with the model's last layers, hold the readout too and return scores of tokens instead of hidden states")
	f.backendFlags.register(s)
	s.BoolVar(&f.untilEOF, "until-eof", false, "end when standard input does")
	s.MarkHidden("until-eof")
	s.StringVar(&f.gated, "gated-kernels", "", "backend that the parent process has gated, and knows the speed of")
	s.MarkHidden("gated-kernels")
	return c
}

// serve runs a stage until it is interrupted.
func (a *app) serve(ctx context.Context, f *serveFlags) error {
	opts, layers, err := f.check()
	if err != nil {
		return err
	}
	if opts.Cache, err = a.packedFolder(f.cache); err != nil {
		return err
	}
	if f.untilEOF {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		go func() {
			io.Copy(io.Discard, a.in)
			cancel()
		}()
	}
	if f.model != "" || layers.Len() > 0 {
		if opts.Model, err = a.openModel(ctx, f.model); err != nil {
			return err
		}
		defer opts.Model.Close()
		if err := fixModel(opts, layers, f.ctx); err != nil {
			return err
		}
	}
	if opts.Local, err = a.localHello(ctx, opts.Model, opts.Mode); err != nil {
		return err
	}
	if err := checkListen(opts.Listen); err != nil {
		return err
	}
	var gpu atomic.Bool
	if err := a.measure(ctx, opts, f, &gpu); err != nil {
		return err
	}
	opts.Listen.Poll = pollWhile(&gpu)
	opts.Dial.Poll = opts.Listen.Poll
	defer func() { opts.Device.Close() }() // maybe another by then
	if err := checkStageMemory(opts, int64(opts.Local.MemoryBytes), opts.Device.Name()); err != nil {
		return err
	}
	return a.serveWith(ctx, opts)
}

// checkStageMemory refuses what a device has no memory for, as far as the model is known.
func checkStageMemory(opts *stage.ServerOptions, have int64, device string) error {
	if opts.Model == nil {
		return nil
	}
	spec := &opts.Model.Spec
	need := needOf(spec, opts.Mode, opts.Context, opts.Sessions)
	reads := opts.Readout && opts.Range.Last == spec.Layers-1
	return checkMemory(have, device, need, opts.Range.Len(), reads)
}

// checkListen finds out that an address cannot be listened on before layers are loaded for it.
func checkListen(o transport.ListenOptions) error {
	l, err := transport.Listen(o)
	if err != nil {
		return err
	}
	return l.Close()
}

// measure opens the device, gates it at the shapes of the model, or of the built-in one as long as none is known, and
// measures its capacity; after a wrong bit the next best takes its place. A child of --spawn leaves all that to its parent. gpu
// is set to whether the device is one, also when another takes its place later.
func (a *app) measure(ctx context.Context, opts *stage.ServerOptions, f *serveFlags, gpu *atomic.Bool) error {
	cpu := units.CPUOptions{Threads: f.threads, AuditEvery: f.audit}
	opts.Local.Threads, opts.Local.Watch = int32(cmp.Or(f.threads, units.DefaultThreads())), f.watch
	var err error
	if f.gated != "" {
		b, err := a.gated(&f.backendFlags, f.gated, cpu)
		if err != nil {
			return err
		}
		opts.Local.MemoryBytes = uint64(b.memory())
		gpu.Store(b.gpu)
		if opts.Device, err = b.open(); err == nil {
			opts.Local.Backend = opts.Device.Name()
		}
		return err
	}
	m := opts.Model
	if m == nil {
		if m, err = a.openModel(ctx, ""); err != nil {
			return err
		}
		defer m.Close()
	}
	backends, err := a.backends(&f.backendFlags, cpu, func(have int64, device string, _ []int) error { return checkStageMemory(opts, have, device) })
	if err != nil {
		return err
	}
	shapes := gateShapes(&m.Spec, opts.Mode, true, opts.Readout, stageGateContext)
	if backends, err = a.takeDevice(ctx, opts, backends, shapes, gpu); err != nil {
		return err
	}
	opts.Demote = func(ctx context.Context) (units.Device, transport.Hello, error) {
		err := opts.Device.Close()
		if err == nil {
			backends, err = a.takeDevice(ctx, opts, backends, shapes, gpu)
		}
		if err == nil {
			a.ui.noteOnce("demoted to " + opts.Device.Name())
			err = checkStageMemory(opts, int64(opts.Local.MemoryBytes), opts.Device.Name())
		}
		return opts.Device, opts.Local, err
	}
	return nil
}

// takeDevice opens the first of the backends that passes the gates, measures it, and returns those after it. gpu is
// set to whether it is one.
func (a *app) takeDevice(ctx context.Context, opts *stage.ServerOptions, backends []backend, shapes units.GateShapes, gpu *atomic.Bool) ([]backend, error) {
	if len(backends) == 0 {
		return nil, errors.New("--backend allows no other")
	}
	var probe units.ProbeResult
	device, gate, err := a.firstPassing(backends, func(b backend) (units.Device, kernelGate, error) {
		device, gate, err := gateBackend(ctx, b, shapes)
		if device == nil {
			return nil, gate, err
		}
		if probe, err = units.Probe(device); units.WrongBit(err) {
			gate.Passed, gate.Wrong, gate.Error = false, true, err.Error()
			return nil, gate, device.Close()
		}
		if err != nil {
			device.Close()
			return nil, gate, err
		}
		return device, gate, nil
	})
	if err != nil {
		return nil, err
	}
	a.ui.note("%s: gates passed, %d checks in %.2f s", gate.Device, len(gate.report.Checks), gate.Seconds)
	opts.Device = device
	gpu.Store(gate.gpu)
	h := &opts.Local
	h.Backend, h.MemoryBytes, h.CapacityGMACs, h.ProbeHash = device.Name(), uint64(gate.memory()), probe.GMACs, probe.Hash
	return backends[slices.IndexFunc(backends, func(b backend) bool { return b.name == gate.Kernels })+1:], nil
}

// check turns flags into options, models aside.
func (f *serveFlags) check() (*stage.ServerOptions, plan.Range, error) {
	fail := func(err error) (*stage.ServerOptions, plan.Range, error) { return nil, plan.None, err }
	opts := &stage.ServerOptions{Context: f.ctx, Sessions: f.maxSessions, Range: plan.None, Readout: f.readout}
	opts.Listen.Lane, opts.Dial.Lane = f.lanes, f.lanes
	var err error
	layers := plan.None
	if f.layers != "" {
		if layers, err = plan.ParseRange(f.layers); err != nil {
			return fail(usageError("--layers: %w", err))
		}
	}
	if opts.Mode, err = units.ParseWeightMode(f.weights); err != nil {
		return fail(usageError("--weights: %w", err))
	}
	switch {
	case f.threads < 0:
		return fail(usageError("--threads: %d is negative", f.threads))
	case f.maxSessions < 1:
		return fail(usageError("--max-sessions: %d is not at least 1", f.maxSessions))
	case f.ctx < 0:
		return fail(usageError("--ctx: %d is not at least 1", f.ctx))
	case f.audit < 0:
		return fail(usageError("--audit-every: %d is negative", f.audit))
	}
	if err := f.backendFlags.check(); err != nil {
		return fail(err)
	}
	if opts.Context == 0 {
		opts.Context = defaultContext
	}
	if opts.Listen.Identity, err = ownIdentity(f.identity); err != nil {
		return fail(err)
	}
	opts.Dial.Identity = opts.Listen.Identity
	file := f.authorizedKeys
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return fail(fmt.Errorf("finding the authorized keys: %w", err))
		}
		file = filepath.Join(home, ".ssh", "authorized_keys")
	}
	authorized, err := transport.LoadAuthorizedKeys(file)
	if err != nil {
		return fail(err)
	}
	opts.Listen.Addr, opts.Listen.Authorize = f.listen, authorized.Allows
	return opts, layers, nil
}

// fixModel makes the stage serve one model, and the layers if they are given, for sessions of so many positions (0: the
// default).
func fixModel(opts *stage.ServerOptions, layers plan.Range, positions int) error {
	spec := &opts.Model.Spec
	if layers.Last >= spec.Layers {
		return usageError("--layers: %s, but the model has layers %s", layers, plan.Range{First: 0, Last: spec.Layers - 1})
	}
	var err error
	if opts.Context, err = contextOf(spec, positions); err != nil {
		return err
	}
	if opts.Readout && layers.Len() > 0 && layers.Last != spec.Layers-1 {
		return usageError("--readout goes with the model's last layer, %d, and --layers %s lacks it", spec.Layers-1, layers)
	}
	opts.Range = layers
	return nil
}

// serveWith listens, announces the address, and serves.
func (a *app) serveWith(ctx context.Context, opts *stage.ServerOptions) error {
	bar := a.ui.progress("loading")
	opts.Progress = bar.of
	opts.OpenModel = func(ctx context.Context, name string) (*inspect.Model, error) { return a.openAssigned(ctx, name, opts) }
	opts.Event = func(text string) { a.ui.note("%s", text) }
	opts.Watch = func(t transport.Token) { a.ui.text(t.Text) }
	server, err := stage.NewServer(ctx, *opts)
	bar.end()
	if err != nil {
		return err
	}
	defer a.noteMetrics()
	defer a.noteMetricsWhenAsked()()
	addr := transport.PeerAddr{Host: reachable(server.Addr()), Fingerprint: opts.Listen.Identity.Fingerprint()}
	if err := a.ui.printf("%s\nready\n", addr); err != nil {
		return err
	}
	return server.Run(ctx)
}

// noteMetricsWhenAsked says the counters at each signal that asks for them, until stop is called.
func (a *app) noteMetricsWhenAsked() (stop func()) {
	if len(askSignals) == 0 { // without any, Notify would take all signals
		return func() {}
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, askSignals...)
	go func() {
		for range asked {
			a.noteMetrics()
		}
	}()
	return func() {
		signal.Stop(asked)
		close(asked)
	}
}

// noteMetrics says what checks have found while the stage ran.
func (a *app) noteMetrics() {
	var all []string
	units.Metrics.Each(func(name string, value int64) { all = append(all, fmt.Sprintf("%s %d", name, value)) })
	a.ui.note("%s", strings.Join(all, ", "))
}

// openAssigned opens the model a head asks for: on the hub, built in or synthetic, and gates the device at its shapes. A
// path on this machine is the operator's to name, not the head's.
func (a *app) openAssigned(ctx context.Context, name string, opts *stage.ServerOptions) (*inspect.Model, error) {
	kind, _, isKind := strings.Cut(name, ":")
	if name != "builtin" && !(isKind && kind == "synthetic") && !isRepo(name) {
		return nil, fmt.Errorf("the head asks for the folder %q: start this stage with --model to serve a folder", clip(name))
	}
	m, err := a.openModel(ctx, name)
	if err != nil || name == "builtin" { // gated at the start
		return m, err
	}
	report, err := units.Gate(ctx, opts.Device, gateShapes(&m.Spec, opts.Mode, true, opts.Readout, stageGateContext))
	if err != nil {
		m.Close()
		return nil, err
	}
	a.ui.note("%s: gates passed at the shapes of %s, %d checks in %.2f s", report.Device, name, len(report.Checks), report.Took.Seconds())
	return m, nil
}

// isRepo says whether a model name can only mean a repository on the hub.
func isRepo(name string) bool {
	if name == "" || strings.ContainsAny(name[:1], "./~\\") || strings.Count(name, "/") != 1 {
		return false
	}
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}
