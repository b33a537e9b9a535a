package stage

import (
	"testing"
	"time"

	"dchain/inspect"
	"dchain/plan"
	"dchain/units"
)

func members(ids ...int32) map[int32]bool {
	m := map[int32]bool{}
	for _, id := range ids {
		m[id] = true
	}
	return m
}

// TestCrowdExpect: those of the last batches are expected again, by halves where two machines compute; who has ended or
// stays away is not.
func TestCrowdExpect(t *testing.T) {
	var c crowd
	if got := c.expect(); got != 1 {
		t.Errorf("nobody has come yet, %d are expected", got)
	}
	c.ran(members(1))
	c.ran(members(2, 3, 4, 5, 6, 7, 8))
	for groups, want := range map[int]int{0: 8, 1: 8, 2: 4, 3: 3, 8: 1} {
		c.groups = groups
		if got := c.expect(); got != want {
			t.Errorf("%d groups: %d are expected, want %d", groups, got, want)
		}
		if c.full(want-1) || c.full(want) != (groups > 1) {
			t.Errorf("%d groups: full with %d: %v, with %d: %v", groups, want-1, c.full(want-1), want, c.full(want))
		}
	}
	c.groups = 1
	c.forget(8)
	if got := c.expect(); got != 7 {
		t.Errorf("one of eight has ended, %d are expected", got)
	}
	c.ran(members(2, 3))
	c.ran(members(2, 3))
	if got := c.expect(); got != 2 {
		t.Errorf("two have come back twice, %d are expected", got)
	}
}

// TestCrowdPatience: it is a share of a round, bounded; short once it was in vain, until it paid, but for a try now and then.
func TestCrowdPatience(t *testing.T) {
	c := crowd{share: 4, most: 8 * time.Millisecond, round: time.Hour}
	if got := c.patience(); got != c.most {
		t.Errorf("at first: %v, want %v", got, c.most)
	}
	c.waited(false)
	long := 0
	for i := range int32(4 * retry) {
		c.ran(members(i))
		switch c.patience() {
		case c.most:
			long++
		case shortest:
		default:
			t.Errorf("after it was in vain: %v", c.patience())
		}
	}
	if long != 4 {
		t.Errorf("%d long waits in %d batches", long, 4*retry)
	}
	c.ran(members(-1))
	c.waited(true)
	if got := c.patience(); got != c.most {
		t.Errorf("after it paid: %v, want %v", got, c.most)
	}
	c = crowd{share: 4, most: time.Hour}
	c.ran(members(1))
	if got := c.patience(); got != 0 {
		t.Errorf("no session has come back: %v, want none", got)
	}
	time.Sleep(4 * time.Millisecond)
	c.ran(members(1))
	if got := c.patience(); got < time.Millisecond || got > time.Minute {
		t.Errorf("a round of 4 ms or some more: %v, want a quarter", got)
	}
	c.last[2] = visit{c.batches, time.Now().Add(-time.Hour)}
	c.ran(members(1, 2))
	if got := c.patience(); got > time.Minute {
		t.Errorf("beside a session that took an hour: %v, want a quarter of the other's round", got)
	}
}

// TestEngineForgets: a batch does not wait for a session that has ended.
func TestEngineForgets(t *testing.T) {
	m, err := inspect.Open(t.Context(), "../testdata/tales-qwen2", inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dev, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	w, err := Load(t.Context(), m, dev, LoadOptions{Range: plan.Range{First: 0, Last: 0}, Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	e, err := NewEngine(w, EngineOptions{Context: 16, Sessions: 2})
	if err != nil {
		t.Fatal(err)
	}
	step := func(s Session, pos int) {
		t.Helper()
		if err := s.Push(t.Context(), pos, make([]float32, m.Spec.Hidden)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var sessions [2]Session
	for i := range sessions {
		if sessions[i], err = e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		step(sessions[i], 0)
	}
	sessions[0].Close()
	step(sessions[1], 1)
	sessions[1].Close()
	e.Close()
	if n := len(e.crowd.last); n != 1 {
		t.Errorf("%d sessions are expected to come back", n)
	}
}
