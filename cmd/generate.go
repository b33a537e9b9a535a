package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
)

// generateFlags are the flags of generate beside the cluster's.
type generateFlags struct {
	clusterFlags
	maxTokens int
	sampling  stage.Sampling
	stop      []string
	ids       string
	chat      bool
	system    string
	check     bool
	json      bool

	flags *pflag.FlagSet // to tell what was set
}

func (a *app) generateCommand() *cobra.Command {
	var f generateFlags
	c := &cobra.Command{
		Use:   "generate [PROMPT | -]",
		Short: "Continue a prompt, on this machine or split over stages",
		Long: `generate continues PROMPT (- reads it from standard input) and streams the text to standard output; a summary goes to
standard error. Without stages the whole model runs here. With --peers, --spawn or --plan the layers run on the stages
and the answer is, to the bit, the one this machine would have given alone; --check proves it afterwards.`,
		Example: `  dchain generate "Once upon a time"
  dchain generate --spawn 2 --check "Once upon a time"
  dchain generate --model Qwen/Qwen2.5-0.5B --peers SHA256:...@desk:7433,SHA256:...@box:7433 -n 200 "The sea"
  dchain generate --model Qwen/Qwen2.5-0.5B-Instruct --chat --system "Answer briefly." "What is a hash?"
  echo "The king" | dchain generate --temperature 0.8 --top-p 0.95 --seed 7 -`,
		Args: atMost(1, "one PROMPT"),
		RunE: func(c *cobra.Command, args []string) error { return a.generate(c.Context(), &f, args) },
	}
	f.clusterFlags.register(c)
	fl := c.Flags()
	f.flags = fl
	fl.IntVarP(&f.maxTokens, "max-tokens", "n", 128, "tokens to generate at most")
	fl.Float64Var(&f.sampling.Temperature, "temperature", 0, "0 always takes the most probable token")
	fl.IntVar(&f.sampling.TopK, "top-k", 0, "draw from the K most probable tokens; 0 = all")
	fl.Float64Var(&f.sampling.TopP, "top-p", 1, "draw from the most probable tokens that together reach P")
	fl.Float64Var(&f.sampling.MinP, "min-p", 0, "leave out tokens less probable than P times the most probable")
	fl.Float64Var(&f.sampling.RepeatPenalty, "repeat-penalty", 1, "divide the score of tokens seen before; 1 = none")
	fl.Uint64Var(&f.sampling.Seed, "seed", 0, "seed of the draw: the same seed gives the same ids, whatever the split")
	fl.StringArrayVar(&f.stop, "stop", nil, "text that ends the answer (repeatable)")
	fl.StringVar(&f.ids, "ids", "", "prompt as token ids 1,2,3 instead of text")
	fl.BoolVar(&f.chat, "chat", false, "render PROMPT with the model's chat template; sampling as the model recommends")
	fl.StringVar(&f.system, "system", "", "system prompt of --chat")
	fl.BoolVar(&f.check, "check", false, "afterwards run the whole model here and compare, as diff-check does")
	fl.BoolVar(&f.json, "json", false, "print JSON at the end instead of streaming text")
	return c
}

// generation is the JSON of generate.
type generation struct {
	Model     string        `json:"model"`
	ModelHash string        `json:"model_hash"`
	PromptIDs []int         `json:"prompt_ids"`
	TokenIDs  []int         `json:"token_ids"`
	Text      string        `json:"text"`
	Finish    string        `json:"finish_reason"`
	Stages    []stageReport `json:"stages"`
	Lanes     int           `json:"lanes,omitempty"` // stages that the head reaches on local sockets
	Timings   stage.Timings `json:"timings"`
	GateSecs  float64       `json:"gate_seconds"`        // to compare the device with the reference, before loading
	Checked   *bool         `json:"identical,omitempty"` // with --check
}

type stageReport struct {
	Addr   string     `json:"addr"` // empty for the head
	Layers plan.Range `json:"layers"`
}

func (a *app) generate(ctx context.Context, f *generateFlags, args []string) error {
	req, err := f.validate()
	if err != nil {
		return err
	}
	m, err := a.openModel(ctx, req.model)
	if err != nil {
		return err
	}
	defer m.Close()
	tok, err := a.tokenizerFor(ctx, m, f.ids != "")
	if err != nil {
		return err
	}
	if tok == nil && len(f.stop) > 0 {
		return usageError("--stop needs text, for which %s has no usable tokenizer", m.Source.Location())
	}
	prompt, err := a.generatePrompt(ctx, f, m, args, tok)
	if err != nil {
		return err
	}
	needs := clusterNeeds{positions: len(prompt) + f.maxTokens, sessions: 1}
	if f.check {
		needs.recorder = stage.NewRecorder()
	}
	c, err := a.openCluster(ctx, m, req, needs)
	if err != nil {
		return err
	}
	defer c.close()
	maxTokens, err := c.room(len(prompt), f.maxTokens)
	if err != nil {
		return err
	}
	opts := stage.GenerateOptions{Prompt: prompt, MaxTokens: maxTokens, Sampling: f.sampling, Stop: f.stop, EOS: m.Spec.EOS}
	if tok != nil {
		opts.Text = tok.NewStream(true)
	}
	if !f.json {
		opts.Emit = func(t stage.Token) { a.emit(t, tok == nil, prompt) }
	}
	res, err := c.head.Generate(ctx, opts)
	if !f.json && len(res.IDs) > 0 {
		a.ui.printf("\n")
	}
	if err != nil {
		return err
	}
	if res.Finish == "length" && len(res.IDs) < f.maxTokens {
		a.ui.note("the context of %s is full: the answer ends before the %s of -n", plan.Plural(c.positions, "position"), plan.Plural(f.maxTokens, "token"))
	}
	report := generation{
		Model: modelName(req.model), ModelHash: fmt.Sprintf("%x", c.hash), PromptIDs: prompt, TokenIDs: res.IDs, Text: res.Text,
		Finish: res.Finish, Stages: c.stageReports(), Lanes: c.lanes, Timings: res.Timings, GateSecs: c.gate.Seconds,
	}
	a.summary(&report, f.lanes)
	var different error
	if f.check {
		different = c.checkAnswer(ctx, res, needs.recorder, opts)
		same := different == nil
		report.Checked = &same
		if same {
			a.ui.note("checked: %s and %s are those of the unsplit run", plan.Plural(len(res.IDs), "token"), plan.Plural(needs.recorder.Rows(), "boundary row"))
		}
	}
	if f.json {
		if err := a.ui.json(report); err != nil {
			return err
		}
	}
	return different
}

// validate checks all flags of generate.
func (f *generateFlags) validate() (*clusterRequest, error) {
	if err := f.sampling.Validate(); err != nil {
		return nil, usageError("%w", err)
	}
	if f.maxTokens < 1 {
		return nil, usageError("--max-tokens: %d is not at least 1", f.maxTokens)
	}
	if f.system != "" && !f.chat {
		return nil, usageError("--system goes with --chat")
	}
	if f.chat && f.ids != "" {
		return nil, usageError("--chat needs text: --ids are taken as they are")
	}
	for _, s := range f.stop {
		if s == "" {
			return nil, usageError("--stop: the text is empty")
		}
	}
	return f.clusterFlags.check()
}

// tokenizerFor loads the tokenizer. Ids alone do without one, or with one that is not supported: nil then.
func (a *app) tokenizerFor(ctx context.Context, m *inspect.Model, idsOnly bool) (*inspect.Tokenizer, error) {
	file, config, err := readTokenizer(ctx, m.Source)
	switch {
	case errors.Is(err, fs.ErrNotExist) && idsOnly:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, usageError("%s has no tokenizer.json", m.Source.Location()).hint("give token ids with --ids 1,2,3")
	case err != nil:
		return nil, err
	}
	tok, err := inspect.LoadTokenizer(file, config)
	if err != nil && idsOnly {
		a.ui.note("there will be ids, no text: %v", err)
		return nil, nil
	}
	return tok, err
}

// generatePrompt is the prompt as ids: --ids, or text, which --chat puts into the model's chat template.
func (a *app) generatePrompt(ctx context.Context, f *generateFlags, m *inspect.Model, args []string, tok *inspect.Tokenizer) ([]int, error) {
	if f.ids != "" {
		if len(args) > 0 {
			return nil, usageError("give a PROMPT or --ids, not both")
		}
		return promptIDs(f.ids, m.Spec.Vocab)
	}
	text, err := a.promptText(args)
	if err != nil {
		return nil, err
	}
	prompt, err := encodePrompt(text, tok)
	if err != nil || !f.chat {
		return prompt, err
	}
	if text, err = chatText(ctx, m, f.system, text); err != nil {
		return nil, err
	}
	defaults, err := m.SamplingDefaults(ctx)
	if err != nil {
		return nil, err
	}
	applyDefaults(&f.sampling, defaults, f.flags)
	return tok.Encode(text, false), f.sampling.Validate() // the template writes the special tokens
}

// promptText is the argument, or standard input.
func (a *app) promptText(args []string) (string, error) {
	if len(args) == 0 {
		return "", usageError("no prompt given").hint("dchain generate \"Once upon a time\", or - to read it from standard input")
	}
	if args[0] != "-" {
		return args[0], nil
	}
	data, err := a.readAll()
	return strings.TrimSuffix(string(data), "\n"), err
}

// promptIDs are the ids of --ids.
func promptIDs(ids string, vocab int) ([]int, error) {
	prompt, err := parseIDs(ids)
	if err != nil {
		return nil, usageError("--ids: %w", err)
	}
	if len(prompt) == 0 {
		return nil, usageError("--ids: there are none")
	}
	if err := checkIDs(prompt, vocab); err != nil {
		return nil, usageError("--ids: %w", err)
	}
	return prompt, nil
}

// encodePrompt tokenises a prompt that is text and not empty.
func encodePrompt(text string, tok *inspect.Tokenizer) ([]int, error) {
	if err := checkText(text); err != nil {
		return nil, usageError("the prompt: %w", err)
	}
	if text == "" {
		return nil, usageError("the prompt is empty")
	}
	prompt := tok.Encode(text, true)
	if len(prompt) == 0 {
		return nil, usageError("the prompt has no tokens")
	}
	return prompt, nil
}

// room is how many tokens can follow a prompt within the context; a prompt that leaves no room is refused.
func (c *cluster) room(prompt, asked int) (int, error) {
	if prompt >= c.positions {
		return 0, usageError("the prompt has %s, the context holds %d and must leave room for an answer", plan.Plural(prompt, "token"), c.positions).
			hint("shorten the prompt, or raise --ctx (the model allows %d)", c.model.Spec.MaxPos)
	}
	return min(asked, c.positions-prompt), nil
}

// emit writes a token's text, or its id when there is no tokenizer.
func (a *app) emit(t stage.Token, ids bool, prompt []int) {
	switch {
	case !ids:
		a.ui.printf("%s", t.Text)
	case t.Pos == len(prompt):
		a.ui.printf("%d", t.ID)
	default:
		a.ui.printf(",%d", t.ID)
	}
}

func (c *cluster) stageReports() []stageReport {
	if c.plan == nil {
		return []stageReport{{Layers: plan.Range{First: 0, Last: c.model.Spec.Layers - 1}}}
	}
	var reports []stageReport
	for _, s := range c.plan.Stages {
		reports = append(reports, stageReport{s.Addr, s.Range})
	}
	return reports
}

// summary is the one line after the text; with lanes it says how many of the stages had one, which only those have that say so too.
func (a *app) summary(g *generation, lanes bool) {
	t := g.Timings
	line := fmt.Sprintf("%s (%s), %.1f tokens/s, first token after %.2f s", plan.Plural(len(g.TokenIDs), "token"), g.Finish, t.TokensPerSec, t.PrefillSecs)
	if n := len(g.Stages); n > 1 && t.DecodeTokens > 0 {
		line += fmt.Sprintf(", %.2f ms per hop over %d hops", t.HopMillis, n)
		if lanes {
			line += fmt.Sprintf(", %d of %s on lanes", g.Lanes, plan.Plural(n-1, "stage"))
		}
	}
	a.ui.note("%s", line)
}

// checkAnswer runs the unsplit model and compares.
func (c *cluster) checkAnswer(ctx context.Context, res stage.Result, rec *stage.Recorder, opts stage.GenerateOptions) error {
	unsplit, err := c.unsplit(ctx)
	if err != nil {
		return err
	}
	diff, err := stage.CompareWith(ctx, res, stage.Run{Head: c.head, Recorder: rec}, unsplit, opts)
	if err != nil {
		return err
	}
	if diff != nil {
		return c.differs(diff)
	}
	return nil
}

// readText reads a text file of a flag.
func readText(flag, file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", usageError("%s: %w", flag, err)
	}
	if !utf8.Valid(data) {
		return "", usageError("%s: %s is not valid UTF-8", flag, file)
	}
	return string(data), nil
}
