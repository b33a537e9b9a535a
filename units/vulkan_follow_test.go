package units

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// followProgram is layers whose Out, of which the next step takes the first values, is wider than In by so much. The cache holds
// what comes before the rows of batchOf.
func followProgram(t *testing.T, d *vulkanDevice, slots, context, wider int) *vulkanExecutable {
	t.Helper()
	s := layerShapes[0]
	p := layersProgram(t, d, s, slots, context)
	if wider > 0 {
		series := gateSeries(6)
		l, err := d.NewLinear("out", s.hidden+wider, s.hidden, Int8)
		if err == nil {
			err = l.PutRows(0, series.values((s.hidden+wider)*s.hidden, 0.1))
		}
		if err == nil {
			err = l.Finish()
		}
		if err != nil {
			t.Fatal(err)
		}
		limbs, out := Buf(len(p.Bufs)), Buf(len(p.Bufs)+1)
		p.Bufs = append(p.Bufs, BufSpec{Limbs, s.hidden}, BufSpec{F32, s.hidden + wider})
		p.Ops = append(p.Ops, Op{Kind: OpQuantize, Dst: limbs, A: p.Out, B: None}, Op{Kind: OpLinear, Dst: out, A: limbs, B: None, Linear: l})
		p.Out = out
	}
	x, err := d.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	e := x.(*vulkanExecutable)
	series := gateSeries(8)
	for slot := range slots { // what the steps see before them
		rows := make([]Row, 57+3*slot)
		for i := range rows {
			rows[i] = Row{Slot: slot, Pos: i}
		}
		if err := e.Run(rows, series.values(len(rows)*s.hidden, 1), make([]float32, len(rows)*e.prog.Bufs[e.prog.Out].Width)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// batchOf is a row of each slot, at different positions, and its In.
func batchOf(e *vulkanExecutable, slots int) ([]Row, []float32) {
	rows := make([]Row, slots)
	for i := range rows {
		rows[i] = Row{Slot: i, Pos: 57 + 3*i}
	}
	series := gateSeries(9)
	return rows, series.values(slots*e.prog.Bufs[e.prog.In].Width, 1)
}

// chase is the Out of so many steps, each with what the one before put out, and how many of them began before that one was
// awaited: those after a step that ahead is true of, if they could. With ahead nil every step is a Run.
func chase(t *testing.T, e *vulkanExecutable, slots, steps int, ahead func(step int) bool) (outs [][]float32, followed int) {
	t.Helper()
	rows, in := batchOf(e, slots)
	for range steps + 1 {
		outs = append(outs, make([]float32, slots*e.prog.Bufs[e.prog.Out].Width))
	}
	under := 0
	for step := range steps {
		var err error
		if ahead == nil {
			err = e.Run(rows, in, outs[step])
		} else {
			if under == 0 {
				err = e.Begin(rows, in, outs[step])
				under++
			}
			if ahead(step) && e.Follow(outs[step+1]) {
				under++
				followed++
			}
			if err == nil {
				err = e.Wait()
				under--
			}
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		in = e.carried(&flight{rows: rows, out: outs[step]})
		for i := range rows {
			rows[i].Pos++
		}
	}
	e.Abandon()
	return outs[:steps], followed
}

func always(int) bool { return true }

// TestVulkanFollow: steps that begin before the host has seen what they take give what they give otherwise: one row and many, in
// and out of one buffer, of buffers as wide and of others, in contexts that grow, now and then or always.
func TestVulkanFollow(t *testing.T) {
	const steps, slots = 12, 9
	for _, wider := range []int{0, 24} {
		for _, n := range []int{1, 3, slots} {
			d := vulkanTest(t, VulkanOptions{})
			e := followProgram(t, d, slots, 128, wider)
			want, _ := chase(t, e, n, steps, nil)
			for name, ahead := range map[string]func(int) bool{
				"never": func(int) bool { return false }, "always": always, "now and then": func(step int) bool { return step%3 != 1 },
			} {
				for range 2 { // recorded, and again
					abandoned := Metrics.Abandoned.Load()
					got, followed := chase(t, e, n, steps, ahead)
					wish := 0
					for step := range steps {
						if ahead(step) {
							wish++
						}
					}
					if followed != wish {
						t.Errorf("%d rows, wider by %d, %s: %d steps were run ahead, want %d", n, wider, name, followed, wish)
					}
					if n := Metrics.Abandoned.Load() - abandoned; ahead(steps-1) != (n == 1) || n > 1 {
						t.Errorf("%s: %d steps are counted as thrown away", name, n)
					}
					for step := range want {
						if !slices.Equal(got[step], want[step]) {
							t.Fatalf("%d rows, wider by %d, %s: step %d differs", n, wider, name, step)
						}
					}
				}
			}
		}
	}
}

// TestVulkanFollowAudits: steps are audited as often as others, one at a time; in place of one that is thrown away another is.
func TestVulkanFollowAudits(t *testing.T) {
	const steps = 12
	want, _ := chase(t, followProgram(t, vulkanTest(t, VulkanOptions{}), 2, 128, 24), 2, steps, nil)
	for every, followed := range map[int]int{1: 0, 2: steps, 3: steps, 100: steps} {
		d := vulkanTest(t, VulkanOptions{AuditEvery: every})
		e := followProgram(t, d, 2, 128, 24)
		audits := Metrics.Audits.Load()
		got, n := chase(t, e, 2, steps, always)
		if n != followed {
			t.Errorf("every %d: %d steps were run ahead, want %d", every, n, followed)
		}
		if n := Metrics.Audits.Load() - audits; n != int64(steps/every) {
			t.Errorf("every %d: %d audits of %d steps", every, n, steps)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("every %d: other values", every)
		}
	}

	e := followProgram(t, vulkanTest(t, VulkanOptions{AuditEvery: 2}), 2, 128, 24)
	audits := Metrics.Audits.Load()
	for range 4 { // every other step is thrown away
		chase(t, e, 2, 1, always)
	}
	if n := Metrics.Audits.Load() - audits; n < 2 {
		t.Errorf("%d audits of 4 steps beside 4 that were thrown away", n)
	}
}

// TestVulkanFollowUnaudited: an audit of a step that cannot be run ahead is made up for by the next.
func TestVulkanFollowUnaudited(t *testing.T) {
	var notes []string
	d := vulkanTest(t, VulkanOptions{AuditEvery: 6, Note: func(text string) { notes = append(notes, text) }})
	e := followProgram(t, d, 2, 128, 24) // audits count the steps that it runs, too
	chase(t, e, 2, 2, always)            // recorded for both lanes
	info := d.info
	for e.audit.runs%6 != 4 {
		chase(t, e, 2, 1, nil)
	}
	rows, in := batchOf(e, 2)
	out, next := make([]float32, 2*e.prog.Bufs[e.prog.Out].Width), make([]float32, 2*e.prog.Bufs[e.prog.Out].Width)
	if err := e.Begin(rows, in, out); err != nil {
		t.Fatal(err)
	}
	few := *d.info
	d.info, few.MaxGroups[1] = &few, 0 // too few for a recording with cuts
	followed := e.Follow(next)
	d.info = info
	if err := e.Wait(); err != nil || followed || len(notes) != 1 {
		t.Fatalf("%v; run ahead: %v, notes %q", err, followed, notes)
	}
	audits := Metrics.Audits.Load()
	if err := e.Run(rows, in, out); err != nil {
		t.Fatal(err)
	}
	if n := Metrics.Audits.Load() - audits; n != 1 {
		t.Errorf("%d audits of the step after", n)
	}
}

// TestVulkanFollowWrong: nothing comes of a step that follows one with a wrong bit, and the device is not used any more.
func TestVulkanFollowWrong(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{AuditEvery: 3})
	e := followProgram(t, d, 1, 128, 24)
	last := e.prog.Ops[len(e.prog.Ops)-1].Linear.(*vulkanLinear)
	for i := range last.scales {
		last.scales[i] *= 1.5
	}
	rows, in := batchOf(e, 1)
	out, next := make([]float32, e.prog.Bufs[e.prog.Out].Width), make([]float32, e.prog.Bufs[e.prog.Out].Width)
	var wrong *AuditError
	for try := 0; wrong == nil; try++ {
		if try == 1000 {
			t.Fatal("no audit has found the wrong matrix")
		}
		if err := e.Begin(rows, in, out); err != nil {
			t.Fatal(err)
		}
		e.Follow(next)
		for range len(e.flights) {
			if err := e.Wait(); err != nil && !errors.As(err, &wrong) {
				t.Fatal(err)
			} else if wrong != nil {
				break
			}
		}
	}
	if wrong.Op != OpLinear || len(e.flights) > 0 {
		t.Errorf("%v; %d steps are under way", wrong, len(e.flights))
	}
	if err := e.Begin(rows, in, out); !errors.As(err, &wrong) || e.Follow(next) {
		t.Errorf("after a wrong bit: %v", err)
	}
}

// TestVulkanFollowStalls: of a step that has awaited a dispatch in vain, and of the one that has followed it, nothing is handed out.
func TestVulkanFollowStalls(t *testing.T) {
	const steps = 8
	want, _ := chase(t, followProgram(t, vulkanTest(t, VulkanOptions{}), 1, 128, 24), 1, steps, nil)
	for _, first := range []int{0, 3} {
		var notes []string
		d := vulkanTest(t, VulkanOptions{Note: func(text string) { notes = append(notes, text) }})
		if d.unchained.Load() {
			t.Skip("dispatches are not chained")
		}
		defer func() { surplus = 0 }()
		got, followed := chase(t, followProgram(t, d, 1, 128, 24), 1, steps, func(step int) bool {
			if surplus = 0; step >= first { // of the recordings made from now on
				surplus = 1
			}
			return step >= first
		})
		if len(notes) != 1 || followed < steps-first-1 {
			t.Errorf("from step %d: %d steps were run ahead, notes %q", first, followed, notes)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("from step %d: other values", first)
		}
	}
}

// TestVulkanFollowEnds: no step is run ahead beyond the context; nothing comes of one that follows a failure, and the program goes
// on; it can be closed with steps under way, and so can its device.
func TestVulkanFollowEnds(t *testing.T) {
	d := vulkanTest(t, VulkanOptions{})
	const context = 64
	e := followProgram(t, d, 2, context, 24)
	rows, in := []Row{{Pos: context - 2}}, make([]float32, e.prog.Bufs[e.prog.In].Width)
	rows2, in2 := batchOf(e, 1)
	out, next := make([]float32, e.prog.Bufs[e.prog.Out].Width), make([]float32, e.prog.Bufs[e.prog.Out].Width)
	copy(in, in2)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("two from the end", e.Begin(rows, in, out))
	if !e.Follow(next) {
		t.Error("the last position was not run ahead")
	}
	if e.Follow(next) {
		t.Error("three steps are under way")
	}
	for what, err := range map[string]error{"Run": e.Run(rows, in, out), "Begin": e.Begin(rows, in, out)} {
		if !errors.Is(err, errUnderWay) {
			t.Errorf("%s with steps under way: %v", what, err)
		}
	}
	must("the first", e.Wait())
	if e.Follow(out) {
		t.Error("a position beyond the context was run ahead")
	}
	must("the last", e.Wait())
	if err := e.Wait(); !errors.Is(err, errNoStep) {
		t.Errorf("nothing is under way: %v", err)
	}

	must("a good row", e.Run(rows2, in2, out))
	want := slices.Clone(out)
	in[3] = 3e38 // the sum of its squares is not finite
	must("a row that fails", e.Begin(rows2, in, out))
	e.Follow(next)
	var oe *OpError
	if err := e.Wait(); !errors.As(err, &oe) {
		t.Errorf("a row that cannot be computed: %v", err)
	}
	if err := e.Wait(); !errors.Is(err, errNoStep) {
		t.Errorf("after a failure: %v", err)
	}
	must("the good row again", e.Begin(rows2, in2, out))
	e.Follow(next)
	must("the good row again", e.Wait())
	if !slices.Equal(out, want) {
		t.Error("after a failure a row gives other values")
	}
	must("closing a program", e.Close())
	e = followProgram(t, d, 2, context, 24)
	must("another", e.Begin(rows2, in2, out))
	if !e.Follow(next) {
		t.Error("not run ahead")
	}
	// The device is closed with its steps under way.
}
