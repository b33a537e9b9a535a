package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
)

// exit codes of diff-check.
const (
	exitDifferent = 1
	exitNotRun    = 2
)

// defaultPrompts are checked when --prompts is not given, and then two that are repeated from them, since some faults show
// only at length: one of several prefill chunks, and one that fills the context where that is at most autoLong positions.
var defaultPrompts = []string{"Once upon a time", "The king said to his daughter,", "In the middle of the forest"}

const (
	chunksPrompt = 3*stage.DefaultChunk + 8 // tokens, a few more than three chunks
	autoLong     = 1024
)

type diffFlags struct {
	clusterFlags
	prompts string
	ids     string
	tokens  int
	long    bool
	json    bool
}

func (a *app) diffCheckCommand() *cobra.Command {
	var f diffFlags
	c := &cobra.Command{
		Use:   "diff-check",
		Short: "Prove that the split answer is the unsplit one, token by token and boundary by boundary",
		Long: `diff-check generates on the stages, then runs the whole model on this machine, and compares every token id and the hash
of every hidden state that left a stage. It needs a machine that holds the whole model.

Exit code 0: identical. 1: different; the message names the first token, and the first stage whose output differs.
2: it could not be run.`,
		Example: `  dchain diff-check --spawn 2
  dchain diff-check --model Qwen/Qwen2.5-0.5B --peers SHA256:...@desk:7433,SHA256:...@box:7433 -n 64
  dchain diff-check --peers a,b --prompts prompts.txt --json`,
		Args: atMost(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			err := a.diffCheck(c.Context(), &f)
			var coded *exitError
			if err != nil && !errors.As(err, &coded) && !errors.Is(err, context.Canceled) {
				return &exitError{code: exitNotRun, err: err}
			}
			return err
		},
	}
	f.clusterFlags.register(c)
	fl := c.Flags()
	fl.StringVar(&f.prompts, "prompts", "", "`FILE` with one prompt a line (default: built-in ones, up to several prefill chunks long)")
	fl.StringVar(&f.ids, "ids", "", "one prompt as token ids 1,2,3")
	fl.IntVarP(&f.tokens, "max-tokens", "n", 32, "tokens to generate for each prompt")
	fl.BoolVar(&f.long, "long", false, fmt.Sprintf("also check a prompt that fills the context (default for contexts up to %d)", autoLong))
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// diffReport is the JSON of diff-check.
type diffReport struct {
	Identical  bool              `json:"identical"`
	ModelHash  string            `json:"model_hash"`
	Stages     []stageReport     `json:"stages"`
	Prompts    int               `json:"prompts"`
	Tokens     int               `json:"tokens"`
	Boundaries int               `json:"boundary_rows"`
	Difference *stage.Difference `json:"difference,omitempty"`
	Prompt     int               `json:"different_prompt,omitempty"` // 1-based
}

func (a *app) diffCheck(ctx context.Context, f *diffFlags) error {
	req, err := f.clusterFlags.check()
	if err != nil {
		return err
	}
	if !req.split() {
		return usageError("there is nothing to compare with: no stages given").hint("--peers, --spawn or --plan names them")
	}
	if f.tokens < 1 {
		return usageError("--max-tokens: %d is not at least 1", f.tokens)
	}
	m, err := a.openModel(ctx, req.model)
	if err != nil {
		return err
	}
	defer m.Close()
	prompts, err := a.checkPrompts(ctx, m, f)
	if err != nil {
		return err
	}
	needs := clusterNeeds{sessions: 1, recorder: stage.NewRecorder()}
	for _, p := range prompts {
		needs.positions = max(needs.positions, len(p)+f.tokens)
	}
	limit, err := contextOf(&m.Spec, req.askedContext())
	if err != nil {
		return err
	}
	needs.reach = f.reach(limit)
	recorder := needs.recorder
	c, err := a.openCluster(ctx, m, req, needs)
	if err != nil {
		if errors.Is(err, stage.ErrModelMismatch) || errors.Is(err, errWrongBits) {
			return &exitError{code: exitDifferent, err: err}
		}
		return err
	}
	defer c.close()
	prompts = append(prompts, f.longer(prompts, c.positions, limit)...)
	unsplit, err := c.unsplit(ctx)
	if err != nil {
		return err
	}
	report := diffReport{Identical: true, ModelHash: fmt.Sprintf("%x", c.hash), Stages: c.stageReports()}
	for i, p := range prompts {
		n, err := c.room(len(p), f.tokens)
		if err != nil {
			return err
		}
		opts := stage.GenerateOptions{Prompt: p, MaxTokens: n, EOS: m.Spec.EOS}
		diff, got, err := stage.Compare(ctx, stage.Run{Head: c.head, Recorder: recorder}, unsplit, opts)
		if err != nil {
			return err
		}
		report.Prompts++
		report.Tokens += len(got.IDs)
		report.Boundaries += recorder.Rows()
		if diff != nil {
			report.Identical, report.Difference, report.Prompt = false, diff, i+1
			break
		}
	}
	return a.reportDiff(c, &report, f.json)
}

func (a *app) reportDiff(c *cluster, r *diffReport, asJSON bool) error {
	if asJSON {
		if err := a.ui.json(r); err != nil {
			return err
		}
	}
	if !r.Identical {
		return c.differs(r.Difference)
	}
	if asJSON {
		return nil
	}
	return a.ui.printf("identical: %s, %s, %s over %s\n", plan.Plural(r.Prompts, "prompt"), plan.Plural(r.Tokens, "token"),
		plan.Plural(r.Boundaries, "boundary row"), plan.Plural(len(r.Stages)-1, "stage"))
}

// checkPrompts are the prompts to compare, as ids.
func (a *app) checkPrompts(ctx context.Context, m *inspect.Model, f *diffFlags) ([][]int, error) {
	tok, err := a.tokenizerFor(ctx, m, f.ids != "")
	if err != nil {
		return nil, err
	}
	if f.ids != "" {
		p, err := promptIDs(f.ids, m.Spec.Vocab)
		return [][]int{p}, err
	}
	texts := defaultPrompts
	if f.prompts != "" {
		text, err := readText("--prompts", f.prompts)
		if err != nil {
			return nil, err
		}
		texts = nil
		for line := range strings.Lines(text) {
			if line = strings.TrimRight(line, "\r\n"); line != "" {
				texts = append(texts, line)
			}
		}
		if len(texts) == 0 {
			return nil, usageError("--prompts: %s has no prompts", f.prompts)
		}
	}
	var prompts [][]int
	for _, t := range texts {
		p, err := encodePrompt(t, tok)
		if err != nil {
			return nil, err
		}
		prompts = append(prompts, p)
	}
	return prompts, nil
}

// reach are the positions that the longest repeated prompt and its answer want.
func (f *diffFlags) reach(limit int) int {
	switch own := f.prompts == "" && f.ids == ""; {
	case f.long, own && limit <= autoLong:
		return limit
	case own:
		return min(chunksPrompt+f.tokens, limit)
	}
	return 0
}

// longer are the repeated prompts for a context of so many positions, of the limit there could have been.
func (f *diffFlags) longer(prompts [][]int, positions, limit int) [][]int {
	var more [][]int
	if f.prompts == "" && f.ids == "" {
		more = repeatTo(prompts, min(chunksPrompt, positions-f.tokens))
	}
	if f.long || f.reach(limit) == limit {
		more = append(more, repeatTo(append(more, prompts...), positions-f.tokens)...)
	}
	return more
}

// repeatTo is a prompt of n tokens made by repeating prompts; none when one of them is that long.
func repeatTo(prompts [][]int, n int) [][]int {
	var all []int
	for _, p := range prompts {
		if len(p) >= n {
			return nil
		}
		all = append(all, p...)
	}
	long := make([]int, n)
	for i := range long {
		long[i] = all[i%len(all)]
	}
	return [][]int{long}
}

// unsplit is the whole model in this process, observed where the split is cut.
func (c *cluster) unsplit(ctx context.Context) (stage.Run, error) {
	run := stage.Run{Recorder: stage.NewRecorder()}
	all := plan.Range{First: 0, Last: c.model.Spec.Layers - 1}
	if err := checkMemory(c.gate.memory(), c.gate.Device, c.need(clusterNeeds{}), all.Len(), true); err != nil {
		return run, fmt.Errorf("loading the unsplit model: %w", err)
	}
	w, err := c.loadHere(ctx, all, true, false, nil)
	if err != nil {
		return run, fmt.Errorf("loading the unsplit model: %w", err)
	}
	e, err := stage.NewEngine(w, stage.EngineOptions{Context: c.positions, Sessions: 1, Cuts: c.head.Cuts(), Trace: run.Recorder.Trace})
	if err != nil {
		return run, err
	}
	c.onClose(func() { e.Close() })
	run.Head, err = stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}})
	return run, err
}

// differs is the error of a difference, with the address of the stage it was found on.
func (c *cluster) differs(d *stage.Difference) error {
	err := &exitError{code: exitDifferent, err: fmt.Errorf("different: %w", d)}
	for _, s := range c.stageReports() {
		if s.Layers == d.Layers && s.Addr != "" {
			err.hint("that stage is %s: check its weights, and run dchain probe there", s.Addr)
		}
	}
	return err
}
