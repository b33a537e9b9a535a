package cmd

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
)

// evalFlags are the flags of eval beside the cluster's.
type evalFlags struct {
	clusterFlags
	text      string
	ids       string
	logitsOut string
	window    int
	maxTokens int
	json      bool
}

func (a *app) evalCommand() *cobra.Command {
	var f evalFlags
	c := &cobra.Command{
		Use:   "eval (--text FILE | --ids 1,2,3)",
		Short: "Measure the likelihood of a text, or write out logits",
		Long: `eval measures how well a model predicts a text: the negative log-likelihood per token, in nats, and the perplexity. The
text is tokenised once and cut into windows without overlap; the first token of each window is context only.

With --ids the tokens are one sequence, and --logits-out writes the logits after each of them as a float32 array
[tokens, vocabulary] in NumPy's .npy format. No tokenizer is needed then.

Like generate it runs here, or split over stages, with the same result to the bit.`,
		Example: `  dchain eval --text book.txt
  dchain eval --model Qwen/Qwen2.5-0.5B --text book.txt --window 1024 --max-tokens 65536 --json
  dchain eval --ids 1,2,3 --logits-out logits.npy --spawn 2`,
		Args: atMost(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return a.eval(c.Context(), &f) },
	}
	f.clusterFlags.register(c)
	fl := c.Flags()
	fl.StringVar(&f.text, "text", "", "text `FILE`, UTF-8 (- is standard input)")
	fl.IntVar(&f.window, "window", 256, "tokens per window of --text")
	fl.IntVar(&f.maxTokens, "max-tokens", 0, "read at most `N` tokens of --text (default: all)")
	fl.StringVar(&f.ids, "ids", "", "token ids 1,2,3 instead of text, as one sequence")
	fl.StringVar(&f.logitsOut, "logits-out", "", "write the logits of --ids to `FILE`.npy")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// evaluation is the JSON of eval. Likelihoods are absent where a single token leaves nothing to predict.
type evaluation struct {
	Model        string        `json:"model"`
	ModelHash    string        `json:"model_hash"`
	NLL          *float64      `json:"nll,omitempty"`
	Perplexity   *float64      `json:"perplexity,omitempty"`
	Tokens       int           `json:"tokens"` // tokens read, the first of each window included
	Scored       int           `json:"scored"`
	Window       int           `json:"window"`
	Seconds      float64       `json:"seconds"`
	TokensPerSec float64       `json:"tokens_per_second"`
	LogitsOut    string        `json:"logits_out,omitempty"`
	Stages       []stageReport `json:"stages"`
}

func (f *evalFlags) check() (*clusterRequest, error) {
	switch {
	case (f.text == "") == (f.ids == ""):
		return nil, usageError("eval needs either --text or --ids")
	case f.logitsOut != "" && f.ids == "":
		return nil, usageError("--logits-out goes with --ids: the logits of a text would fill the disk")
	case f.window < 2:
		return nil, usageError("--window: %d is not at least 2", f.window)
	case f.maxTokens < 0:
		return nil, usageError("--max-tokens: %d is negative", f.maxTokens)
	}
	return f.clusterFlags.check()
}

func (a *app) eval(ctx context.Context, f *evalFlags) error {
	req, err := f.check()
	if err != nil {
		return err
	}
	m, err := a.openModel(ctx, req.model)
	if err != nil {
		return err
	}
	defer m.Close()
	ids, err := a.evalIDs(ctx, m, f)
	if err != nil {
		return err
	}
	window := f.window
	if f.ids != "" {
		window = len(ids)
	}
	most, err := contextOf(&m.Spec, req.askedContext())
	if err == nil && req.askedContext() == 0 {
		most = m.Spec.MaxPos
	}
	switch {
	case err != nil:
		return err
	case f.ids != "" && window > most:
		return usageError("--ids: %d tokens, the context holds %d", window, most)
	case window > most:
		return usageError("--window: %d tokens, the context holds %d", window, most)
	}
	c, err := a.openCluster(ctx, m, req, clusterNeeds{positions: window, sessions: 1, returnAll: true})
	if err != nil {
		return err
	}
	defer c.close()
	report := evaluation{
		Model: modelName(req.model), ModelHash: fmt.Sprintf("%x", c.hash), Window: window, LogitsOut: f.logitsOut, Stages: c.stageReports(),
	}
	if f.ids != "" {
		err = a.evalSequence(ctx, c, ids, f.logitsOut, &report)
	} else {
		err = a.evalText(ctx, c, ids, &report)
	}
	if err != nil {
		return err
	}
	if f.json {
		return a.ui.json(report)
	}
	return a.showEvaluation(&report)
}

// evalIDs are the tokens to score.
func (a *app) evalIDs(ctx context.Context, m *inspect.Model, f *evalFlags) ([]int, error) {
	if f.ids != "" {
		return promptIDs(f.ids, m.Spec.Vocab)
	}
	tok, err := a.tokenizerFor(ctx, m, false)
	if err != nil {
		return nil, err
	}
	text := ""
	if f.text == "-" {
		data, err := a.readAll()
		if err != nil {
			return nil, err
		}
		text = string(data)
		if err := checkText(text); err != nil {
			return nil, usageError("--text: %w", err)
		}
	} else if text, err = readText("--text", f.text); err != nil {
		return nil, err
	}
	ids := tok.Encode(text, false)
	if f.maxTokens > 0 {
		ids = ids[:min(f.maxTokens, len(ids))]
	}
	if len(ids) < 2 {
		return nil, usageError("--text: %s, at least 2 are needed to score one", plan.Plural(len(ids), "token"))
	}
	return ids, nil
}

// evalText scores a text window by window.
func (a *app) evalText(ctx context.Context, c *cluster, ids []int, r *evaluation) error {
	p := a.ui.progressOf("evaluating", "tokens")
	defer p.end()
	done := 0
	ev, err := c.head.Evaluate(ctx, ids, r.Window, func(now, total int) {
		p.of(int64(now-done), int64(total))
		done = now
	})
	if err != nil {
		return err
	}
	r.NLL, r.Perplexity = &ev.NLL, &ev.Perplexity
	r.Tokens, r.Scored, r.Seconds, r.TokensPerSec = ev.Tokens, ev.Scored, ev.Seconds, ev.TokensPerS
	return nil
}

// evalSequence scores ids as one sequence, and writes the logits after each to a file where one is named.
func (a *app) evalSequence(ctx context.Context, c *cluster, ids []int, file string, r *evaluation) error {
	var out *logitsFile
	if file != "" {
		var err error
		if out, err = createLogits(file, len(ids), c.model.Spec.Vocab); err != nil {
			return err
		}
		defer out.abandon()
	}
	start := time.Now()
	var sum float64
	err := c.head.EachLogits(ctx, ids, func(pos int, logits []float32) error {
		if pos+1 < len(ids) {
			sum -= stage.LogProbability(logits, ids[pos+1])
			r.Scored++
		}
		if out == nil {
			return nil
		}
		return out.row(logits)
	})
	if err != nil {
		return fmt.Errorf("evaluating %s: %w", plan.Plural(len(ids), "id"), err)
	}
	r.Tokens, r.Seconds = len(ids), time.Since(start).Seconds()
	r.TokensPerSec = float64(r.Tokens) / r.Seconds
	if r.Scored > 0 {
		nll := sum / float64(r.Scored)
		perplexity := math.Exp(nll)
		r.NLL, r.Perplexity = &nll, &perplexity
	}
	if out != nil {
		return out.finish()
	}
	return nil
}

func (a *app) showEvaluation(r *evaluation) error {
	kv := [][2]string{{"tokens", groupDigits(int64(r.Tokens))}}
	if r.NLL != nil {
		kv = append(kv, [2]string{"nll", fmt.Sprintf("%.6f nats per token, over %s", *r.NLL, groupDigits(int64(r.Scored)))},
			[2]string{"perplexity", fmt.Sprintf("%.4f", *r.Perplexity)})
	}
	return a.ui.pairs(append(kv, [2]string{"speed", fmt.Sprintf("%.1f tokens/s", r.TokensPerSec)}, [2]string{"logits", r.LogitsOut}))
}

// logitsFile is a .npy file that exists under its name only once it is complete.
type logitsFile struct {
	name string
	file *os.File
	buf  *bufio.Writer
	*npyWriter
}

func createLogits(name string, rows, vocab int) (*logitsFile, error) {
	f, err := os.Create(name + ".part")
	if err != nil {
		return nil, usageError("--logits-out: %w", err)
	}
	l := &logitsFile{name: name, file: f, buf: bufio.NewWriterSize(f, 1<<20)}
	if l.npyWriter, err = newNPY(l.buf, rows, vocab); err != nil {
		l.abandon()
		return nil, fmt.Errorf("writing logits: %w", err)
	}
	return l, nil
}

// finish completes the file.
func (l *logitsFile) finish() error {
	err := l.buf.Flush()
	if closeErr := l.file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(l.file.Name(), l.name)
	}
	if err != nil {
		return fmt.Errorf("writing logits: %w", err)
	}
	l.file = nil
	return nil
}

// abandon removes what is there of the file, unless it is finished.
func (l *logitsFile) abandon() {
	if l.file != nil {
		l.file.Close()
		os.Remove(l.file.Name())
	}
}
