package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is the byte-pair-encoding model: a word becomes symbols, and neighbours are merged, the pair of the lowest rank
// first and the leftmost among equals, until no pair is left that has a merge.
type bpe struct {
	tokens []string // by id, as the file writes them; "" where an id is not used
	ids    map[string]int32
	pairs  pairTable

	// byteLevel: words are bytes, and the file writes each byte as a printable character.
	byteLevel bool
	// bytes is the symbol of each byte when byteLevel, else of "<0x..>"; -1 where there is none.
	bytes        [256]int32
	ascii        [utf8.RuneSelf]int32 // symbols of single characters; -1 where there is none
	byteFallback bool                 // a character that is not in the vocabulary becomes its bytes
	unk          int32                // symbol of what is not in the vocabulary, -1: it is left out
	fuseUnk      bool                 // one unk for a run of them
	ignoreMerges bool                 // a word that is in the vocabulary is not merged up to
	joins        map[rune]bool        // characters before a wordMark within a token that a merge gives
}

// wordMark stands for a blank in vocabularies whose words are characters.
const wordMark = "\u2581"

func newBPE(file *tokenizerFile, byteLevel bool) (*bpe, error) {
	var opt struct {
		Type         string
		Dropout      *float64
		Unk          *string
		Prefix       string
		Suffix       string
		FuseUnk      bool
		ByteFallback bool
		IgnoreMerges bool
	}
	for name, dst := range map[string]any{
		"type": &opt.Type, "dropout": &opt.Dropout, "unk_token": &opt.Unk,
		"continuing_subword_prefix": &opt.Prefix, "end_of_word_suffix": &opt.Suffix,
		"fuse_unk": &opt.FuseUnk, "byte_fallback": &opt.ByteFallback, "ignore_merges": &opt.IgnoreMerges,
	} {
		if v := file.Model[name]; v != nil {
			if err := json.Unmarshal(v, dst); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	switch {
	case opt.Type != "BPE" && (opt.Type != "" || file.Model["merges"] == nil):
		return nil, fmt.Errorf("type %q is not supported, only BPE", opt.Type)
	case opt.Dropout != nil && *opt.Dropout != 0:
		return nil, errors.New("dropout is not supported: it makes the ids random")
	case opt.Prefix != "":
		return nil, errors.New("continuing_subword_prefix is not supported")
	case opt.Suffix != "":
		return nil, errors.New("end_of_word_suffix is not supported")
	}
	m := &bpe{
		byteLevel: byteLevel, byteFallback: opt.ByteFallback,
		unk: -1, fuseUnk: opt.FuseUnk, ignoreMerges: opt.IgnoreMerges,
	}
	if err := m.readVocab(file.Model["vocab"]); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	if err := m.readMerges(file.Model["merges"]); err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	if opt.Unk != nil {
		id, ok := m.ids[*opt.Unk]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", *opt.Unk)
		}
		m.unk = id
	}
	m.fillSymbols()
	return m, nil
}

// readVocab reads {"token": id, ...}. All token texts share one string.
func (m *bpe) readVocab(v []byte) error {
	s := &scanner{b: v}
	var arena []byte
	type entry struct{ start, end, id int }
	var entries []entry
	top := -1
	err := s.object(func(key []byte) error {
		start := len(arena)
		arena = append(arena, key...)
		id, err := s.id()
		if err != nil {
			return err
		}
		entries = append(entries, entry{start, len(arena), id})
		top = max(top, id)
		return nil
	})
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return errors.New("it is empty")
	}
	if top > 16*len(entries)+1024 {
		return fmt.Errorf("id %d among only %d tokens", top, len(entries))
	}
	text := string(arena)
	m.tokens = make([]string, top+1)
	m.ids = make(map[string]int32, len(entries))
	for _, e := range entries {
		token := text[e.start:e.end]
		if m.tokens[e.id] != "" && m.tokens[e.id] != token {
			return fmt.Errorf("id %d is both %q and %q", e.id, m.tokens[e.id], token)
		}
		m.tokens[e.id] = token
		m.ids[token] = int32(e.id)
	}
	return nil
}

// readMerges reads the ranked pairs in either form, "a b" or ["a", "b"].
func (m *bpe) readMerges(v []byte) error {
	if isNull(v) {
		return nil
	}
	s := &scanner{b: v}
	m.pairs.reserve(len(m.ids))
	m.joins = make(map[rune]bool)
	var joined []byte
	var rank uint32
	return s.array(func() error {
		pair, split, err := s.merge(joined[:0])
		joined = pair
		if err != nil {
			return err
		}
		a, okA := m.ids[string(pair[:split])]
		b, okB := m.ids[string(pair[split:])]
		ab, okAB := m.ids[string(pair)]
		if !okA || !okB || !okAB {
			return fmt.Errorf("merge %d: %q, %q or both together are not in the vocabulary", rank, pair[:split], pair[split:])
		}
		m.pairs.set(a, b, rank, ab)
		m.noteJoins(pair)
		rank++
		return nil
	})
}

// noteJoins records what stands before word marks within a token.
func (m *bpe) noteJoins(token []byte) {
	if m.byteLevel {
		return
	}
	for i := 1; i < len(token); {
		at := bytes.Index(token[i:], []byte(wordMark))
		if at < 0 {
			return
		}
		before, _ := utf8.DecodeLastRune(token[:i+at])
		m.joins[before] = true
		i += at + len(wordMark)
	}
}

// merge reads one merge, appends both halves to dst and returns where the second begins.
func (s *scanner) merge(dst []byte) (pair []byte, split int, err error) {
	if s.i < len(s.b) && s.b[s.i] == '"' {
		text, err := s.string()
		if err != nil {
			return dst, 0, err
		}
		blanks := 0
		for i, c := range text {
			if c == ' ' {
				blanks++
				split = i
			}
		}
		if blanks != 1 {
			return dst, 0, s.errorf("merge %q is not two tokens and a blank", text)
		}
		dst = append(dst, text[:split]...)
		return append(dst, text[split+1:]...), split, nil
	}
	n := 0
	err = s.array(func() error {
		text, err := s.string()
		dst = append(dst, text...)
		if n == 0 {
			split = len(dst)
		}
		n++
		return err
	})
	if err == nil && n != 2 {
		err = s.errorf("merge of %d tokens", n)
	}
	return dst, split, err
}

// fillSymbols looks up the symbols that words start from.
func (m *bpe) fillSymbols() {
	find := func(token string) int32 {
		if id, ok := m.ids[token]; ok {
			return id
		}
		return -1
	}
	for b := range m.bytes {
		if m.byteLevel {
			m.bytes[b] = find(string(byteRune[b]))
		} else {
			m.bytes[b] = find(fmt.Sprintf("<0x%02X>", b))
		}
	}
	for c := range m.ascii {
		m.ascii[c] = find(string(rune(c)))
	}
}

// encode appends the ids of a word.
func (m *bpe) encode(out []int32, word string, s *mergeScratch) []int32 {
	if m.ignoreMerges {
		s.text = s.text[:0]
		if m.byteLevel {
			for i := range len(word) {
				s.text = utf8.AppendRune(s.text, byteRune[word[i]])
			}
		} else {
			s.text = append(s.text, word...)
		}
		if id, ok := m.ids[string(s.text)]; ok {
			return append(out, id)
		}
	}
	if m.byteLevel {
		s.symbols = m.byteSymbols(s.symbols[:0], word)
		return m.mergeSymbols(out, s)
	}
	for word != "" {
		n := m.wordEnd(word)
		s.symbols = m.charSymbols(s.symbols[:0], word[:n])
		out = m.mergeSymbols(out, s)
		word = word[n:]
	}
	return out
}

// wordEnd returns where a text may be cut without changing its ids: before a wordMark, if no token that a merge gives
// has the mark after the character before it. Then no merge crosses the cut. A character that is not in the vocabulary
// becomes other tokens, so nothing is known of it.
func (m *bpe) wordEnd(text string) int {
	for i := 0; ; {
		at := strings.Index(text[i:], wordMark)
		if at < 0 {
			return len(text)
		}
		i += at
		if i > 0 {
			before, size := utf8.DecodeLastRuneInString(text[:i])
			if _, known := m.ids[text[i-size:i]]; known && !m.joins[before] {
				return i
			}
		}
		i += len(wordMark)
	}
}

func (m *bpe) mergeSymbols(out []int32, s *mergeScratch) []int32 {
	if len(s.symbols) <= smallWord {
		return m.mergeSmall(out, s)
	}
	return m.mergeLarge(out, s)
}

func (m *bpe) byteSymbols(dst []int32, word string) []int32 {
	unknown := false
	for i := range len(word) {
		id := m.bytes[word[i]]
		if id < 0 {
			if m.unk < 0 || unknown && m.fuseUnk {
				continue
			}
			id, unknown = m.unk, true
		} else {
			unknown = false
		}
		dst = append(dst, id)
	}
	return dst
}

func (m *bpe) charSymbols(dst []int32, word string) []int32 {
	unknown := false
	for i := 0; i < len(word); {
		size, id := 1, int32(-1)
		if c := word[i]; c < utf8.RuneSelf {
			id = m.ascii[c]
		} else {
			_, size = utf8.DecodeRuneInString(word[i:])
			if found, ok := m.ids[word[i:i+size]]; ok {
				id = found
			}
		}
		char := word[i : i+size]
		i += size
		switch {
		case id >= 0:
			dst, unknown = append(dst, id), false
		case m.byteFallback && m.hasBytes(char):
			for j := range len(char) {
				dst = append(dst, m.bytes[char[j]])
			}
		case m.unk >= 0 && !(unknown && m.fuseUnk):
			dst, unknown = append(dst, m.unk), true
		}
	}
	return dst
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.bytes[char[i]] < 0 {
			return false
		}
	}
	return true
}
