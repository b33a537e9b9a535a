package stage

import (
	"context"
	"slices"
	"strings"
	"time"
)

// TextStream turns ids into text piece by piece, cut at character boundaries.
type TextStream interface {
	Push(id int) string
	Flush() string
}

// GenerateOptions asks for a continuation.
type GenerateOptions struct {
	Prompt    []int
	MaxTokens int
	Sampling  Sampling
	Stop      []string   // text that ends the answer and is not part of it
	EOS       []int      // ids that end the answer and are not part of its text
	Text      TextStream // nil: ids only, Stop is ignored
	// Emit, which may be nil, receives each token as soon as its text is certain.
	Emit func(Token)
}

// Token is one generated token. Text may lag behind: a character or a possible stop text may end with a later token.
type Token struct {
	Pos, ID int
	Text    string
}

// Result is a finished generation.
type Result struct {
	IDs     []int
	Text    string
	Finish  string // "stop" (end-of-sequence id or stop text) or "length"
	Timings Timings
}

// Timings of a generation, in seconds.
type Timings struct {
	PromptTokens int     `json:"prompt_tokens"`
	PrefillSecs  float64 `json:"prefill_seconds"` // prompt in to first token out
	DecodeTokens int     `json:"decode_tokens"`   // tokens after the first
	DecodeSecs   float64 `json:"decode_seconds"`
	TokensPerSec float64 `json:"tokens_per_second"` // decode; prefill when only one token was asked for
	StageMillis  float64 `json:"stage_ms"`          // computing time per token, all stages of the ring
	HopMillis    float64 `json:"hop_ms"`            // time per token and hop outside of it
}

// Generate continues a prompt on a fresh sequence, which it closes. On an error the tokens so far are returned with it.
func (h *Head) Generate(ctx context.Context, opts GenerateOptions) (Result, error) {
	var res Result
	seq, err := h.Open(ctx)
	if err != nil {
		return res, err
	}
	g := generation{head: h, seq: seq, opts: opts, sampler: NewSampler(opts.Sampling), stop: stopFilter{stops: opts.Stop}, res: &res}
	err = g.run(ctx)
	res.Text = g.text.String()
	sessions := seq.sessions
	if closeErr := seq.Close(); err == nil {
		err = closeErr
	}
	res.Timings.hops(sessions)
	return res, err
}

// hops works out what a hop costs: the time waited for a token, less the stages' computing. It needs closed sessions.
func (t *Timings) hops(sessions []Session) {
	for _, s := range sessions {
		ring, ok := s.(*ringSession)
		if !ok || t.DecodeTokens == 0 {
			continue
		}
		if stats := ring.Stats(); stats.DecodeTrips > 0 {
			t.StageMillis = 1e3 * stats.DecodeBusy.Seconds() / float64(stats.DecodeTrips)
			t.HopMillis = 1e3 * (stats.DecodeWait - stats.DecodeBusy).Seconds() / float64(stats.DecodeTrips*(len(ring.ring.hops)+1))
		}
	}
}

type generation struct {
	head    *Head
	seq     *Sequence
	opts    GenerateOptions
	sampler *Sampler
	stop    stopFilter
	text    strings.Builder
	res     *Result
}

func (g *generation) run(ctx context.Context) error {
	history := slices.Clone(g.opts.Prompt)
	input := g.opts.Prompt
	t := &g.res.Timings
	t.PromptTokens = len(input)
	start := time.Now()
	defer func() {
		if t.DecodeSecs > 0 {
			t.TokensPerSec = float64(t.DecodeTokens) / t.DecodeSecs
		} else if t.PrefillSecs > 0 {
			t.TokensPerSec = float64(t.PromptTokens) / t.PrefillSecs
		}
	}()
	for len(g.res.IDs) < g.opts.MaxTokens {
		id, err := g.seq.Next(ctx, input, g.sampler, history, len(g.res.IDs)+1 < g.opts.MaxTokens)
		if err != nil {
			return err
		}
		if len(g.res.IDs) == 0 {
			t.PrefillSecs = time.Since(start).Seconds()
			start = time.Now()
		} else {
			t.DecodeTokens++
			t.DecodeSecs = time.Since(start).Seconds()
		}
		history = append(history, id)
		g.res.IDs = append(g.res.IDs, id)
		if g.emit(id) {
			g.res.Finish = "stop"
			return nil
		}
		input = history[len(history)-1:]
	}
	g.res.Finish = "length"
	g.flush()
	return nil
}

// emit passes a token on and says whether it ends the answer.
func (g *generation) emit(id int) (stop bool) {
	if slices.Contains(g.opts.EOS, id) {
		g.flush()
		return true
	}
	text := ""
	if g.opts.Text != nil {
		text, stop = g.stop.push(g.opts.Text.Push(id))
	}
	g.send(id, text)
	return stop
}

// flush emits what the text stream and the stop filter still hold back.
func (g *generation) flush() {
	if g.opts.Text == nil {
		return
	}
	text, stop := g.stop.push(g.opts.Text.Flush())
	if !stop {
		text += g.stop.rest()
	}
	if text != "" {
		g.send(g.res.IDs[len(g.res.IDs)-1], text)
	}
}

func (g *generation) send(id int, text string) {
	pos := len(g.opts.Prompt) + len(g.res.IDs) - 1
	g.text.WriteString(text)
	g.seq.Announce(pos, id, text)
	if g.opts.Emit != nil {
		g.opts.Emit(Token{Pos: pos, ID: id, Text: text})
	}
}

// stopFilter holds back text that may turn out to be the beginning of a stop text.
type stopFilter struct {
	stops []string
	held  string
}

// push returns the text that is certain, and whether a stop text was met (then the text before it).
func (f *stopFilter) push(text string) (string, bool) {
	f.held += text
	cut := -1
	for _, s := range f.stops {
		if i := strings.Index(f.held, s); s != "" && i >= 0 && (cut < 0 || i < cut) {
			cut = i
		}
	}
	if cut >= 0 {
		out := f.held[:cut]
		f.held = ""
		return out, true
	}
	keep := 0
	for _, s := range f.stops {
		for n := min(len(s)-1, len(f.held)); n > keep; n-- {
			if strings.HasSuffix(f.held, s[:n]) {
				keep = n
			}
		}
	}
	out := f.held[:len(f.held)-keep]
	f.held = f.held[len(f.held)-keep:]
	return out, false
}

// rest returns what is still held back.
func (f *stopFilter) rest() string {
	out := f.held
	f.held = ""
	return out
}
