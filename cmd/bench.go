package cmd

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
)

// benchFlags are the flags of bench beside the cluster's.
type benchFlags struct {
	clusterFlags
	prompt   int
	tokens   int
	threads  string
	repeat   int
	sessions int
	json     bool
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure prefill and decode speed, memory, and the share of the memory bandwidth",
		Long: `bench runs a prompt of random tokens and then decodes, and reports the median over several runs, for each number of
threads. Decoding one session reads every weight once per token, so the memory bandwidth, measured in the same run, bounds
it: the share says how close it comes.

With --spawn or --peers a split is measured, and with --sessions several sequences at once (rates are of all together).`,
		Example: `  dchain bench
  dchain bench --model synthetic:qwen2.5-0.5b --threads 1,2,4,8 --json
  dchain bench --model synthetic:qwen2.5-0.5b --spawn 2 --sessions 2 -p 64 -n 64`,
		Args: atMost(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return a.bench(c.Context(), &f) },
	}
	f.clusterFlags.registerShared(c)
	fl := c.Flags()
	fl.IntVarP(&f.prompt, "prompt", "p", 512, "tokens of the prompt")
	fl.IntVarP(&f.tokens, "max-tokens", "n", 128, "tokens to decode")
	fl.StringVar(&f.threads, "threads", "", "numbers of threads `1,2` to measure, of this process and of spawned stages (default: the cores)")
	fl.IntVar(&f.repeat, "repeat", 3, "runs to take the median of")
	fl.IntVar(&f.sessions, "sessions", 1, "sequences at once")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// benchReport is the JSON of bench.
type benchReport struct {
	Model         string        `json:"model"`
	Weights       string        `json:"weights"`
	WeightBytes   int64         `json:"weight_bytes"` // read for every token that is decoded
	PromptTokens  int           `json:"prompt_tokens"`
	DecodeTokens  int           `json:"decode_tokens"`
	Context       int           `json:"context"`
	Sessions      int           `json:"sessions"`
	Repeats       int           `json:"repeats"`
	Stages        []stageReport `json:"stages"`
	Results       []benchResult `json:"results"`
	ModelHash     string        `json:"model_hash"`
	KernelBackend string        `json:"backend"`
}

// benchResult is the measurement with one number of threads; rates are medians over the repeats.
type benchResult struct {
	Threads       int      `json:"threads"`
	PrefillRate   float64  `json:"prefill_tokens_per_second"`
	DecodeRate    float64  `json:"decode_tokens_per_second"`
	BandwidthGBps float64  `json:"bandwidth_gbps,omitempty"`  // of this machine with as many threads; absent for a GPU
	Share         *float64 `json:"bandwidth_share,omitempty"` // absent when stages are on other machines, or several sessions share a reading
	PeakMemory    int64    `json:"peak_memory_bytes"`         // spawned stages included
	LoadSeconds   float64  `json:"load_seconds"`
	GateSeconds   float64  `json:"gate_seconds"`
}

// check returns the request and the numbers of threads.
func (f *benchFlags) check() (*clusterRequest, []int, error) {
	for _, n := range []struct {
		flag         string
		value, least int
	}{{"--prompt", f.prompt, 1}, {"--max-tokens", f.tokens, 1}, {"--repeat", f.repeat, 1}, {"--sessions", f.sessions, 1}} {
		if n.value < n.least {
			return nil, nil, usageError("%s: %d is not at least %d", n.flag, n.value, n.least)
		}
	}
	counts := []int{units.DefaultThreads()}
	if f.threads != "" {
		counts = nil
		for s := range strings.SplitSeq(f.threads, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil || n < 1 {
				return nil, nil, usageError("--threads: %q is not a number from 1 up", clip(s))
			}
			counts = append(counts, n)
		}
	}
	req, err := f.clusterFlags.check()
	return req, counts, err
}

func (a *app) bench(ctx context.Context, f *benchFlags) error {
	req, counts, err := f.check()
	if err != nil {
		return err
	}
	m, err := a.openModel(ctx, req.model)
	if err != nil {
		return err
	}
	defer m.Close()
	need := f.prompt + f.tokens
	limit, err := contextOf(&m.Spec, req.askedContext())
	if err == nil && req.askedContext() == 0 {
		limit = m.Spec.MaxPos
	}
	switch {
	case err != nil:
		return err
	case need > limit:
		return usageError("%d + %d tokens, the context holds %d", f.prompt, f.tokens, limit).hint("lower -p or -n")
	}
	r := benchReport{
		Model: modelName(req.model), Weights: req.mode.String(), PromptTokens: f.prompt, DecodeTokens: f.tokens, Sessions: f.sessions, Repeats: f.repeat,
		WeightBytes: needOf(&m.Spec, req.mode, need, f.sessions).WeightBytes(m.Spec.Layers, true),
	}
	for _, threads := range counts {
		one := *req
		one.threads = threads
		res, err := a.benchThreads(ctx, m, &one, f, &r)
		if err != nil {
			return err
		}
		r.Results = append(r.Results, res)
	}
	if f.json {
		return a.ui.json(r)
	}
	return a.showBench(&r)
}

// benchThreads loads and measures with one number of threads.
func (a *app) benchThreads(ctx context.Context, m *inspect.Model, req *clusterRequest, f *benchFlags, r *benchReport) (benchResult, error) {
	res := benchResult{Threads: req.threads}
	debug.FreeOSMemory() // what the last measurement left
	resetPeakMemory()
	c, err := a.openCluster(ctx, m, req, clusterNeeds{positions: f.prompt + f.tokens, sessions: f.sessions})
	if err != nil {
		return res, err
	}
	defer c.close()
	r.Context, r.Stages, r.ModelHash, r.KernelBackend = c.positions, c.stageReports(), fmt.Sprintf("%x", c.hash), "cpu "+c.gate.Kernels
	gpu := strings.HasPrefix(c.gate.Kernels, vulkanPrefix)
	if gpu {
		r.KernelBackend = c.gate.Device
	}
	res.LoadSeconds, res.GateSeconds = c.loadTime.Seconds(), c.gate.Seconds
	var prefill, decode []float64
	for i := range f.repeat + 1 {
		p, d := f.prompt, f.tokens
		if i == 0 { // pages, workers and links get warm
			p, d = min(p, stage.DefaultChunk), min(d, 2)
		}
		pre, dec, err := benchRun(ctx, c.head, f.sessions, p, d)
		if err != nil {
			return res, err
		}
		if i > 0 {
			prefill, decode = append(prefill, pre), append(decode, dec)
		}
	}
	res.PrefillRate, res.DecodeRate = median(prefill), median(decode)
	res.PeakMemory = peakMemory()
	if c.kids != nil {
		res.PeakMemory += c.kids.peakMemory()
	}
	if gpu { // its weights lie in memory that this process cannot measure
		return res, nil
	}
	if res.BandwidthGBps, err = units.MemoryBandwidth(req.threads); err != nil {
		return res, err
	}
	if len(req.peers) == 0 && f.sessions == 1 {
		share := float64(r.WeightBytes) * res.DecodeRate / (res.BandwidthGBps * 1e9)
		res.Share = &share
	}
	return res, nil
}

// benchRun prefills every session, then decodes in every session, and returns the tokens per second of all together.
func benchRun(ctx context.Context, head *stage.Head, sessions, prompt, tokens int) (prefill, decode float64, err error) {
	seqs := make([]*stage.Sequence, sessions)
	defer func() {
		for _, s := range seqs {
			if s != nil {
				s.Close()
			}
		}
	}()
	greedy := stage.NewSampler(stage.Sampling{})
	last := make([]int, sessions) // token picked
	for i := range seqs {
		if seqs[i], err = head.Open(ctx); err != nil {
			return 0, 0, err
		}
	}
	vocab := head.Model.Spec.Vocab
	prefill, err = timeSessions(sessions, prompt, func(i int) error {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		ids := make([]int, prompt)
		for k := range ids {
			ids[k] = rng.IntN(vocab)
		}
		var err error
		last[i], err = seqs[i].Next(ctx, ids, greedy, nil, tokens > 0)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	decode, err = timeSessions(sessions, tokens, func(i int) error {
		for done := range tokens {
			var err error
			if last[i], err = seqs[i].Next(ctx, []int{last[i]}, greedy, nil, done+1 < tokens); err != nil {
				return err
			}
		}
		return nil
	})
	return prefill, decode, err
}

// timeSessions runs f for every session at once and returns tokens per second over all.
func timeSessions(sessions, tokens int, f func(i int) error) (float64, error) {
	start := time.Now()
	var g errgroup.Group
	for i := range sessions {
		g.Go(func() error { return f(i) })
	}
	err := g.Wait()
	return float64(sessions*tokens) / time.Since(start).Seconds(), err
}

// median of at least one value.
func median(v []float64) float64 {
	s := slices.SortedFunc(slices.Values(v), cmp.Compare[float64])
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func (a *app) showBench(r *benchReport) error {
	where := ""
	if n := len(r.Stages); n > 1 {
		where = ", " + plan.Plural(n-1, "stage")
	}
	if r.Sessions > 1 {
		where += fmt.Sprintf(", %d sessions", r.Sessions)
	}
	if err := a.ui.printf("%s, %s weights, %s\nprompt %d, decode %d%s, median of %d\n\n", r.Model, r.Weights, r.KernelBackend,
		r.PromptTokens, r.DecodeTokens, where, r.Repeats); err != nil {
		return err
	}
	rows := make([][]string, len(r.Results))
	for i, t := range r.Results {
		share, bandwidth := "-", "-"
		if t.BandwidthGBps > 0 {
			bandwidth = fmt.Sprintf("%.1f", t.BandwidthGBps)
		}
		if t.Share != nil {
			share = fmt.Sprintf("%.0f %%", 100**t.Share)
		}
		memory := "-"
		if t.PeakMemory > 0 {
			memory = plan.Bytes(t.PeakMemory).String()
		}
		rows[i] = []string{strconv.Itoa(t.Threads), fmt.Sprintf("%.1f", t.PrefillRate), fmt.Sprintf("%.1f", t.DecodeRate), share,
			bandwidth, memory, fmt.Sprintf("%.2f", t.LoadSeconds)}
	}
	return a.ui.table([]string{">threads", ">prefill tok/s", ">decode tok/s", ">of bandwidth", ">GB/s", ">peak memory", ">load s"}, rows)
}
