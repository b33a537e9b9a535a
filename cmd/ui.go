package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"dchain/plan"
)

// ui draws. Nothing else in the program prints.
//
// stdout is data: tables, text, JSON. stderr is talk: notes, progress, errors as one line "dchain: ..." and lines
// "hint: ..." below it. Bars are drawn only when stderr is a terminal; otherwise progress is plain lines.
type ui struct {
	out io.Writer

	mu       sync.Mutex // guards err, written from progress callbacks too, and said
	err      io.Writer
	said     map[string]bool // by noteOnce
	terminal bool            // err is a terminal
}

func newUI(stdout, stderr io.Writer) *ui {
	u := &ui{out: stdout, err: stderr, said: map[string]bool{}}
	if f, ok := stderr.(*os.File); ok {
		u.terminal = term.IsTerminal(int(f.Fd()))
	}
	return u
}

// printf writes data.
func (u *ui) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(u.out, format, args...)
	return err
}

// json writes a value as indented JSON.
func (u *ui) json(v any) error {
	enc := json.NewEncoder(u.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// jsonLine writes a value as one line of JSON.
func (u *ui) jsonLine(v any) error {
	enc := json.NewEncoder(u.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// text writes generated text as it comes.
func (u *ui) text(s string) error {
	_, err := io.WriteString(u.out, s)
	return err
}

// note writes a line of talk.
func (u *ui) note(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintln(u.err, oneLine(fmt.Sprintf(format, args...)))
}

// noteOnce is note for what may turn out more than once, of each tier of a device or each time that one is opened.
func (u *ui) noteOnce(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.said[text] {
		u.said[text] = true
		fmt.Fprintln(u.err, oneLine(text))
	}
}

// fail reports the error that ends the command.
func (u *ui) fail(err error) {
	u.note("dchain: %s", message(err))
	for _, h := range hints(err) {
		u.note("hint: %s", h)
	}
}

func message(err error) string {
	if exitCode(err) == exitInterrupted {
		return "interrupted"
	}
	return err.Error()
}

// oneLine keeps text from a file or a peer from breaking the line or steering the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, strings.TrimSpace(s))
}

// table writes aligned columns. A header that starts with ">" aligns its column to the right. Without rows, nothing.
func (u *ui) table(header []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	width := make([]int, len(header))
	right := make([]bool, len(header))
	names := make([]string, len(header))
	for i, h := range header {
		names[i], right[i] = strings.CutPrefix(h, ">")
	}
	all := append([][]string{names}, rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(u.out, b.String())
	return err
}

// pairs writes a two-column list of names and values; pairs without a value are left out.
func (u *ui) pairs(kv [][2]string) error {
	width := 0
	for _, p := range kv {
		width = max(width, utf8.RuneCountInString(p[0]))
	}
	var b strings.Builder
	for _, p := range kv {
		if p[1] != "" {
			fmt.Fprintf(&b, "%-*s  %s\n", width, p[0], p[1])
		}
	}
	_, err := io.WriteString(u.out, b.String())
	return err
}

// progress shows how far a load of bytes, or other work, is. Its methods are safe for concurrent use.
type progress struct {
	ui   *ui
	what string
	unit string // "" counts bytes

	mu    sync.Mutex
	done  int64
	bar   *progressbar.ProgressBar // nil before the total is known, and when stderr is not a terminal
	spoke time.Time                // last plain line
	ended bool
}

// plainInterval is the least time between two plain lines of progress.
const plainInterval = 5 * time.Second

// progress begins to show a load. Nothing is drawn before there is some.
func (u *ui) progress(what string) *progress {
	return &progress{ui: u, what: what, spoke: time.Now()}
}

// progressOf is the same for work that is counted in units other than bytes.
func (u *ui) progressOf(what, unit string) *progress {
	return &progress{ui: u, what: what, unit: unit, spoke: time.Now()}
}

// of reports that n more bytes or units of total are done.
func (p *progress) of(n, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || total <= 0 {
		return
	}
	p.done += n
	if p.ui.terminal {
		p.draw(n, total)
		return
	}
	if now := time.Now(); now.Sub(p.spoke) >= plainInterval {
		p.spoke = now
		size := plan.Bytes(total).String()
		if p.unit != "" {
			size = fmt.Sprintf("%d %s", total, p.unit)
		}
		p.ui.note("%s: %d%% of %s", p.what, 100*p.done/total, size)
	}
}

// draw needs the lock.
func (p *progress) draw(n, total int64) {
	if p.bar == nil {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(p.ui.err), progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowBytes(p.unit == ""), progressbar.OptionUseIECUnits(true), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetTheme(progressbar.ThemeASCII), progressbar.OptionClearOnFinish())
	}
	p.bar.Add64(n)
}

// end removes the bar.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended && p.bar != nil {
		p.bar.Finish()
	}
	p.ended = true
}
