package stage_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dchain/plan"
	"dchain/stage"
	"dchain/transport"
	"dchain/units"
)

// connectReadout is a head without a readout, with layers own of its own where there are any, on stages of which the last
// reads out.
func (c *cluster) connectReadout(own plan.Range, ranges []plan.Range, opts stage.RingOptions, trace func(stage.Boundary)) *stage.Head {
	c.t.Helper()
	ctx := context.Background()
	for i, rng := range ranges {
		c.serve(c.model, rng, func(o *stage.ServerOptions) { o.Readout = i == len(ranges)-1 })
	}
	opts.Peers = c.addrs
	peers, err := stage.DialPeers(ctx, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	if !stage.ReadsOut(peers) {
		c.t.Fatal("the last stage does not offer to read out")
	}
	ring, err := stage.NewRing(ctx, peers, ranges, opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { ring.Close() })
	w, err := stage.Load(ctx, c.model, newDevice(c.t, 1), stage.LoadOptions{Range: own, Embed: true, Table: c.table, Context: c.context})
	if err != nil {
		c.t.Fatal(err)
	}
	stages := []stage.Stage{ring}
	if own.Len() > 0 {
		e, err := stage.NewEngine(w, stage.EngineOptions{Context: c.context, Sessions: c.session, ReturnAll: true, Trace: trace, Groups: 2})
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { e.Close() })
		stages = []stage.Stage{e, ring}
	}
	h, err := stage.NewHead(w, stage.HeadOptions{Stages: stages, Groups: stage.Groups(len(ranges), own.Len() > 0)})
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

// samplings ask for one token, for some, for more than a stage gives and for all logits.
var samplings = []stage.Sampling{
	{}, {Temperature: 0.8, TopK: 20, Seed: 1}, {Temperature: 0.8, TopK: 500, Seed: 2}, {Temperature: 1, TopP: 0.9, Seed: 3}, {RepeatPenalty: 1.3},
}

// TestLastStageReadsOut: a head without a readout gives the unsplit ids and boundaries, however the ring is cut and routed and
// whatever the sampler looks at.
func TestLastStageReadsOut(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	reference := stage.NewRecorder()
	observed, _ := localHead(t, m, localOptions{mode: units.Int8, context: 256, cuts: everyLayer(m.Spec.Layers), trace: reference.Trace})
	for _, cut := range []struct {
		own    plan.Range
		ranges []plan.Range
		table  bool
	}{
		{plan.None, cutAt(8), false}, {plan.None, cutAt(8, 2, 4), false},
		{plan.Range{First: 0, Last: 3}, []plan.Range{{First: 4, Last: 7}}, false},
		{plan.Range{First: 0, Last: 3}, []plan.Range{{First: 4, Last: 7}}, true},
		{plan.Range{First: 0, Last: 1}, []plan.Range{{First: 2, Last: 3}, {First: 4, Last: 7}}, true},
	} {
		for _, route := range []stage.Route{stage.RouteRing, stage.RouteStar} {
			for _, traced := range []bool{false, true} {
				t.Run(fmt.Sprintf("own=%v/ranges=%v/table=%v/%s/traced=%v", cut.own, cut.ranges, cut.table, route, traced), func(t *testing.T) {
					c := startCluster(t, m, nil, 2)
					c.table = cut.table
					opts := c.options()
					opts.Route = route
					rec := stage.NewRecorder()
					var trace func(stage.Boundary)
					if traced {
						trace = rec.Trace
						opts.Trace = trace
					}
					h := c.connectReadout(cut.own, cut.ranges, opts, trace)
					if h.Embeds() != cut.table {
						t.Fatalf("the head's device embeds: %v", h.Embeds())
					}
					for _, sampling := range samplings {
						g := stage.GenerateOptions{Prompt: longPrompt(t, m, 80), MaxTokens: 8, Sampling: sampling}
						if traced {
							diff, _, err := stage.Compare(context.Background(), stage.Run{Head: h, Recorder: rec}, stage.Run{Head: observed, Recorder: reference}, g)
							if err != nil || diff != nil {
								t.Errorf("sampling %+v: %v, %v", sampling, diff, err)
							}
							continue
						}
						got, err := h.Generate(context.Background(), g)
						if err != nil {
							t.Fatal(err)
						}
						want, err := observed.Generate(context.Background(), g)
						if err != nil {
							t.Fatal(err)
						}
						if !slices.Equal(got.IDs, want.IDs) {
							t.Errorf("sampling %+v: ids %v, the unsplit run gives %v", sampling, got.IDs, want.IDs)
						}
					}
				})
			}
		}
	}
}

// TestReadoutCompany: sessions that ask for different numbers of tokens at the same time get what they get alone.
func TestReadoutCompany(t *testing.T) {
	m := openModel(t, "tales-llama")
	c := startCluster(t, m, nil, len(samplings))
	h := c.connectReadout(plan.Range{First: 0, Last: 2}, []plan.Range{{First: 3, Last: 5}}, c.options(), nil)
	run := func(i int) ([]int, error) {
		res, err := h.Generate(context.Background(), stage.GenerateOptions{Prompt: []int{5 + i, 6, 7}, MaxTokens: 24, Sampling: samplings[i]})
		return res.IDs, err
	}
	var alone [][]int
	for i := range samplings {
		ids, err := run(i)
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, ids)
	}
	var wg sync.WaitGroup
	for i := range samplings {
		wg.Go(func() {
			if ids, err := run(i); err != nil || !slices.Equal(ids, alone[i]) {
				t.Errorf("session %d beside others gives %v (%v), alone %v", i, ids, err, alone[i])
			}
		})
	}
	wg.Wait()
}

// TestAskOfNoReadout: a stage that does not hold the readout refuses an ask, which a ring finds out before it is ready, and a
// head that has none needs a stage that does.
func TestAskOfNoReadout(t *testing.T) {
	m := openModel(t, "tales-llama")
	whole := []plan.Range{{First: 0, Last: 5}}
	c := startCluster(t, m, whole, 1)
	opts := c.options()
	peers, err := stage.DialPeers(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	peers[0].Hello.Readout = true // it did not say so
	if ring, err := stage.NewRing(context.Background(), peers, whole, opts); err == nil || !strings.Contains(err.Error(), "does not read out") {
		t.Errorf("%v, %v", ring, err)
	}
	w, err := stage.Load(context.Background(), m, newDevice(t, 1), stage.LoadOptions{Range: plan.None, Embed: true})
	if err != nil {
		t.Fatal(err)
	}
	peers, err = stage.DialPeers(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := stage.NewRing(context.Background(), peers, whole, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := stage.NewHead(w, stage.HeadOptions{Stages: []stage.Stage{plain}}); err == nil || !strings.Contains(err.Error(), "readout") {
		t.Errorf("got %v", err)
	}
}

// wrongMerged picks another token in programs that have layers and the readout.
type wrongMerged struct{ units.Device }

type otherToken struct{ units.Executable }

func (d wrongMerged) Compile(p units.Program) (units.Executable, error) {
	e, err := d.Device.Compile(p)
	has := func(kind units.OpKind) bool {
		return slices.ContainsFunc(p.Ops, func(op units.Op) bool { return op.Kind == kind })
	}
	if err == nil && has(units.OpAttend) && has(units.OpTop) {
		e = otherToken{e}
	}
	return e, err
}

func (e otherToken) Run(rows []units.Row, in, out []float32) error {
	err := e.Executable.Run(rows, in, out)
	out[0] = float32(int(out[0]) ^ 1)
	return err
}

// TestCheckRunsWhatAnswers: a run that is compared takes its tokens from the programs that answer when nobody compares.
func TestCheckRunsWhatAnswers(t *testing.T) {
	m := openModel(t, "tales-qwen2")
	reference := stage.NewRecorder()
	observed, _ := localHead(t, m, localOptions{mode: units.Int8, context: 256, cuts: everyLayer(m.Spec.Layers), trace: reference.Trace})
	c := startCluster(t, m, nil, 1)
	opts := c.options()
	rec := stage.NewRecorder()
	opts.Trace = rec.Trace
	c.edit = func(o *stage.ServerOptions) { o.Device = wrongMerged{o.Device} }
	h := c.connectReadout(plan.None, cutAt(m.Spec.Layers, 3), opts, nil)
	g := stage.GenerateOptions{Prompt: longPrompt(t, m, 20), MaxTokens: 4}
	diff, _, err := stage.Compare(context.Background(), stage.Run{Head: h, Recorder: rec}, stage.Run{Head: observed, Recorder: reference}, g)
	if err != nil || diff == nil || diff.Token != 1 || diff.Layers.Len() > 0 || !strings.Contains(diff.Error(), "readout") {
		t.Errorf("difference %v (%v) is not that of the second token, read out by the last stage", diff, err)
	}
}

// TestFamiliesReadOut: what families have in their readouts (soft caps, projections, tied embeddings, scales) the last stage has
// too.
func TestFamiliesReadOut(t *testing.T) {
	for _, name := range variedFamilies(t) {
		t.Run(name, func(t *testing.T) {
			m := openModel(t, "families/"+name)
			c := startCluster(t, m, nil, 1)
			c.context = min(64, m.Spec.MaxPos)
			near, _ := localHead(t, m, localOptions{mode: units.Int8, context: c.context})
			h := c.connectReadout(plan.None, cutAt(m.Spec.Layers, 0)[:min(2, m.Spec.Layers)], c.options(), nil)
			for _, sampling := range samplings {
				g := stage.GenerateOptions{Prompt: []int{5, 6, 7}, MaxTokens: 8, Sampling: sampling}
				want, err := near.Generate(context.Background(), g)
				if err != nil {
					t.Fatal(err)
				}
				got, err := h.Generate(context.Background(), g)
				if err != nil || !slices.Equal(got.IDs, want.IDs) {
					t.Errorf("sampling %+v: ids %v (%v), the unsplit run gives %v", sampling, got.IDs, err, want.IDs)
				}
			}
		})
	}
}

// TestStrayAsks: asks that no head of ours sends end in a fault of their session or in nothing, and the stage serves on.
func TestStrayAsks(t *testing.T) {
	m := openModel(t, "tales-llama")
	whole := plan.Range{First: 0, Last: 5}
	c := startCluster(t, m, nil, 2)
	server := c.serve(m, whole, func(o *stage.ServerOptions) { o.Readout = true })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	hello := local(m)
	link := c.greet(ctx, hello)
	send := func(f transport.Frame) {
		t.Helper()
		if err := link.Send(f); err != nil {
			t.Fatal(err)
		}
	}
	recv := func() transport.Frame {
		t.Helper()
		for {
			f, err := link.Recv(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := f.(*transport.Receipt); !ok || len(r.Hashes) > 0 {
				return f
			}
		}
	}
	recv()
	send(&transport.Assignment{Stage: 1, Stages: 1, Fingerprint: hello.Fingerprint, First: 0, Last: 5, Context: 64, Sessions: 2})
	if f, ok := recv().(*transport.Ready); !ok {
		t.Fatalf("%T instead of ready", f)
	}
	push := func(seq, pos int32) *transport.Activation {
		a := transport.NewActivation(m.Spec.Hidden)
		for i := range a.Hidden {
			a.Hidden[i] = float32(i%5) / 4
		}
		a.Seq, a.TokenIdx, a.NextIndex, a.ModelHash = seq, pos, 1, binary.LittleEndian.Uint32(hello.Fingerprint[:])
		a.Seal()
		send(a)
		back, ok := recv().(*transport.Activation)
		if !ok || back.Seq != seq || back.TokenIdx != pos {
			t.Fatalf("%+v came back from position %d of session %d", back, pos, seq)
		}
		return back
	}
	send(&transport.Ask{Seq: -1, TokenIdx: 0, Top: 1}) // of no session
	send(&transport.Ask{Seq: 5, TokenIdx: math.MinInt32, Top: math.MaxInt32})
	if got := len(push(5, 0).Hidden); got != 1+m.Spec.Vocab {
		t.Errorf("%d numbers answer an ask for more tokens than there are", got)
	}
	send(&transport.Ask{Seq: 5, TokenIdx: math.MaxInt32})
	if got := len(push(5, 1).Hidden); got != m.Spec.Hidden {
		t.Errorf("%d numbers come back before the row that is asked for", got)
	}
	send(&transport.Ask{Seq: 5, TokenIdx: 2, Top: 3})
	if got := len(push(5, 2).Hidden); got != 1+2*stage.Candidates {
		t.Errorf("%d numbers answer an ask for 3 tokens", got)
	}
	send(&transport.Ask{Seq: 6, Top: 1})
	send(&transport.Ask{Seq: 7, Top: 1}) // there are two slots
	if f, ok := recv().(*transport.Fault); !ok || f.Code != transport.FaultSessions || f.Seq != 7 {
		t.Errorf("%+v answers an ask for a session too many", f)
	}
	for _, seq := range []int32{5, 6} {
		send(&transport.Finished{Seq: seq})
		if f, ok := recv().(*transport.Finished); !ok || f.Seq != seq {
			t.Errorf("%+v answers the end of session %d", f, seq)
		}
	}
	send(&transport.Ask{Seq: 5, Top: 1}) // of a session that has ended
	send(&transport.Ask{Seq: 8, Top: 1})
	if got := push(8, 0).Hidden; len(got) != 3 || got[0] != 1 {
		t.Errorf("%v answers an ask for a token", got)
	}
	if n := server.Engine().SessionsInUse(); n != 1 {
		t.Errorf("%d slots are in use", n)
	}
}

// TestReadoutOfTurns: in a session that goes on after an answer the rows of a long prompt are not read out but for the last.
func TestReadoutOfTurns(t *testing.T) {
	m := openModel(t, "tales-llama")
	near, _ := localHead(t, m, localOptions{mode: units.Int8, context: 512})
	c := startCluster(t, m, nil, 1)
	c.context = 512
	h := c.connectReadout(plan.None, cutAt(m.Spec.Layers, 2), c.options(), nil)
	ctx := context.Background()
	var answers [2][]int
	for i, head := range []*stage.Head{near, h} {
		seq, err := head.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var history []int
		for turn, n := range []int{150, 1, 1, 90, 1, 65, 64, 1, 7} {
			input := longPrompt(t, m, n)
			history = append(history, input...)
			id, err := seq.Next(ctx, input, stage.NewSampler(samplings[turn%len(samplings)]), history, true)
			if err != nil {
				t.Fatal(err)
			}
			answers[i] = append(answers[i], id)
		}
		seq.Close()
	}
	if !slices.Equal(answers[0], answers[1]) {
		t.Errorf("the last stage gives %v, one process %v", answers[1], answers[0])
	}
}
