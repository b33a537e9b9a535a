package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeStep turns the texts of tokens into text. It may hold back what the next token can change.
type decodeStep interface {
	token(text string, emit func(string))
	flush(emit func(string))
}

// decoderSpec makes a fresh step, as most keep state.
type decoderSpec func() decodeStep

func compileDecoder(v json.RawMessage, depth int) ([]decoderSpec, error) {
	if isNull(v) {
		return nil, nil
	}
	parts, err := readDecoders(v, depth)
	if err != nil {
		return nil, err
	}
	fused := false // whether what comes is one text rather than token by token
	var steps []decoderSpec
	for _, p := range parts {
		step, err := p.compile(fused)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Type, err)
		}
		if p.Type == "Fuse" || p.Type == "ByteLevel" {
			fused = true
		}
		if step != nil {
			steps = append(steps, step)
		}
	}
	return steps, nil
}

type decoderPart struct {
	Type           string
	Decoders       []json.RawMessage
	Pattern        pattern
	Content        string
	Start, Stop    int
	Replacement    string
	PrependScheme  string `json:"prepend_scheme"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
}

func readDecoders(v json.RawMessage, depth int) ([]decoderPart, error) {
	var p decoderPart
	if err := json.Unmarshal(v, &p); err != nil {
		return nil, err
	}
	if p.Type == "Sequence" {
		return flatten(p.Decoders, depth, readDecoders)
	}
	return []decoderPart{p}, nil
}

func (p decoderPart) compile(fused bool) (decoderSpec, error) {
	switch p.Type {
	case "ByteLevel":
		return func() decodeStep { return new(byteLevelStep) }, nil
	case "ByteFallback":
		if fused {
			return nil, errors.New("after tokens are fused it is not supported")
		}
		return func() decodeStep { return new(byteFallbackStep) }, nil
	case "Fuse":
		return nil, nil
	case "Replace":
		find, err := p.Pattern.compile()
		if err != nil {
			return nil, err
		}
		if fused {
			return nil, errors.New("after tokens are fused it is not supported")
		}
		return func() decodeStep {
			return mapStep(func(s string) string { return find.replace(s, p.Content) })
		}, nil
	case "Strip":
		if utf8.RuneCountInString(p.Content) != 1 || p.Start < 0 || p.Stop < 0 {
			return nil, errors.New("want one character and counts that are not negative")
		}
		if !fused {
			return func() decodeStep { return mapStep(func(s string) string { return strip(s, p) }) }, nil
		}
		if p.Stop != 0 {
			return nil, errors.New("at the end of the whole text it is not supported")
		}
		return func() decodeStep { return &stripStartStep{char: p.Content, left: p.Start} }, nil
	case "Metaspace":
		scheme, err := prependScheme(p.PrependScheme, p.AddPrefixSpace)
		if err != nil {
			return nil, err
		}
		if p.Replacement == "" || fused {
			return nil, errors.New("without replacement or after tokens are fused it is not supported")
		}
		return func() decodeStep { return &metaspaceStep{mark: p.Replacement, drop: scheme != "never"} }, nil
	}
	return nil, errors.New("this type is not supported")
}

// mapStep changes each token by itself.
type mapStep func(string) string

func (f mapStep) token(text string, emit func(string)) { emit(f(text)) }
func (f mapStep) flush(func(string))                   {}

// strip cuts up to Start characters off the front of a token and up to Stop off its end.
func strip(s string, p decoderPart) string {
	for range p.Start {
		rest, ok := strings.CutPrefix(s, p.Content)
		if !ok {
			break
		}
		s = rest
	}
	for range p.Stop {
		rest, ok := strings.CutSuffix(s, p.Content)
		if !ok {
			break
		}
		s = rest
	}
	return s
}

// stripStartStep cuts up to left characters off the front of the whole text.
type stripStartStep struct {
	char string
	left int
}

func (s *stripStartStep) token(text string, emit func(string)) {
	for s.left > 0 && text != "" {
		rest, ok := strings.CutPrefix(text, s.char)
		if !ok {
			s.left = 0
			break
		}
		text, s.left = rest, s.left-1
	}
	emit(text)
}

func (s *stripStartStep) flush(func(string)) {}

// metaspaceStep turns marks into blanks and drops those of the first token that encoding put in front.
type metaspaceStep struct {
	mark string
	drop bool
}

func (s *metaspaceStep) token(text string, emit func(string)) {
	with := " "
	if s.drop {
		with, s.drop = "", false
	}
	emit(strings.ReplaceAll(text, s.mark, with))
}

func (s *metaspaceStep) flush(func(string)) {}

// byteLevelStep turns printable characters into the bytes they stand for, and bytes into text. A token with any other
// character stands for itself. The start of a character at the end is held back.
type byteLevelStep struct{ held []byte }

func (s *byteLevelStep) token(text string, emit func(string)) {
	was := len(s.held)
	for _, r := range text {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			s.held = append(s.held[:was], text...)
			break
		}
		s.held = append(s.held, byte(runeByte[r]))
	}
	whole := wholeChars(s.held)
	emit(repairUTF8(string(s.held[:whole])))
	s.held = append(s.held[:0], s.held[whole:]...)
}

func (s *byteLevelStep) flush(emit func(string)) {
	emit(repairUTF8(string(s.held)))
	s.held = s.held[:0]
}

// wholeChars returns the length of b without the start of a character at its end.
func wholeChars(b []byte) int {
	for n := 1; n <= 3 && n <= len(b); n++ {
		if partialLen(b[len(b)-n:]) == n {
			return len(b) - n
		}
	}
	return len(b)
}

// byteFallbackStep collects runs of "<0x..>" tokens. A run that is not UTF-8 becomes one U+FFFD for each byte, so a run
// is held back until it ends.
type byteFallbackStep struct{ held []byte }

func (s *byteFallbackStep) token(text string, emit func(string)) {
	if len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>' {
		if b, err := strconv.ParseUint(text[3:5], 16, 8); err == nil {
			s.held = append(s.held, byte(b))
			return
		}
	}
	s.flush(emit)
	emit(text)
}

func (s *byteFallbackStep) flush(emit func(string)) {
	switch {
	case len(s.held) == 0:
		return
	case utf8.Valid(s.held):
		emit(string(s.held))
	default:
		emit(strings.Repeat("\uFFFD", len(s.held)))
	}
	s.held = s.held[:0]
}

// Decode returns the text of ids, without special tokens if told to. Ids that do not exist are left out.
func (t *Tokenizer) Decode(ids []int, skipSpecial bool) string {
	var b strings.Builder
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		s.push(id, &b)
	}
	s.flush(&b)
	return b.String()
}

// Stream decodes ids as they come. The texts it returns, joined, are what Decode returns for all ids; each is valid
// UTF-8, and a character is returned only when it is complete.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool
	steps       []decodeStep
	started     bool
}

// NewStream starts a text.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{t: t, skipSpecial: skipSpecial}
	for _, spec := range t.decoders {
		s.steps = append(s.steps, spec())
	}
	return s
}

// Push takes the next id and returns the text that is now complete, which may be empty.
func (s *Stream) Push(id int) string {
	var b strings.Builder
	s.push(id, &b)
	return b.String()
}

// Flush ends the text and returns what was held back; a character that is not complete becomes U+FFFD. The stream may
// be used for another text afterwards.
func (s *Stream) Flush() string {
	var b strings.Builder
	s.flush(&b)
	*s = *s.t.NewStream(s.skipSpecial)
	return b.String()
}

func (s *Stream) push(id int, b *strings.Builder) {
	text := s.t.Token(id)
	if text == "" || s.skipSpecial && s.t.IsSpecial(id) {
		return
	}
	if s.t.joinBlank && s.started {
		b.WriteByte(' ')
	}
	s.started = true
	s.run(0, text, b)
}

// run gives a token's text to the steps from the given one on.
func (s *Stream) run(from int, text string, b *strings.Builder) {
	if from == len(s.steps) {
		b.WriteString(text)
		return
	}
	s.steps[from].token(text, func(out string) { s.run(from+1, out, b) })
}

func (s *Stream) flush(b *strings.Builder) {
	for i, step := range s.steps {
		step.flush(func(out string) { s.run(i+1, out, b) })
	}
}
