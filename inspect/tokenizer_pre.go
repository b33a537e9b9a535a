package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"golang.org/x/text/unicode/norm"
)

// deepestParts bounds how deep Sequence parts may be nested.
const deepestParts = 8

// normalizer changes the text before words are cut.
type normalizer func(string) string

func (t *Tokenizer) normalizeText(s string) string {
	for _, n := range t.normalize {
		s = n(s)
	}
	return s
}

// pattern is {"String": s} or {"Regex": r}.
type pattern struct {
	String *string
	Regex  *string
}

// pieceFinder finds the matches of a pattern: either a plain string or an expression.
type pieceFinder struct {
	plain string
	re    *regexp2.Regexp
}

func (p pattern) compile() (pieceFinder, error) {
	switch {
	case p.String != nil && *p.String != "":
		return pieceFinder{plain: *p.String}, nil
	case p.Regex != nil:
		return compileExpression(*p.Regex)
	}
	return pieceFinder{}, errors.New("pattern without text")
}

func compileNormalizer(v json.RawMessage, depth int) ([]normalizer, error) {
	if isNull(v) {
		return nil, nil
	}
	var n struct {
		Type        string
		Normalizers []json.RawMessage
		Prepend     string
		Pattern     pattern
		Content     string
	}
	if err := json.Unmarshal(v, &n); err != nil {
		return nil, err
	}
	switch n.Type {
	case "Sequence":
		return flatten(n.Normalizers, depth, compileNormalizer)
	case "NFC":
		return []normalizer{func(s string) string { return normalizeForm(norm.NFC, s) }}, nil
	case "NFD":
		return []normalizer{func(s string) string { return normalizeForm(norm.NFD, s) }}, nil
	case "NFKC":
		return []normalizer{func(s string) string { return normalizeForm(norm.NFKC, s) }}, nil
	case "NFKD":
		return []normalizer{func(s string) string { return normalizeForm(norm.NFKD, s) }}, nil
	case "Lowercase":
		return []normalizer{lowercase}, nil
	case "Prepend":
		return []normalizer{func(s string) string {
			if s == "" {
				return s
			}
			return n.Prepend + s
		}}, nil
	case "Replace":
		find, err := n.Pattern.compile()
		if err != nil {
			return nil, fmt.Errorf("type \"Replace\": %w", err)
		}
		return []normalizer{func(s string) string { return find.replace(s, n.Content) }}, nil
	}
	return nil, fmt.Errorf("type %q is not supported", n.Type)
}

// flatten compiles the parts of a Sequence one after the other.
func flatten[T any](parts []json.RawMessage, depth int, compile func(json.RawMessage, int) ([]T, error)) ([]T, error) {
	if depth >= deepestParts {
		return nil, errors.New("sequences are nested too deep")
	}
	var all []T
	for _, part := range parts {
		list, err := compile(part, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// replace puts content, taken literally, in place of every match.
func (f pieceFinder) replace(s, content string) string {
	if f.re == nil {
		return strings.ReplaceAll(s, f.plain, content)
	}
	e := new(encoder)
	f.find(e, s)
	var b strings.Builder
	for _, c := range e.cuts {
		if c.match {
			b.WriteString(content)
		} else {
			b.WriteString(s[c.start:c.end])
		}
	}
	return b.String()
}

// cut is a part of a text: a match of a pattern or what lies between two of them.
type cut struct {
	start, end int
	match      bool
}

// find pushes the parts of a text, matches and what lies between, onto the encoder's stack.
func (f pieceFinder) find(e *encoder, text string) {
	if f.re == nil {
		done := 0
		for {
			at := strings.Index(text[done:], f.plain)
			if at < 0 {
				break
			}
			e.push(done, done+at, false)
			done += at
			e.push(done, done+len(f.plain), true)
			done += len(f.plain)
		}
		e.push(done, len(text), false)
		return
	}
	e.runes = e.runes[:0]
	for _, r := range text {
		e.runes = append(e.runes, r)
	}
	at, done := 0, 0 // the same place in runes and in bytes
	err := f.re.FindRunesMatches(e.runes, 0, func(m regexp2.MatchView) bool {
		index, length, _ := m.GroupRange(0)
		start := done + byteLen(e.runes[at:index])
		end := start + byteLen(e.runes[index:index+length])
		e.push(done, start, false)
		e.push(start, end, true)
		at, done = index+length, end
		return true
	})
	if err != nil {
		panic(fmt.Sprintf("matching %q: %v", f.re, err)) // limits of time and space are off
	}
	e.push(done, len(text), false)
}

func byteLen(runes []rune) int {
	n := len(runes)
	for _, r := range runes {
		if r >= utf8.RuneSelf {
			n += utf8.RuneLen(r) - 1
		}
	}
	return n
}

// push adds a part that is not empty.
func (e *encoder) push(start, end int, match bool) {
	if start < end {
		e.cuts = append(e.cuts, cut{start, end, match})
	}
}

// preTokenizer cuts a text into words and gives each to e.piece(next, ...). first is whether the text begins with this
// piece.
type preTokenizer func(e *encoder, next int, text string, first bool)

// gpt2Words is how a ByteLevel pre-tokenizer cuts unless told not to.
const gpt2Words = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

type preTokenizerSpec struct {
	Type             string
	PreTokenizers    []json.RawMessage
	Pattern          pattern
	Behavior         string
	Invert           bool
	AddPrefixSpace   *bool `json:"add_prefix_space"`
	UseRegex         *bool `json:"use_regex"`
	IndividualDigits bool  `json:"individual_digits"`
	Replacement      string
	PrependScheme    string `json:"prepend_scheme"`
	Split            *bool
}

// compilePreTokenizers also says whether words are bytes, which a ByteLevel part makes them. Parts after it see each byte
// as the printable character that stands for it.
func compilePreTokenizers(v json.RawMessage) (steps []preTokenizer, byteLevel bool, err error) {
	specs, err := readPreTokenizers(v, 0)
	if err != nil {
		return nil, false, err
	}
	written := false
	for i, spec := range specs {
		if byteLevel && !slices.Contains([]string{"Split", "Digits", "Punctuation"}, spec.Type) {
			return nil, false, fmt.Errorf("%s: after ByteLevel it is not supported", spec.Type)
		}
		step, err := spec.compile()
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", spec.Type, err)
		}
		if step != nil {
			steps = append(steps, step)
		}
		if spec.Type != "ByteLevel" {
			continue
		}
		byteLevel = true
		if i < len(specs)-1 {
			steps, written = append(steps, writeBytes), true
		}
	}
	if written {
		steps = append(steps, readBytes)
	}
	return steps, byteLevel, nil
}

// writeBytes turns bytes into the printable characters that stand for them.
func writeBytes(e *encoder, next int, text string, first bool) {
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(byteRune[text[i]])
	}
	e.piece(next, b.String(), first)
}

// readBytes is the inverse of writeBytes, on any part of what that wrote.
func readBytes(e *encoder, next int, text string, first bool) {
	b := make([]byte, 0, len(text))
	for _, r := range text {
		b = append(b, byte(runeByte[r]))
	}
	e.piece(next, string(b), first)
}

func readPreTokenizers(v json.RawMessage, depth int) ([]preTokenizerSpec, error) {
	if isNull(v) {
		return nil, nil
	}
	var spec preTokenizerSpec
	if err := json.Unmarshal(v, &spec); err != nil {
		return nil, err
	}
	if spec.Type == "Sequence" {
		return flatten(spec.PreTokenizers, depth, readPreTokenizers)
	}
	return []preTokenizerSpec{spec}, nil
}

func (spec preTokenizerSpec) compile() (preTokenizer, error) {
	switch spec.Type {
	case "Split":
		find, err := spec.Pattern.compile()
		if err != nil {
			return nil, err
		}
		join, ok := behaviors[spec.Behavior]
		if !ok {
			return nil, fmt.Errorf("behavior %q is not supported", spec.Behavior)
		}
		return splitter(find.find, spec.Invert, join), nil
	case "ByteLevel":
		return spec.byteLevel()
	case "Digits":
		join := behaviors["Contiguous"]
		if spec.IndividualDigits {
			join = behaviors["Isolated"]
		}
		return splitter(findRunes(unicode.IsNumber), false, join), nil
	case "Punctuation":
		join, ok := behaviors[spec.Behavior]
		if spec.Behavior == "" {
			join, ok = behaviors["Isolated"], true
		}
		if !ok {
			return nil, fmt.Errorf("behavior %q is not supported", spec.Behavior)
		}
		return splitter(findRunes(isPunctuation), false, join), nil
	case "Metaspace":
		return spec.metaspace()
	}
	return nil, errors.New("this type is not supported")
}

// splitter cuts by the matches that find pushes.
func splitter(find func(*encoder, string), invert bool, join func([]cut) []cut) preTokenizer {
	return func(e *encoder, next int, text string, first bool) {
		base := len(e.cuts)
		find(e, text)
		if invert {
			for i := range e.cuts[base:] {
				e.cuts[base+i].match = !e.cuts[base+i].match
			}
		}
		if join != nil {
			e.cuts = e.cuts[:base+len(join(e.cuts[base:]))]
		}
		for i := base; i < len(e.cuts); i++ {
			c := e.cuts[i]
			e.piece(next, text[c.start:c.end], first && c.start == 0)
		}
		e.cuts = e.cuts[:base]
	}
}

// behaviors say what becomes of the matches. Each works in place; nil keeps every part by itself.
var behaviors = map[string]func([]cut) []cut{
	"Isolated": nil,
	"Removed": func(cuts []cut) []cut {
		kept := cuts[:0]
		for _, c := range cuts {
			if !c.match {
				kept = append(kept, c)
			}
		}
		return kept
	},
	"Contiguous": func(cuts []cut) []cut {
		return joinCuts(cuts, func(before, c cut) bool { return before.match == c.match })
	},
	// A match belongs to what stands before it, unless that is a match too.
	"MergedWithPrevious": func(cuts []cut) []cut {
		return joinCuts(cuts, func(before, c cut) bool { return c.match && !before.match })
	},
	// A match belongs to what stands after it, unless that is a match too.
	"MergedWithNext": func(cuts []cut) []cut {
		return joinCuts(cuts, func(before, c cut) bool { return before.match && !c.match })
	},
}

// joinCuts joins each part to the part right before it where the rule says so.
func joinCuts(cuts []cut, joins func(before, c cut) bool) []cut {
	kept := cuts[:0]
	var before cut
	for i, c := range cuts {
		if i > 0 && joins(before, c) {
			kept[len(kept)-1].end = c.end
		} else {
			kept = append(kept, c)
		}
		before = c
	}
	return kept
}

// findRunes matches single characters.
func findRunes(is func(rune) bool) func(*encoder, string) {
	return func(e *encoder, text string) {
		done := 0
		for i, r := range text {
			if is(r) {
				e.push(done, i, false)
				done = i + utf8.RuneLen(r)
				e.push(i, done, true)
			}
		}
		e.push(done, len(text), false)
	}
}

func isPunctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && r != 0x7F && !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
	}
	return unicode.IsPunct(r)
}

// byteLevel cuts words as GPT-2 does unless another part did; that words are bytes is the model's business.
func (spec preTokenizerSpec) byteLevel() (preTokenizer, error) {
	prefix := spec.AddPrefixSpace == nil || *spec.AddPrefixSpace
	var cut preTokenizer
	if spec.UseRegex == nil || *spec.UseRegex {
		words, err := compileExpression(gpt2Words)
		if err != nil {
			return nil, err
		}
		cut = splitter(words.find, false, nil)
	}
	if !prefix {
		return cut, nil
	}
	return func(e *encoder, next int, text string, first bool) {
		if !strings.HasPrefix(text, " ") {
			text = " " + text
		}
		if cut == nil {
			e.piece(next, text, first)
			return
		}
		cut(e, next, text, first)
	}, nil
}

// metaspace writes blanks as a visible character, puts one in front, and cuts before each.
func (spec preTokenizerSpec) metaspace() (preTokenizer, error) {
	mark := spec.Replacement
	if utf8.RuneCountInString(mark) != 1 {
		return nil, fmt.Errorf("replacement %q is not one character", mark)
	}
	scheme, err := prependScheme(spec.PrependScheme, spec.AddPrefixSpace)
	if err != nil {
		return nil, err
	}
	find := pieceFinder{plain: mark}
	cut := splitter(find.find, false, behaviors["MergedWithNext"])
	whole := spec.Split != nil && !*spec.Split
	return func(e *encoder, next int, text string, first bool) {
		text = strings.ReplaceAll(text, " ", mark)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(text, mark) {
			text = mark + text
		}
		if whole {
			e.piece(next, text, first)
			return
		}
		cut(e, next, text, first)
	}, nil
}

// prependScheme also reads the older add_prefix_space.
func prependScheme(scheme string, addPrefixSpace *bool) (string, error) {
	switch scheme {
	case "always", "first", "never":
		return scheme, nil
	case "":
		if addPrefixSpace != nil && !*addPrefixSpace {
			return "never", nil
		}
		return "always", nil
	}
	return "", fmt.Errorf("prepend_scheme %q is not supported", scheme)
}
