package cmd

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
)

// clusterFlags say which model runs where: the flags that generate, diff-check and eval share.
type clusterFlags struct {
	trustFlags
	model   string
	peers   string
	spawn   int
	plan    string
	layers  string
	ctx     int
	weights string
	route   string
	threads int
	chunk   int
	audit   int
	cache   bool
	lanes   bool
	backendFlags
}

func (f *clusterFlags) register(c *cobra.Command) {
	f.registerShared(c)
	c.Flags().IntVar(&f.threads, "threads", 0, "computing threads of the head and of spawned stages (default: the cores)")
}

// registerShared leaves out --threads, of which bench takes a list.
func (f *clusterFlags) registerShared(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.model, "model", "", "model: org/name[@revision], a folder, builtin or synthetic:NAME (default builtin)")
	fl.StringVar(&f.peers, "peers", "", "stages as [FINGERPRINT@]host:port,...")
	fl.IntVar(&f.spawn, "spawn", 0, "start `N` stages as child processes on this machine, by turns on GPUs of one kind if it has several")
	fl.StringVar(&f.plan, "plan", "", "stages from a plan `FILE` of the plan command")
	fl.StringVar(&f.layers, "layers", "", "layers A-B that the head itself runs, from 0 (default: none beside stages)")
	fl.IntVar(&f.ctx, "ctx", 0, "positions per session (default: as many as the request needs)")
	fl.StringVar(&f.weights, "weights", "", "weight format: int8 or int8x2 (default: the plan's, else int8)")
	fl.StringVar(&f.route, "route", "auto", "how activations pass: ring (stage to stage), star (through the head), auto")
	fl.IntVar(&f.chunk, "prefill-chunk", 0, "prompt positions that travel together (default: as many as suit the devices)")
	fl.IntVar(&f.audit, "audit-every", defaultAudit, "recompute one operation of every `N`th step on the reference path; 0 = never")
	registerCache(fl, &f.cache)
	registerLanes(fl, &f.lanes)
	f.backendFlags.register(fl)
	f.trustFlags.register(c)
}

// registerCache adds the flag of every command that loads weights.
func registerCache(fl *pflag.FlagSet, cache *bool) {
	fl.BoolVar(cache, "cache", false, "keep the weights as this machine works on them, in dchain/packed of HF_HOME, for the next start")
}

// registerLanes adds the flag of every command that has links. Both ends of a link must have it.
func registerLanes(fl *pflag.FlagSet, lanes *bool) {
	fl.BoolVar(lanes, "lanes", false, "between processes of this machine that both say so, pass activations on a local socket, unencrypted, not in QUIC packets (Linux)")
}

// trustFlags say who this head is and which stages it trusts.
type trustFlags struct {
	identity   string
	knownHosts string
}

func (f *trustFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.identity, "identity", "", "OpenSSH ed25519 private key `FILE`, made when missing (default: ~/.ssh/id_ed25519 or dchain's own)")
	fl.StringVar(&f.knownHosts, "known-hosts", "", "`FILE` of pinned stage keys (default: dchain's own)")
}

// dial opens the keys.
func (f *trustFlags) dial(a *app) (transport.DialOptions, error) {
	var o transport.DialOptions
	var err error
	if o.Identity, err = headIdentity(f.identity); err != nil {
		return o, err
	}
	o.Known, err = a.knownHosts(f.knownHosts)
	return o, err
}

// defaultAudit costs a processor well under a percent: one operation of several hundred, every so many steps. A GPU, whose
// steps are short and whose results must be read back, loses one or two (docs/BENCHMARKS.md).
const defaultAudit = 64

// clusterRequest is clusterFlags checked.
type clusterRequest struct {
	clusterFlags
	mode   units.WeightMode
	peers  []transport.PeerAddr
	plan   *plan.Plan
	layers plan.Range // of the head, plan.None for none
	route  stage.Route
}

// check rejects what no run could satisfy, before anything is opened.
func (f *clusterFlags) check() (*clusterRequest, error) {
	r := &clusterRequest{clusterFlags: *f, layers: plan.None, route: stage.Route(f.route)}
	if f.peers != "" && (f.spawn != 0 || f.plan != "") || f.spawn != 0 && f.plan != "" {
		return nil, usageError("--peers, --spawn and --plan exclude each other")
	}
	switch r.route {
	case stage.RouteAuto, stage.RouteRing, stage.RouteStar:
	default:
		return nil, usageError("--route: unknown route %q (ring, star or auto)", f.route)
	}
	for _, n := range []struct {
		flag  string
		value int
		least int
	}{{"--spawn", f.spawn, 0}, {"--ctx", f.ctx, 0}, {"--threads", f.threads, 0}, {"--prefill-chunk", f.chunk, 0}, {"--audit-every", f.audit, 0}} {
		if n.value < n.least {
			return nil, usageError("%s: %d is less than %d", n.flag, n.value, n.least)
		}
	}
	err := f.backendFlags.check()
	if err != nil {
		return nil, err
	}
	if f.layers != "" {
		if r.layers, err = plan.ParseRange(f.layers); err != nil {
			return nil, usageError("--layers: %w", err)
		}
	}
	if f.peers != "" {
		if r.peers, err = parsePeers(f.peers); err != nil {
			return nil, err
		}
	}
	if f.plan != "" {
		if err := r.readPlan(); err != nil {
			return nil, err
		}
	}
	if r.mode, err = units.ParseWeightMode(cmp.Or(r.weights, "int8")); err != nil {
		return nil, usageError("--weights: %w", err)
	}
	return r, nil
}

// parsePeers reads the value of --peers.
func parsePeers(list string) ([]transport.PeerAddr, error) {
	var peers []transport.PeerAddr
	for s := range strings.SplitSeq(list, ",") {
		addr, err := transport.ParsePeerAddr(strings.TrimSpace(s))
		if err != nil {
			return nil, usageError("--peers: %w", err)
		}
		peers = append(peers, addr)
	}
	return peers, nil
}

// readPlan takes peers, the head's layers and what was not given as a flag from a plan file.
func (r *clusterRequest) readPlan() error {
	data, err := os.ReadFile(r.clusterFlags.plan)
	if err != nil {
		return usageError("--plan: %w", err)
	}
	if r.plan, err = plan.Read(data); err != nil {
		return usageError("--plan: %s: %w", r.clusterFlags.plan, err)
	}
	for _, s := range r.plan.Stages[1:] {
		if s.Addr == "" {
			return usageError("--plan: %s: stage %q has no address", r.clusterFlags.plan, s.Name).
				hint("plan --peers writes addresses; or add \"addr\": \"host:port\" to each stage")
		}
		addr, err := transport.ParsePeerAddr(s.Addr)
		if err != nil {
			return usageError("--plan: %s: %w", r.clusterFlags.plan, err)
		}
		addr.Fingerprint = s.Fingerprint
		r.peers = append(r.peers, addr)
	}
	if r.layers.Len() > 0 && r.layers != r.plan.Stages[0].Range {
		return usageError("--layers %v: the plan gives the head layers %v", r.layers, r.plan.Stages[0].Range)
	}
	r.layers = r.plan.Stages[0].Range
	r.model = cmp.Or(r.model, r.plan.Model)
	r.weights = cmp.Or(r.weights, r.plan.Weights)
	return nil
}

// askedContext is --ctx, or the plan's context, or 0.
func (r *clusterRequest) askedContext() int {
	if r.ctx == 0 && r.plan != nil {
		return r.plan.Context
	}
	return r.ctx
}

// split says whether other processes hold layers.
func (r *clusterRequest) split() bool { return len(r.peers) > 0 || r.spawn > 0 }
