package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// tokenizerFile is tokenizer.json with its two large members unparsed: a file of 33 MB has 260,000 tokens and 515,000
// merges, which encoding/json would take seconds for.
type tokenizerFile struct {
	Added         []addedToken
	Normalizer    json.RawMessage
	PreTokenizer  json.RawMessage
	PostProcessor json.RawMessage
	Decoder       json.RawMessage
	Model         map[string]json.RawMessage
}

func isNull(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// scanTokenizer finds the members of the file.
func scanTokenizer(b []byte) (*tokenizerFile, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not valid UTF-8")
	}
	members, err := scanObject(b)
	if err != nil {
		return nil, err
	}
	file := &tokenizerFile{
		Normalizer:    members["normalizer"],
		PreTokenizer:  members["pre_tokenizer"],
		PostProcessor: members["post_processor"],
		Decoder:       members["decoder"],
	}
	if v := members["added_tokens"]; !isNull(v) {
		if err := json.Unmarshal(v, &file.Added); err != nil {
			return nil, fmt.Errorf("added_tokens: %w", err)
		}
	}
	if isNull(members["model"]) {
		return nil, errors.New("it has no model")
	}
	if file.Model, err = scanObject(members["model"]); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return file, nil
}

// scanObject returns the members of a JSON object as they are written.
func scanObject(b []byte) (map[string]json.RawMessage, error) {
	s := &scanner{b: b}
	members := make(map[string]json.RawMessage)
	err := s.object(func(key []byte) error {
		name, start := string(key), s.i // the key's memory is used again for strings of the value
		if err := s.skip(0); err != nil {
			return err
		}
		members[name] = b[start:s.i]
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.space(); s.i != len(b) {
		return nil, s.errorf("text after the end")
	}
	return members, nil
}

// scanner reads JSON text front to back. It is strict where a mistake could be misread and lax about numbers, which
// the caller parses.
type scanner struct {
	b   []byte
	i   int
	buf []byte // holds a string with escapes, until the next one
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", s.i, fmt.Sprintf(format, args...))
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\r' || s.b[s.i] == '\t') {
		s.i++
	}
}

// take skips white space and the byte c if it comes next.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// object calls member for each key with the scanner before its value; member must consume the value.
func (s *scanner) object(member func(key []byte) error) error {
	if !s.take('{') {
		return s.errorf("want an object")
	}
	if s.take('}') {
		return nil
	}
	for {
		s.space()
		key, err := s.string()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.errorf("want a colon")
		}
		s.space()
		if err := member(key); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take('}') {
			return nil
		}
		return s.errorf("want a comma or the end of the object")
	}
}

// array calls element with the scanner before each element.
func (s *scanner) array(element func() error) error {
	if !s.take('[') {
		return s.errorf("want a list")
	}
	if s.take(']') {
		return nil
	}
	for {
		s.space()
		if err := element(); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take(']') {
			return nil
		}
		return s.errorf("want a comma or the end of the list")
	}
}

// string reads a string; the result is valid until the next call.
func (s *scanner) string() ([]byte, error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.errorf("want a string")
	}
	s.i++
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			v := s.b[start:s.i]
			s.i++
			return v, nil
		case c == '\\':
			return s.escapedString(start)
		case c < ' ':
			return nil, s.errorf("control character in a string")
		}
		s.i++
	}
	return nil, s.errorf("string without end")
}

func (s *scanner) escapedString(start int) ([]byte, error) {
	s.buf = append(s.buf[:0], s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			return s.buf, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.errorf("control character in a string")
		default:
			s.buf = append(s.buf, c)
		}
	}
	return nil, s.errorf("string without end")
}

// escape decodes what follows a backslash.
func (s *scanner) escape() error {
	if s.i >= len(s.b) {
		return s.errorf("string without end")
	}
	c := s.b[s.i]
	s.i++
	if at := bytes.IndexByte([]byte(`"\/bfnrt`), c); at >= 0 {
		s.buf = append(s.buf, "\"\\/\b\f\n\r\t"[at])
		return nil
	}
	if c != 'u' {
		return s.errorf("unknown escape %q", c)
	}
	r, err := s.hex4()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		if s.i+2 > len(s.b) || s.b[s.i] != '\\' || s.b[s.i+1] != 'u' {
			return s.errorf("half of a surrogate pair")
		}
		s.i += 2
		low, err := s.hex4()
		if err != nil {
			return err
		}
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return s.errorf("half of a surrogate pair")
		}
	}
	s.buf = utf8.AppendRune(s.buf, r)
	return nil
}

func (s *scanner) hex4() (rune, error) {
	if s.i+4 > len(s.b) {
		return 0, s.errorf("short escape")
	}
	v, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 16)
	if err != nil {
		return 0, s.errorf("escape is not hexadecimal")
	}
	s.i += 4
	return rune(v), nil
}

// id reads a token id.
func (s *scanner) id() (int, error) {
	start, n := s.i, 0
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' && s.i-start < 9 {
		n = n*10 + int(s.b[s.i]-'0')
		s.i++
	}
	if s.i == start || n >= maxVocab || s.b[start] == '0' && s.i > start+1 {
		return 0, s.errorf("want a token id from 0 to %d", maxVocab-1)
	}
	return n, nil
}

// skip passes over a value of any kind.
func (s *scanner) skip(depth int) error {
	const deepest = 64
	if depth > deepest {
		return s.errorf("nested deeper than %d", deepest)
	}
	if s.i >= len(s.b) {
		return s.errorf("unexpected end")
	}
	switch s.b[s.i] {
	case '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case '"':
		_, err := s.string()
		return err
	}
	start, plain := s.i, s.b[s.i] != '0' // whether it is all digits
	for s.i < len(s.b) && !isDelimiter(s.b[s.i]) {
		plain = plain && s.b[s.i] >= '0' && s.b[s.i] <= '9'
		s.i++
	}
	if !plain && !json.Valid(s.b[start:s.i]) || s.i == start {
		s.i = start
		return s.errorf("want a value")
	}
	return nil
}

// isDelimiter says whether a number or a word ends before c.
func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', '[', ']', '{', '}', '"', ' ', '\n', '\r', '\t':
		return true
	}
	return false
}
