package units

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// chainedTest is a program of two layers, its first steps of one row to come, on a device that chains their dispatches.
func chainedTest(t *testing.T, o VulkanOptions, wider int) *vulkanExecutable {
	t.Helper()
	d := vulkanTest(t, o)
	if d.unchained.Load() {
		t.Skip("dispatches are not chained")
	}
	return followProgram(t, d, 1, 128, wider)
}

// recordedWith records steps of one row, of both lanes, from the host and behind another step, with operations that change makes of the
// program's. Audits are made of the program as it was.
func recordedWith(t *testing.T, e *vulkanExecutable, change func(ops []Op)) {
	t.Helper()
	right := slices.Clone(e.prog.Ops)
	change(e.prog.Ops)
	rows, in := batchOf(e, 1)
	out := make([]float32, e.prog.Bufs[e.prog.Out].Width)
	for _, f := range []flight{{in: in}, {}, {in: in, lane: 1}, {lane: 1}} {
		f.rows, f.out = rows, out
		if r, err := e.recordingOf(&f); err != nil || r.chain.taken == 0 {
			t.Fatalf("recording a step: %v", err)
		}
	}
	copy(e.prog.Ops, right)
	e.audit.runs = e.audit.every - 1 // the next is audited
}

// disorder has the first layer after all others, which read what it has not written yet.
func disorder(ops []Op) {
	const layer = 20
	copy(ops, slices.Concat(ops[layer:], ops[:layer]))
}

// TestVulkanAuditChainedAgrees: steps that execute both recordings give what others give, one by one and ahead of the host; and as
// many do as chainAuditEvery says.
func TestVulkanAuditChainedAgrees(t *testing.T) {
	const steps = 16
	for _, wider := range []int{0, 24} {
		want, _ := chase(t, chainedTest(t, VulkanOptions{}, wider), 1, steps, nil)
		for _, every := range []int{1, 2} {
			for name, ahead := range map[string]func(int) bool{"one by one": nil, "ahead": always} {
				var notes []string
				e := chainedTest(t, VulkanOptions{AuditEvery: every, Note: func(text string) { notes = append(notes, text) }}, wider)
				got, followed := chase(t, e, 1, steps, ahead)
				if fmt.Sprint(got) != fmt.Sprint(want) || len(notes) > 0 {
					t.Errorf("wider by %d, audits of every %d steps, %s: the same bits: %v, notes %q", wider, every, name, slices.EqualFunc(got, want, slices.Equal), notes)
				}
				if ahead != nil && every > 1 && followed != steps {
					t.Errorf("audits of every %d steps: %d steps were run ahead, want %d", every, followed, steps)
				}
				if n := uint64(steps / every); e.audit.chain.audits < n || e.audit.chain.audits > n+1 {
					t.Errorf("audits of every %d steps, %s: %d of chained ones in %d", every, name, e.audit.chain.audits, steps)
				}
			}
		}
	}
}

// TestVulkanAuditChainedCatches: a chain out of order is seen by the first audit, also of a step behind another, and the device is not
// used any more.
func TestVulkanAuditChainedCatches(t *testing.T) {
	for _, wider := range []int{0, 24} {
		for _, behind := range []bool{false, true} {
			e := chainedTest(t, VulkanOptions{AuditEvery: 2}, wider)
			recordedWith(t, e, disorder)
			count := Metrics.WrongBits.Load()
			rows, in := batchOf(e, 1)
			width := e.prog.Bufs[e.prog.Out].Width
			out, next := make([]float32, width), make([]float32, width)
			if behind { // a step that is not audited
				e.audit.runs = 0
			}
			err := e.Begin(rows, in, out)
			if err == nil && !e.Follow(next) {
				t.Error("not run ahead")
			}
			if err == nil && behind {
				err = e.Wait()
			}
			if err != nil {
				t.Fatal(err)
			}
			err = e.Wait()
			var wrong *AuditError
			if !errors.As(err, &wrong) || !wrong.Chained || wrong.Op != e.prog.lastWriter().Kind || wrong.Column < 0 || wrong.Column >= width || wrong.Got == wrong.Want {
				t.Fatalf("wider by %d, behind another %v: %v", wider, behind, err)
			}
			if text := err.Error(); !Unusable(err) || !strings.Contains(text, "chained: "+wrong.Op.String()) || !strings.Contains(text, fmt.Sprint("value ", wrong.Column)) {
				t.Errorf("no wrong bit: %v", err)
			}
			if n := Metrics.WrongBits.Load() - count; n != 1 || len(e.flights) > 0 || slices.ContainsFunc(next, func(v float32) bool { return v != 0 }) {
				t.Errorf("%d wrong bits are counted, %d steps are under way, handed out %v", n, len(e.flights), next)
			}
			var again *AuditError
			if err := e.Run(rows, in, out); !errors.As(err, &again) || again != wrong {
				t.Errorf("after %v: %v", wrong, err)
			}
		}
	}
}

// TestVulkanAuditChainedEvery: the first audit of a chained step and then every chainAuditEvery-th sees a chain out of order; all do
// where every step is audited.
func TestVulkanAuditChainedEvery(t *testing.T) {
	for every, sees := range map[int]func(audits int) bool{1: func(int) bool { return true }, 2: func(audits int) bool { return audits%chainAuditEvery == 0 }} {
		for audits := range chainAuditEvery + 1 {
			e := chainedTest(t, VulkanOptions{AuditEvery: every}, 24)
			recordedWith(t, e, disorder)
			e.audit.chain.audits = uint64(audits)
			rows, in := batchOf(e, 1)
			err := e.Run(rows, in, make([]float32, e.prog.Bufs[e.prog.Out].Width))
			if WrongBit(err) != sees(audits) || err != nil && !sees(audits) {
				t.Errorf("audits of every %d steps, after %d of chained ones: %v", every, audits, err)
			}
		}
	}
}

// TestVulkanAuditChainedFails: a row that cannot be computed is that in both recordings; one that only one of them cannot compute is a
// wrong bit.
func TestVulkanAuditChainedFails(t *testing.T) {
	e := chainedTest(t, VulkanOptions{AuditEvery: 1}, 24)
	rows, in := batchOf(e, 1)
	out := make([]float32, e.prog.Bufs[e.prog.Out].Width)
	bad := slices.Clone(in)
	bad[3] = 3e38 // the sum of its squares is not finite
	var oe *OpError
	if err := e.Run(rows, bad, out); !errors.As(err, &oe) || !e.audit.chain.on {
		t.Errorf("a row that cannot be computed: %v", err)
	}
	if err := e.Run(rows, in, out); err != nil {
		t.Errorf("a good row after it: %v", err)
	}

	for _, chained := range []bool{false, true} {
		e := chainedTest(t, VulkanOptions{AuditEvery: 1}, 24)
		fails := func(ops []Op) {
			v, err := e.dev.NewVector("huge", slices.Repeat([]float32{3e38}, ops[5].Cos.Len()))
			if err != nil {
				t.Fatal(err)
			}
			ops[5].Cos = v
		}
		want := &AuditError{Op: OpAttend, Column: -1, Want: 1, Chained: true}
		if chained {
			want.Got, want.Want = 1, 0
			recordedWith(t, e, fails)
		} else {
			recordedWith(t, e, func([]Op) {})
			fails(e.prog.Ops)
		}
		var wrong *AuditError
		if err := e.Run(rows, in, out); !errors.As(err, &wrong) || *wrong != *want {
			t.Errorf("fails in the chained recording %v: %v", chained, err)
		}
	}
}

// TestVulkanAuditChainedStalls: a chained recording that stalls is no wrong bit; the step is what barriers give, and so is that which
// was begun behind it.
func TestVulkanAuditChainedStalls(t *testing.T) {
	const steps = 6
	want, _ := chase(t, chainedTest(t, VulkanOptions{}, 24), 1, steps, nil)
	for _, every := range []int{1, 2} {
		for name, ahead := range map[string]func(int) bool{"one by one": nil, "ahead": always} {
			var notes []string
			e := chainedTest(t, VulkanOptions{AuditEvery: every, Note: func(text string) { notes = append(notes, text) }}, 24)
			defer func() { surplus = 0 }()
			surplus = 1
			rows, in := batchOf(e, 1)
			_, err := e.recordingOf(&flight{rows: rows, in: in, out: make([]float32, e.prog.Bufs[e.prog.Out].Width)})
			if surplus = 0; err != nil { // others do not stall
				t.Fatal(err)
			}
			e.audit.runs = uint64(every - 1)
			wrong := Metrics.WrongBits.Load()
			got, _ := chase(t, e, 1, steps, ahead)
			if fmt.Sprint(got) != fmt.Sprint(want) || len(notes) != 1 || !strings.Contains(notes[0], "order") || Metrics.WrongBits.Load() != wrong {
				t.Errorf("audits of every %d steps, %s: the same bits: %v, notes %q", every, name, slices.EqualFunc(got, want, slices.Equal), notes)
			}
		}
	}
}
