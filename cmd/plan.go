package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

// planFlags are the flags of the plan command.
type planFlags struct {
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

A score is GB/s: bytes of quantised weights, in 1e9, that a machine gets through per second while decoding, as dchain
probe measures it. The first machine is the head.`,
		Example: `  dchain plan Qwen/Qwen2.5-0.5B-Instruct --capacity laptop=20:8GiB,desk=60:32GiB
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
	c.Flags().StringVar(&f.capacity, "capacity", "", "machines as name=score[:memory],... (score in GB/s); the first is the head")
	c.Flags().IntVar(&f.ctx, "ctx", 0, "positions per session (default: the model's, at most 4096)")
	c.Flags().IntVar(&f.sessions, "sessions", 1, "sessions at a time")
	c.Flags().StringVar(&f.weights, "weights", "int8", "weight format: int8 or int8x2")
	c.Flags().DurationVar(&f.latency, "latency", time.Duration(plan.LAN.OneWay*1e9), "one-way network latency between machines")
	c.Flags().StringVar(&f.out, "out", "", "also write the plan to `FILE`, for generate --plan")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

// makePlan apportions a model over the machines of --capacity.
func (a *app) makePlan(ctx context.Context, model string, f *planFlags) (*plan.Plan, error) {
	mode, err := units.ParseWeightMode(f.weights)
	if err != nil {
		return nil, usageError("--weights: %w", err)
	}
	if f.capacity == "" {
		return nil, usageError("plan needs the machines").hint("--capacity name=score[:memory],... names them")
	}
	devices, err := plan.ParseCapacities(f.capacity)
	if err != nil {
		return nil, usageError("--capacity: %w", err)
	}
	if f.latency < 0 {
		return nil, usageError("--latency: %v is negative", f.latency)
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
	if f.sessions < 1 {
		return nil, usageError("--sessions: %d is not at least 1", f.sessions)
	}
	need := needOf(&m.Spec, mode, positions, f.sessions)
	link := plan.LAN
	link.OneWay = f.latency.Seconds()

	stages, err := plan.Apportion(need, devices)
	if err != nil {
		return nil, fmt.Errorf("planning %s: %w", modelName(model), err)
	}
	fingerprint := m.Fingerprint(mode.String(), units.NumericsVersion)
	p := &plan.Plan{
		Model: modelName(model), Fingerprint: fmt.Sprintf("%x", fingerprint), Weights: mode.String(),
		Layers: m.Spec.Layers, Context: positions, Sessions: f.sessions, Stages: stages,
	}
	if err := p.Validate(m.Spec.Layers); err != nil {
		return nil, err
	}
	return p, predict(p, need, devices, link)
}

// predict adds the predicted speed and the advice to a plan. A machine without a score leaves the plan without them.
func predict(p *plan.Plan, need plan.Need, devices []plan.Device, link plan.Link) error {
	links := make([]plan.Link, len(p.Stages))
	for i := range links {
		links[i] = link
	}
	prediction, err := plan.Predict(need, p.Stages, links)
	if err != nil {
		return nil
	}
	p.Prediction = &prediction
	if p.Options, err = plan.Compare(need, devices, link); err != nil {
		return err
	}
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
		Layer: tensorsOf(s, s.LayerRoles()), Head: tensorsOf(s, readout),
		KVPosition: perPosition.Bytes(), Context: positions, Sessions: sessions,
		Scratch: 4 * (int64(scratchRows)*int64(row) + int64(positions)*int64(s.RotaryDim) + int64(s.Vocab)),
	}
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
	if err := a.ui.printf("%s, %d layers, %s weights, context %d, sessions %d\n\n", p.Model, p.Layers, p.Weights, p.Context, p.Sessions); err != nil {
		return err
	}
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
			plan.Bytes(s.WeightBytes).String(), plan.Bytes(s.KVBytes).String(), memory, fmt.Sprintf("%g", s.Score)}
	}
	if err := a.ui.table([]string{">stage", "machine", "layers", ">count", ">weights", ">KV cache", ">memory", ">GB/s"}, rows); err != nil {
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
