package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"dchain/inspect"
	"dchain/plan"
)

func TestExitCodeAndHints(t *testing.T) {
	usage := usageError("--ctx: %d is not at least 1", 0).hint("try %d", 1)
	fit := func(sessions, limbs int) error {
		return fmt.Errorf("planning: %w", &plan.FitError{What: "x", Of: plan.Need{Sessions: sessions, Limbs: limbs}})
	}
	for _, c := range []struct {
		err   error
		code  int
		hints []string
	}{
		{nil, exitOK, nil},
		{errors.New("disk on fire"), exitFailure, nil},
		{usage, exitUsage, []string{"try 1"}},
		{fmt.Errorf("outer: %w", usage), exitUsage, []string{"try 1"}},
		{fit(1, 1), exitFailure, []string{"add a machine, or lower --ctx"}},
		{fit(8, 2), exitFailure, []string{"add a machine, or lower --ctx or the sessions at a time, or use --weights int8"}},
		{fmt.Errorf("waiting: %w", context.Canceled), exitInterrupted, nil},
		{context.DeadlineExceeded, exitFailure, nil},
	} {
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.code)
		}
		if got := hints(c.err); fmt.Sprint(got) != fmt.Sprint(c.hints) {
			t.Errorf("%v: hints %q, want %q", c.err, got, c.hints)
		}
	}
}

func TestFail(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("reading x: no such file"), "dchain: reading x: no such file\n"},
		{errors.New("a\nb\tc"), "dchain: a b c\n"},
		{errors.New("peer says \x1b[31mred\x07"), "dchain: peer says \ufffd[31mred\ufffd\n"},
		{usageError("no").hint("one").hint("two"), "dchain: no\nhint: one\nhint: two\n"},
		{fmt.Errorf("waiting for a: %w", context.Canceled), "dchain: interrupted\n"},
	} {
		var out, err bytes.Buffer
		newUI(&out, &err).fail(c.err)
		if err.String() != c.want || out.Len() > 0 {
			t.Errorf("%q: stderr %q, stdout %q; want stderr %q", c.err, err.String(), out.String(), c.want)
		}
	}
}

func TestNoteOnce(t *testing.T) {
	var stderr bytes.Buffer
	u := newUI(&bytes.Buffer{}, &stderr)
	for _, text := range []string{"one", "two\nlines", "one", "100%d", "two\nlines"} {
		u.noteOnce(text)
	}
	if got := stderr.String(); got != "one\ntwo lines\n100%d\n" {
		t.Errorf("stderr %q", got)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	u := newUI(&out, &bytes.Buffer{})
	if err := u.table([]string{"name", ">bytes", "last"}, [][]string{{"größe", "7", ""}, {"b", "1234567", "x"}}); err != nil {
		t.Fatal(err)
	}
	want := "name     bytes  last\n" +
		"größe        7\n" +
		"b      1234567  x\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := u.table([]string{"name"}, nil); err != nil || out.Len() > 0 {
		t.Errorf("an empty table prints %q, %v", out.String(), err)
	}
	if err := u.pairs([][2]string{{"a", "1"}, {"without", ""}, {"long name", "2"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "a          1\nlong name  2\n"; got != want {
		t.Errorf("pairs print %q, want %q", got, want)
	}
}

// Progress that nobody watches on a terminal draws no bar and says nothing while it is quick.
func TestProgressWithoutTerminal(t *testing.T) {
	var stderr bytes.Buffer
	u := newUI(&bytes.Buffer{}, &stderr)
	p := u.progress("loading")
	for range 10 {
		p.of(10, 100)
	}
	p.end()
	p.of(10, 100)
	p.end()
	if stderr.Len() > 0 {
		t.Errorf("a quick load wrote %q", stderr.String())
	}
	p = u.progress("loading")
	p.spoke = p.spoke.Add(-plainInterval)
	p.of(50<<10, 200<<10)
	if got := stderr.String(); got != "loading: 25% of 200 KiB\n" {
		t.Errorf("a slow load wrote %q", got)
	}
}

func TestGroupDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 12: "12", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := groupDigits(n); got != want {
			t.Errorf("%d prints as %q, want %q", n, got, want)
		}
	}
}

func TestParseIDs(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string
	}{
		{"1,2,3", "[1 2 3]"}, {"[1, 2,3]", "[1 2 3]"}, {" 7 \n", "[7]"}, {"1 2\t3", "[1 2 3]"}, {"", "[]"}, {"[]", "[]"},
	} {
		got, err := parseIDs(c.in)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("parseIDs(%q) = %v, %v; want %s", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"a", "-1", "1.5", "[1", "1]", "0x10", "2147483648", strings.Repeat("9", 100)} {
		got, err := parseIDs(in)
		if err == nil {
			t.Errorf("parseIDs(%q) = %v; want an error", in, got)
		} else if len(err.Error()) > 160 {
			t.Errorf("parseIDs(%q): the error has %d bytes", in, len(err.Error()))
		}
	}
}

func TestCheckText(t *testing.T) {
	if err := checkText("é漢🙂\ufffd"); err != nil {
		t.Error(err)
	}
	if err := checkText("é\xffx"); err == nil || !strings.Contains(err.Error(), "byte 0xff at offset 2") {
		t.Errorf("got %v", err)
	}
	if err := checkText("ok\xe6\xbc"); err == nil || !strings.Contains(err.Error(), "byte 0xe6 at offset 2") {
		t.Errorf("got %v", err)
	}
}

// The delay before a request is repeated is printed to a tenth of a second.
func TestRetryNote(t *testing.T) {
	var talk bytes.Buffer
	a := &app{ui: newUI(&bytes.Buffer{}, &talk)}
	a.inspectOptions().OnRetry(inspect.Retry{Err: errors.New("the hub is busy"), Wait: 3856005176 * time.Nanosecond})
	if want := "trying again in 3.9 s: the hub is busy\n"; talk.String() != want {
		t.Errorf("%q, want %q", talk.String(), want)
	}
}
