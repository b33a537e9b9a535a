package stage

import (
	"slices"
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

// firstLayer is an engine of one layer for two sessions, and the width of its rows.
func firstLayer(t *testing.T) (*Engine, int) {
	t.Helper()
	m, err := inspect.Open(t.Context(), "../testdata/tales-qwen2", inspect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := units.NewCPU(units.CPUOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Load(t.Context(), m, dev, LoadOptions{Range: plan.Range{First: 0, Last: 0}, Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(w, EngineOptions{Context: 16, Sessions: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		w.Close()
		dev.Close()
		m.Close()
	})
	return e, m.Spec.Hidden
}

// TestEngineClaims: a row that is alone is computed by whoever brings it. Beside a batch under way, or for a session that another
// is waited for with, it is left to the engine, and so are several rows.
func TestEngineClaims(t *testing.T) {
	e, hidden := firstLayer(t)
	var sessions [2]*nearSession
	for i := range sessions {
		s, err := e.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = s.(*nearSession)
	}
	push := func(s *nearSession, rows int) (atOnce bool) {
		t.Helper()
		in := make([]float32, rows*hidden)
		in[hidden-1] = float32(s.next)
		if err := s.Push(t.Context(), s.next, in); err != nil {
			t.Fatal(err)
		}
		return len(s.results) == 1
	}
	pull := func(s *nearSession) []float32 {
		t.Helper()
		row, err := s.Pull(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	first, second := sessions[0], sessions[1]
	if !push(first, 1) {
		t.Error("a row that is alone is left to the engine")
	}
	claimed := pull(first)
	e.turn.Lock() // a batch is under way
	if push(first, 1) || push(second, 1) {
		t.Error("a row is computed beside a batch")
	}
	e.turn.Unlock()
	pull(first)
	if left := pull(second); !slices.Equal(left, claimed) {
		t.Error("whoever brings a row gets other results than the engine gives")
	}
	if e.turn.Lock(); e.claim(&request{session: first.id, n: 1}) {
		t.Error("a row is computed while a batch is under way")
	}
	e.turn.Unlock()
	if e.claim(&request{session: first.id, n: 1}) {
		t.Error("a row is computed without the other session, which is expected")
	}
	second.Close()
	if e.claim(&request{session: first.id, n: 2}) {
		t.Error("rows of a prompt are computed by whoever brings them")
	}
	if !push(first, 1) {
		t.Error("a session is waited for that has ended")
	}
	pull(first)
	if n := e.flying.Load(); n != 0 {
		t.Errorf("%d requests are under way", n)
	}
}

// TestEngineForgets: a batch does not wait for a session that has ended.
func TestEngineForgets(t *testing.T) {
	e, hidden := firstLayer(t)
	step := func(s Session, pos int) {
		t.Helper()
		if err := s.Push(t.Context(), pos, make([]float32, hidden)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var sessions [2]Session
	for i := range sessions {
		s, err := e.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = s
		step(s, 0)
	}
	sessions[0].Close()
	step(sessions[1], 1)
	sessions[1].Close()
	e.Close()
	if n := len(e.crowd.last); n != 1 {
		t.Errorf("%d sessions are expected to come back", n)
	}
}
