package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dchain/inspect"
	"dchain/plan"
)

// inspection is what inspect reports; its JSON has the keys of the Spec beside its own.
type inspection struct {
	Model    string `json:"model"`
	ID       string `json:"id"`
	Location string `json:"location"`
	inspect.Spec
	Parameters    int64            `json:"parameters"`
	DType         string           `json:"dtype"`
	Bytes         int64            `json:"bytes"`           // of all tensors
	BytesPerLayer int64            `json:"bytes_per_layer"` // of the largest layer
	HeadBytes     int64            `json:"head_bytes"`      // embedding and readout
	Files         []fileReport     `json:"files"`
	Tensors       []tensorReport   `json:"tensors,omitempty"`
	Fetch         *fetchReport     `json:"fetch,omitempty"`
	Tokenizer     *tokenizerReport `json:"tokenizer,omitempty"`
	BytesRead     int64            `json:"bytes_read"`
	Requests      int64            `json:"requests"`
}

// tokenizerReport is absent for a model without tokenizer.json.
type tokenizerReport struct {
	Vocab int    `json:"vocab"` // one more than the largest id
	Hash  string `json:"hash"`
}

func (t *tokenizerReport) String() string {
	if t == nil {
		return "none"
	}
	return fmt.Sprintf("%s tokens", groupDigits(int64(t.Vocab)))
}

type fileReport struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

type tensorReport struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	File  string `json:"file"`
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
}

// fetchReport is what a stage that holds Layers would read.
type fetchReport struct {
	Layers   plan.Range    `json:"layers"`
	Tensors  int           `json:"tensors"`
	Bytes    int64         `json:"bytes"`
	Requests int           `json:"requests"`
	Ranges   []rangeReport `json:"ranges"`
}

type rangeReport struct {
	File  string `json:"file"`
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
}

func (a *app) inspectCommand() *cobra.Command {
	var layers string
	var tensors, asJSON bool
	c := &cobra.Command{
		Use:   "inspect [MODEL]",
		Short: "Show what a model is, reading only config, tokenizer and headers",
		Long: `inspect reads config.json, the tokenizer and the safetensors headers of a model, never its weights, and shows what dchain
will make of it. With --layers it shows what a stage that holds them would fetch.`,
		Example: `  dchain inspect
  dchain inspect Qwen/Qwen2.5-0.5B-Instruct --layers 0-11
  dchain inspect ./my-model --tensors --json`,
		Args: atMost(1, "one MODEL"),
		RunE: func(c *cobra.Command, args []string) error {
			var held *plan.Range
			if layers != "" {
				r, err := plan.ParseRange(layers)
				if err != nil {
					return usageError("--layers: %w", err)
				}
				held = &r
			}
			report, err := a.inspect(c.Context(), firstArg(args), held, tensors)
			if err != nil {
				return err
			}
			if asJSON {
				return a.ui.json(report)
			}
			return a.showInspection(report)
		},
	}
	c.Flags().StringVar(&layers, "layers", "", "show what a stage of layers A-B (both inclusive) would fetch")
	c.Flags().BoolVar(&tensors, "tensors", false, "list every tensor with its byte range")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// inspect opens a model and gathers the report. held, which may be nil, asks for a stage's fetch.
func (a *app) inspect(ctx context.Context, name string, held *plan.Range, tensors bool) (*inspection, error) {
	m, err := a.openModel(ctx, name)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := &inspection{Model: modelName(name), ID: m.Source.ID(), Location: m.Source.Location(), Spec: m.Spec}
	for _, f := range m.Index.Files {
		r.Files = append(r.Files, fileReport{f.Name, f.Size})
	}
	var dtypes []string
	for _, t := range m.Index.Sorted() {
		r.Parameters += t.Elems()
		r.Bytes += t.Len()
		if !slices.Contains(dtypes, string(t.DType)) {
			dtypes = append(dtypes, string(t.DType))
		}
		if tensors {
			r.Tensors = append(r.Tensors, tensorReport{t.Name, string(t.DType), t.Shape, t.File, t.Begin, t.End})
		}
	}
	slices.Sort(dtypes)
	r.DType = strings.Join(dtypes, ", ")
	for layer := range m.Spec.Layers {
		ts, err := m.StageTensors(layer, layer, false, false)
		if err != nil {
			return nil, err
		}
		r.BytesPerLayer = max(r.BytesPerLayer, tensorBytes(ts))
	}
	head, err := m.StageTensors(0, -1, true, true)
	if err != nil {
		return nil, err
	}
	r.HeadBytes = tensorBytes(head)
	if held != nil {
		if r.Fetch, err = fetchOf(m, *held); err != nil {
			return nil, err
		}
	}
	switch tok, err := loadTokenizer(ctx, m.Source); {
	case err == nil:
		r.Tokenizer = &tokenizerReport{Vocab: tok.VocabSize(), Hash: fmt.Sprintf("%x", tok.Hash())}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	stats := m.Source.Stats()
	r.BytesRead, r.Requests = stats.Bytes, stats.Requests
	return r, nil
}

// fetchOf plans the requests of a stage that holds a range of layers.
func fetchOf(m *inspect.Model, held plan.Range) (*fetchReport, error) {
	ts, err := m.StageTensors(held.First, held.Last, false, false)
	if err != nil {
		return nil, err
	}
	f := &fetchReport{Layers: held, Tensors: len(ts), Ranges: []rangeReport{}}
	for _, r := range inspect.CoalesceRanges(ts, inspect.FetchGap) {
		f.Ranges = append(f.Ranges, rangeReport{r.File, r.Begin, r.End})
		f.Bytes += r.Len()
	}
	f.Requests = len(f.Ranges)
	return f, nil
}

func tensorBytes(ts []inspect.Tensor) int64 {
	var n int64
	for _, t := range ts {
		n += t.Len()
	}
	return n
}

func (a *app) showInspection(r *inspection) error {
	read := groupDigits(r.BytesRead)
	if r.Requests > 0 {
		read += " in " + count(r.Requests, "request")
	}
	pairs := [][2]string{{"model", r.Model}, {"id", r.ID}, {"read from", r.Location}}
	pairs = append(pairs, specPairs(&r.Spec)...)
	pairs = append(pairs, [][2]string{
		{"parameters", groupDigits(r.Parameters)},
		{"dtype", r.DType},
		{"weights", plan.Bytes(r.Bytes).String()},
		{"per layer", plan.Bytes(r.BytesPerLayer).String()},
		{"head", plan.Bytes(r.HeadBytes).String() + " (embedding and readout)"},
		{"files", fmt.Sprint(len(r.Files))},
		{"tokenizer", r.Tokenizer.String()},
		{"bytes read", read},
	}...)
	if err := a.ui.pairs(pairs); err != nil {
		return err
	}
	if r.Fetch != nil {
		if err := a.showFetch(r.Fetch); err != nil {
			return err
		}
	}
	if len(r.Tensors) == 0 {
		return nil
	}
	rows := make([][]string, len(r.Tensors))
	for i, t := range r.Tensors {
		rows[i] = []string{oneLine(t.Name), t.DType, fmt.Sprint(t.Shape), oneLine(t.File), fmt.Sprint(t.Begin), fmt.Sprint(t.End)}
	}
	if err := a.ui.printf("\n"); err != nil {
		return err
	}
	return a.ui.table([]string{"tensor", "dtype", "shape", "file", ">begin", ">end"}, rows)
}

func (a *app) showFetch(f *fetchReport) error {
	if err := a.ui.printf("\na stage with layers %s fetches %s (%s) in %s:\n", f.Layers, plan.Bytes(f.Bytes),
		count(int64(f.Tensors), "tensor"), count(int64(f.Requests), "request")); err != nil {
		return err
	}
	rows := make([][]string, len(f.Ranges))
	for i, r := range f.Ranges {
		rows[i] = []string{oneLine(r.File), fmt.Sprint(r.Begin), fmt.Sprint(r.End), plan.Bytes(r.End - r.Begin).String()}
	}
	return a.ui.table([]string{"file", ">begin", ">end", ">size"}, rows)
}

// specPairs lists a Spec under the names of its JSON keys.
func specPairs(s *inspect.Spec) [][2]string {
	rope := "none"
	if s.Rope {
		rope = fmt.Sprintf("theta %g, scaling %s, %d of %d rotated", s.RopeTheta, s.RopeScaling, s.RotaryDim, s.HeadDim)
	} else if s.LearnedPos {
		rope = "none (learned positions)"
	}
	act := s.Act
	if s.Gated {
		act += ", gated"
	}
	pairs := [][2]string{
		{"family", s.Family},
		{"layers", fmt.Sprint(s.Layers)},
		{"hidden", fmt.Sprint(s.Hidden)},
		{"heads", fmt.Sprintf("%d, %d for keys and values, of %d", s.Heads, s.KVHeads, s.HeadDim)},
		{"inter", fmt.Sprint(s.Inter)},
		{"vocab", fmt.Sprint(s.Vocab)},
		{"maxPos", fmt.Sprint(s.MaxPos)},
		{"norm", fmt.Sprintf("%s, eps %g", s.Norm, s.NormEps)},
		{"act", act},
		{"rope", rope},
		{"tie", fmt.Sprint(s.Tie)},
		{"qkvFused", fmt.Sprint(s.QKVFused)},
		{"bias", fmt.Sprint(s.Bias)},
		{"weightLayout", s.WeightLayout},
		{"eos", strings.Trim(fmt.Sprint(s.EOS), "[]")},
	}
	if special := strings.Join(s.Properties(), "; "); special != "" {
		pairs = append(pairs, [2]string{"special", special})
	}
	return pairs
}

// count prints "1 request", "2 requests".
func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return groupDigits(n) + " " + what + "s"
}

// groupDigits prints 1234567 as 1,234,567.
func groupDigits(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
