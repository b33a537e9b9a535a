package stage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"dchain/inspect"
	"dchain/plan"
	"dchain/stage"
	"dchain/units"
	"dchain/units/vk"
	"dchain/units/vk/vktest"
)

// followingDevice begins steps ahead: it computes them at once, and hands them out when they are awaited.
type followingDevice struct {
	units.Device
	refuses  func(step int64) bool   // this step is not run ahead; nil for none
	fails    func(await int64) error // of this Wait; nil for none
	refused  func() error            // of a Run at this moment; nil for none
	followed atomic.Int64
	awaited  atomic.Int64
	wasted   atomic.Int64
}

func (d *followingDevice) Compile(p units.Program) (units.Executable, error) {
	e, err := d.Device.Compile(p)
	if in, out := p.Bufs[p.In].Width, p.Bufs[p.Out].Width; in == 1 && out == 2 {
		return &followingExecutable{Executable: e, dev: d}, err
	}
	return e, err
}

type followingExecutable struct {
	units.Executable
	dev   *followingDevice
	steps []*followingStep
}

type followingStep struct {
	rows []units.Row
	out  []float32
	got  []float32
	err  error
}

var errMisuse = errors.New("a step is under way, or none is")

func (e *followingExecutable) Run(rows []units.Row, in, out []float32) error {
	if len(e.steps) > 0 {
		return errMisuse
	}
	if e.dev.refused != nil {
		if err := e.dev.refused(); err != nil {
			return err
		}
	}
	return e.Executable.Run(rows, in, out)
}

func (e *followingExecutable) begin(rows []units.Row, in, out []float32) {
	s := &followingStep{rows: slices.Clone(rows), out: out, got: make([]float32, len(out))}
	s.err = e.Executable.Run(rows, in, s.got)
	e.steps = append(e.steps, s)
}

func (e *followingExecutable) Begin(rows []units.Row, in, out []float32) error {
	if len(e.steps) > 0 {
		return errMisuse
	}
	e.begin(rows, in, out)
	return nil
}

func (e *followingExecutable) Follow(out []float32) bool {
	if len(e.steps) != 1 || e.steps[0].err != nil {
		return false
	}
	before := e.steps[0]
	if d := e.dev; d.refuses != nil && d.refuses(d.followed.Load()+1) {
		d.followed.Add(1)
		return false
	}
	rows, in := slices.Clone(before.rows), make([]float32, len(before.rows))
	for i := range rows {
		rows[i].Pos++
		in[i] = before.got[2*i]
	}
	e.begin(rows, in, out)
	if e.steps[1].err != nil { // beyond the context
		e.steps = e.steps[:1]
		return false
	}
	e.dev.followed.Add(1)
	return true
}

func (e *followingExecutable) Wait() error {
	if len(e.steps) == 0 {
		return errMisuse
	}
	s := e.steps[0]
	e.steps = e.steps[1:]
	err := s.err
	if n := e.dev.awaited.Add(1); e.dev.fails != nil && err == nil {
		err = e.dev.fails(n)
	}
	if err != nil {
		e.Abandon()
		return err
	}
	copy(s.out, s.got)
	return nil
}

func (e *followingExecutable) Abandon() {
	e.dev.wasted.Add(int64(len(e.steps)))
	e.steps = nil
}

// tableHead is a whole model on a device that embeds.
func tableHead(t *testing.T, m *inspect.Model, dev units.Device, positions, sessions int) (*stage.Head, *stage.Engine) {
	t.Helper()
	w, err := stage.Load(t.Context(), m, dev, stage.LoadOptions{Range: plan.Range{First: 0, Last: m.Spec.Layers - 1}, Readout: true, Table: true, Context: positions})
	if err != nil {
		t.Fatal(err)
	}
	e, err := stage.NewEngine(w, stage.EngineOptions{Context: positions, Sessions: sessions})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		w.Close()
	})
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{e}})
	if err != nil {
		t.Fatal(err)
	}
	return h, e
}

// aheadContext is the positions of a session of these tests.
const aheadContext = 40

// aheadAnswers are generations of many kinds and what a head gives for each alone: they end at a token that they meet, at their
// length or with the context, and some may draw.
func aheadAnswers(t *testing.T, m *inspect.Model, h *stage.Head, n int, draws bool) (asked []stage.GenerateOptions, want []stage.Result, rows int64) {
	t.Helper()
	for i := range n {
		o := stage.GenerateOptions{Prompt: longPrompt(t, m, 1+i*5%11)[:1+i*5%11], MaxTokens: 5 + i*7%23}
		switch kind := i % 5; {
		case kind == 1 && draws:
			o.Sampling = stage.Sampling{Temperature: 0.9, TopK: 20, Seed: uint64(i)}
		case kind == 2:
			o.MaxTokens = aheadContext - len(o.Prompt) + 1
		case kind == 3:
			full, err := h.Generate(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			o.EOS = []int{full.IDs[len(full.IDs)/2]}
		}
		r, err := h.Generate(t.Context(), o)
		if err != nil {
			t.Fatalf("generation %d: %v", i, err)
		}
		asked, want = append(asked, o), append(want, r)
		rows += int64(len(o.Prompt) + len(r.IDs) - 1)
	}
	return asked, want, rows
}

// generateAll runs generations, so many at a time.
func generateAll(t *testing.T, h *stage.Head, asked []stage.GenerateOptions, atATime int) ([]stage.Result, []error) {
	t.Helper()
	got, errs := make([]stage.Result, len(asked)), make([]error, len(asked))
	var next atomic.Int64
	var all sync.WaitGroup
	for range atATime {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(asked); i = int(next.Add(1)) - 1 {
				got[i], errs[i] = h.Generate(t.Context(), asked[i])
			}
		})
	}
	all.Wait()
	return got, errs
}

// TestAhead: sessions that join and leave, by a token, by their length or with the context, get the ids that they get alone on a
// device that waits, also beside others that draw; steps that must run by themselves and steps that fail change nothing of it.
// Only rows that somebody has asked for are counted as work.
func TestAhead(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	plain, _ := tableHead(t, m, newDevice(t, 2), aheadContext, 1)
	n := 30
	if testing.Short() {
		n = 15
	}
	greedy, greedyWant, greedyRows := aheadAnswers(t, m, plain, n, false)
	mixed, mixedWant, mixedRows := aheadAnswers(t, m, plain, n, true)
	row := &units.OpError{Op: units.OpNorm, Err: units.ErrNonFinite}
	for _, c := range []struct {
		name    string
		atATime int
		draws   bool
		refuses func(int64) bool
		fails   func(int64) error
	}{
		{"alone", 1, true, nil, nil},
		{"several", 4, false, nil, nil},
		{"several, some of which draw", 4, true, nil, nil},
		{"several, some steps by themselves", 4, false, func(step int64) bool { return step%3 == 0 }, nil},
		{"several, some steps fail", 4, false, nil, func(await int64) error {
			if await%5 == 2 {
				return fmt.Errorf("running a program: %w", row)
			}
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dev := &followingDevice{Device: newDevice(t, 2), refuses: c.refuses, fails: c.fails}
			h, e := tableHead(t, m, dev, aheadContext, c.atATime)
			asked, want, rows := greedy, greedyWant, greedyRows
			if c.draws {
				asked, want, rows = mixed, mixedWant, mixedRows
			}
			got, errs := generateAll(t, h, asked, c.atATime)
			for i := range asked {
				if errs[i] != nil || !slices.Equal(got[i].IDs, want[i].IDs) || got[i].Finish != want[i].Finish {
					t.Errorf("generation %d: %v %s, %v, want %v %s", i, got[i].IDs, got[i].Finish, errs[i], want[i].IDs, want[i].Finish)
				}
			}
			if n, _ := e.Work(); n != rows {
				t.Errorf("%d rows of work, want %d", n, rows)
			}
			if n := dev.followed.Load(); n < int64(len(asked)/2) {
				t.Errorf("%d steps were run ahead", n)
			}
			// Of a step of several sessions one is left to ask for it, whichever ends.
			if n := dev.wasted.Load(); c.atATime == 1 && n < int64(len(asked)/5-1) {
				t.Errorf("%d steps were thrown away", n)
			}
			if n := e.SessionsInUse(); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
			t.Logf("%d steps were run ahead, %d thrown away", dev.followed.Load(), dev.wasted.Load())
		})
	}
}

// TestAheadOther: who says that the token comes next and then goes on with another one, or with several, gets what follows those.
func TestAheadOther(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	const turns = 18
	var want []int
	for _, dev := range []units.Device{newDevice(t, 2), &followingDevice{Device: newDevice(t, 2)}} {
		h, _ := tableHead(t, m, dev, 80, 1)
		seq, err := h.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer seq.Close()
		greedy := stage.NewSampler(stage.Sampling{})
		input, got := longPrompt(t, m, 5)[:5], []int(nil)
		for turn := range turns {
			id, err := seq.Next(t.Context(), input, greedy, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, id)
			switch input = []int{id}; turn % 6 {
			case 3:
				input = []int{(id + 1) % m.Spec.Vocab}
			case 5:
				input = []int{id, (id + 7) % m.Spec.Vocab, id}
			}
		}
		if want == nil {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("ids %v, want %v", got, want)
		}
		if d, ok := dev.(*followingDevice); ok && (d.followed.Load() < turns/2 || d.wasted.Load() < turns/3-1) {
			t.Errorf("%d steps were run ahead, %d thrown away", d.followed.Load(), d.wasted.Load())
		}
	}
}

// TestAheadFails: a device that is lost, or that another program has found a wrong bit of, ends every session of a step ahead.
func TestAheadFails(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	for _, fault := range []error{vk.ErrDeviceLost, &units.AuditError{Op: units.OpAdd}} {
		var down atomic.Bool
		fails := func() error {
			if !down.Load() {
				return nil
			}
			return fmt.Errorf("running a program: %w", fault)
		}
		dev := &followingDevice{Device: newDevice(t, 2), refused: fails, fails: func(await int64) error {
			if await > 3 {
				down.Store(true)
			}
			return fails()
		}}
		h, _ := tableHead(t, m, dev, aheadContext, 3)
		prompt := longPrompt(t, m, 5)[:5]
		asked := slices.Repeat([]stage.GenerateOptions{{Prompt: prompt, MaxTokens: 30}}, 3)
		got, errs := generateAll(t, h, asked, 3)
		if !down.Load() {
			t.Errorf("%v: it was not met", fault)
		}
		failed := 0
		for i, err := range errs {
			if errors.Is(err, fault) {
				failed++
			} else if err != nil || len(got[i].IDs) != 30 {
				t.Errorf("%v: %d tokens, %v", fault, len(got[i].IDs), err)
			}
		}
		if failed == 0 {
			t.Errorf("%v: nobody was told", fault)
		}
	}
}

// TestAheadCloses: an engine is closed, and a session given up, with a step under way.
func TestAheadCloses(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	dev := &followingDevice{Device: newDevice(t, 2)}
	h, e := tableHead(t, m, dev, aheadContext, 2)
	prompt := longPrompt(t, m, 5)[:5]
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := h.Generate(ctx, stage.GenerateOptions{Prompt: prompt, MaxTokens: 30, Emit: func(token stage.Token) {
			if token.Pos == len(prompt)+8 {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	}
	ended := false
	_, err := h.Generate(t.Context(), stage.GenerateOptions{Prompt: prompt, MaxTokens: 30, Emit: func(token stage.Token) {
		if token.Pos == len(prompt)+8 {
			ended = true
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}})
	if err == nil || !ended || dev.followed.Load() < 15 {
		t.Errorf("closed %v: %v after %d steps ahead", ended, err, dev.followed.Load())
	}
}

// TestAheadOnVulkan: the same of a GPU, of audited steps too.
func TestAheadOnVulkan(t *testing.T) {
	vktest.Devices(t)
	m := openModel(t, "tales-qwen2")
	plain, _ := tableHead(t, m, newDevice(t, 2), aheadContext, 1)
	asked, want, _ := aheadAnswers(t, m, plain, 6, false)
	for _, every := range []int{0, 1, 4} {
		atATime := 3
		if every == 4 {
			atATime = 1
		}
		dev, err := units.NewVulkan(units.VulkanOptions{AuditEvery: every, Threads: 2, CacheDir: "-"})
		if err != nil {
			t.Fatal(err)
		}
		abandoned := units.Metrics.Abandoned.Load()
		h, e := tableHead(t, m, dev, aheadContext, atATime)
		got, errs := generateAll(t, h, asked, atATime)
		for i := range asked {
			if errs[i] != nil || !slices.Equal(got[i].IDs, want[i].IDs) || got[i].Finish != want[i].Finish {
				t.Errorf("audits of every %d steps, generation %d: %v %s, %v, want %v %s", every, i, got[i].IDs, got[i].Finish, errs[i], want[i].IDs, want[i].Finish)
			}
		}
		// A session that ends by a token leaves a step, unless there are others in it or it is to be audited.
		if n := units.Metrics.Abandoned.Load() - abandoned; every == 1 && n > 0 || atATime == 1 && n == 0 {
			t.Errorf("audits of every %d steps: %d steps were thrown away", every, n)
		}
		e.Close()
	}
}
