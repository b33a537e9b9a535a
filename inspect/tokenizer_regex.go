package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/dlclark/regexp2/v2"
)

// compileExpression compiles an expression in the syntax of Oniguruma, which tokenizer files use. It is rewritten for the
// engine here, which knows the syntax of .NET: what both write alike but read differently, such as classes within classes,
// comes out with Oniguruma's meaning, and what has no counterpart is refused by name.
func compileExpression(expr string) (pieceFinder, error) {
	t := &translator{in: []rune(expr)}
	text, err := t.alternatives(options{}, 0)
	if err == nil && t.at < len(t.in) {
		err = errors.New("a closing parenthesis too many")
	}
	if err != nil {
		return pieceFinder{}, fmt.Errorf("pattern %q: %w", expr, err)
	}
	// The limit on backtracking would make the ids of long texts wrong.
	re, err := regexp2.Compile(text, regexp2.None, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return pieceFinder{}, fmt.Errorf("pattern %q: %w", expr, err)
	}
	return pieceFinder{re: re}, nil
}

const (
	// wordClass is \w within a class; by itself it also has six numbers of Latin-1.
	wordClass = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\p{Other_Alphabetic}`
	word      = "[" + wordClass + "²³¹¼½¾]"
	notWord   = "[^" + wordClass + "²³¹¼½¾]"
	anything  = `[\s\S]`

	deepestGroups = 100
	maxRepeat     = 100000
)

// options are those that a group may set.
type options struct {
	fold  bool // i: upper and lower case are the same
	lines bool // m: a dot matches line ends, too
}

// translator reads an expression front to back.
type translator struct {
	in   []rune
	at   int
	last rune // the literal right before, folded, within a group that ignores case; 0: none
}

func (t *translator) peek() rune {
	if t.at < len(t.in) {
		return t.in[t.at]
	}
	return 0
}

// take skips the text if it comes next.
func (t *translator) take(text string) bool {
	if !t.ahead(text) {
		return false
	}
	t.at += len([]rune(text))
	return true
}

func (t *translator) ahead(text string) bool {
	r := []rune(text)
	return len(t.in)-t.at >= len(r) && slices.Equal(t.in[t.at:t.at+len(r)], r)
}

func unsupported(text string) error { return fmt.Errorf("%q is not supported", text) }

// alternatives translates up to the end of the group, whose parenthesis it leaves.
func (t *translator) alternatives(o options, depth int) (string, error) {
	if depth > deepestGroups {
		return "", errors.New("groups are nested too deep")
	}
	var out strings.Builder
	for t.at < len(t.in) && t.peek() != ')' {
		if t.take("|") {
			out.WriteByte('|')
			t.last = 0
			continue
		}
		if set, ok := t.isolated(o); ok { // it holds for the rest of the group, all of whose alternatives become one part
			rest, err := t.alternatives(set, depth+1)
			if err != nil {
				return "", err
			}
			out.WriteString("(?:" + rest + ")")
			break
		}
		start := t.at
		part, repeatable, err := t.atom(o, depth)
		if err != nil {
			return "", err
		}
		if part, err = t.repeat(part, repeatable, string(t.in[start:t.at])); err != nil {
			return "", err
		}
		out.WriteString(part)
	}
	return out.String(), nil
}

// isolated reads options that are not those of a group, such as (?i).
func (t *translator) isolated(o options) (options, bool) {
	start := t.at
	if t.take("(?") {
		if set, ok := t.setOptions(o); ok && t.take(")") {
			return set, true
		}
	}
	t.at = start
	return o, false
}

// setOptions reads letters such as i-m; others are not known.
func (t *translator) setOptions(o options) (options, bool) {
	on, start := true, t.at
	for {
		switch t.peek() {
		case '-':
			on = false
		case 'i':
			o.fold = on
		case 'm':
			o.lines = on
		default:
			return o, t.at > start
		}
		t.at++
	}
}

// repeat translates the quantifiers after a part.
func (t *translator) repeat(part string, repeatable bool, source string) (string, error) {
	for again := false; ; again = true {
		interval, quantifier, err := t.quantifier()
		if err != nil || quantifier == "" {
			return part, err
		}
		if !repeatable {
			return "", unsupported(source + quantifier)
		}
		if again { // only an interval may come before
			part = "(?:" + part + ")"
		}
		if interval {
			part += quantifier
			continue
		}
		switch {
		case t.take("+"):
			part = "(?>" + part + quantifier + ")"
		case t.take("?"):
			part += quantifier + "?"
		default:
			part += quantifier
		}
		if slices.Contains([]rune{'*', '+', '?'}, t.peek()) {
			return "", unsupported(source + quantifier + string(t.peek()))
		}
		if interval, _, _ := t.quantifier(); interval {
			return "", unsupported(source + quantifier + "{")
		}
		return part, nil
	}
}

// quantifier reads *, +, ?, or an interval. A brace that begins none is left as a literal. A question mark makes an
// interval lazy, but one of a single number optional; a plus sign repeats it.
func (t *translator) quantifier() (interval bool, text string, err error) {
	switch c := t.peek(); c {
	case '*', '+', '?':
		t.at++
		return false, string(c), nil
	case '{':
	default:
		return false, "", nil
	}
	end := slices.Index(t.in[t.at:], '}')
	if end < 0 {
		return false, "", nil
	}
	low, high, comma := strings.Cut(string(t.in[t.at+1:t.at+end]), ",")
	from, errFrom := repeatCount(low)
	to, errTo := repeatCount(high)
	if errFrom != nil || errTo != nil || low == "" && high == "" {
		return false, "", nil
	}
	text = string(t.in[t.at : t.at+end+1])
	t.at += end + 1
	switch {
	case !comma:
		return true, fmt.Sprintf("{%d}", from), nil
	case high == "":
		text = fmt.Sprintf("{%d,}", from)
	case from > to || from == to && t.peek() == '?':
		return true, "", unsupported(text)
	default:
		text = fmt.Sprintf("{%d,%d}", from, to)
	}
	if t.take("?") {
		text += "?"
	}
	return true, text, nil
}

// repeatCount reads a number of an interval; no digits are 0.
func repeatCount(digits string) (int, error) {
	if digits == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err == nil && n > maxRepeat {
		err = errors.New("too many")
	}
	return int(n), err
}

// atom translates one part of an alternative and says whether it may be repeated.
func (t *translator) atom(o options, depth int) (text string, repeatable bool, err error) {
	c := t.in[t.at]
	t.at++
	if c == '(' {
		return t.group(o, depth)
	}
	if c == '*' || c == '+' || c == '?' {
		return "", false, fmt.Errorf("%q with nothing to repeat", c)
	}
	before := t.last
	t.last = 0
	switch c {
	case '[':
		set, err := t.class(o.fold, depth)
		if err != nil {
			return "", false, err
		}
		return set.text(), true, nil
	case '.':
		if o.lines {
			return anything, true, nil
		}
		return ".", true, nil
	case '^': // not after a line end that is the last character
		return `(?:\A|(?<=\n)(?!\z))`, false, nil
	case '$':
		return `(?=\n|\z)`, false, nil
	case '\\':
		return t.escape(o, before)
	}
	text, err = t.literal(c, o, before)
	return text, true, err
}

// group translates what follows an opening parenthesis. Nothing refers to captures, so that none are made.
func (t *translator) group(o options, depth int) (string, bool, error) {
	open, repeatable := "(?:", true
	if t.ahead("*") {
		return "", false, unsupported("(*")
	}
	if start := t.at; t.take("?") {
		switch {
		case t.take("#"):
			for t.at < len(t.in) && t.peek() != ')' {
				t.at++
			}
			if !t.take(")") {
				return "", false, errors.New("a comment without end")
			}
			return "", false, nil
		case t.take(":"):
		case t.take(">"):
			open = "(?>"
		case t.take("="), t.take("!"), t.take("<="), t.take("<!"):
			open, repeatable = "("+string(t.in[start:t.at]), false
		case t.take("<"):
			for unicode.IsLetter(t.peek()) || unicode.IsDigit(t.peek()) || t.peek() == '_' {
				t.at++
			}
			if !t.take(">") {
				return "", false, unsupported("(" + string(t.in[start:t.at]))
			}
		default:
			var ok bool
			if o, ok = t.setOptions(o); !ok || !t.take(":") {
				return "", false, unsupported("(" + string(t.in[start:min(t.at+1, len(t.in))]))
			}
		}
	}
	text, err := t.alternatives(o, depth+1)
	if err == nil && !t.take(")") {
		err = errors.New("a parenthesis is not closed")
	}
	return open + text + ")", repeatable, err
}

// escape translates what follows a backslash outside classes.
func (t *translator) escape(o options, before rune) (string, bool, error) {
	if t.at == len(t.in) {
		return "", false, errors.New("a backslash at the end")
	}
	switch c := t.peek(); c {
	case 'w', 'W', 'b', 'B', 'A', 'z', 'Z':
		t.at++
		switch c {
		case 'w':
			return word, true, nil
		case 'W':
			return notWord, true, nil
		case 'b':
			return "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))", false, nil
		case 'B':
			return "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))", false, nil
		}
		return `\` + string(c), false, nil
	}
	set, err := t.setEscape(o.fold)
	if err != nil {
		return "", false, err
	}
	if set != nil {
		return set.text(), true, nil
	}
	c, err := t.charEscape()
	if err != nil {
		return "", false, err
	}
	text, err := t.literal(c, o, before)
	return text, true, err
}

// charEscape translates the escape of one character.
func (t *translator) charEscape() (rune, error) {
	c := t.peek()
	t.at++
	if at := strings.IndexRune("ntrfvae", c); at >= 0 {
		return rune("\n\t\r\f\v\a\x1b"[at]), nil
	}
	switch {
	case c == 'x' && t.take("{"):
		end := max(slices.Index(t.in[t.at:], '}'), 0)
		r, err := strconv.ParseUint(string(t.in[t.at:t.at+end]), 16, 32)
		if err != nil || r > unicode.MaxRune {
			return 0, unsupported(`\x{` + string(t.in[t.at:t.at+end]))
		}
		t.at += end + 1
		return rune(r), nil
	case c == 'x' || c == 'u':
		digits := map[rune]int{'x': 2, 'u': 4}[c]
		end := min(t.at+digits, len(t.in))
		r, err := strconv.ParseUint(string(t.in[t.at:end]), 16, 32)
		if err != nil || end-t.at != digits || c == 'x' && r > unicode.MaxASCII { // a byte of a character
			return 0, unsupported(`\` + string(c) + string(t.in[t.at:end]))
		}
		t.at = end
		return rune(r), nil
	case c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		return 0, unsupported(`\` + string(c))
	}
	return c, nil
}

// literal translates a character. before is the one in front of it, if that is a literal, too.
func (t *translator) literal(c rune, o options, before rune) (string, error) {
	if !o.fold {
		return quote(c), nil
	}
	var s set
	if err := s.addRange(c, c, true); err != nil {
		return "", err
	}
	t.last = unicode.ToLower(c)
	if before != 0 && slices.Contains(foldedPairs, string([]rune{before, t.last})) {
		return "", fmt.Errorf("%q where case is ignored is not supported: it may be one character", string([]rune{before, t.last}))
	}
	return s.text(), nil
}

// foldedPairs begin what a single character is folded to, such as ß. Those with other than ASCII letters need no entry,
// since such letters are not supported where case is ignored.
var foldedPairs = []string{"ss", "ff", "fi", "fl", "st"}

// quote writes a character so that it stands for itself, within a class too.
func quote(c rune) string {
	if c < ' ' || c == 0x7F || strings.ContainsRune(`\.[](){}*+?^$|-#`, c) {
		return fmt.Sprintf(`\u%04X`, c)
	}
	return string(c)
}
