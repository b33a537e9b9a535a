package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
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
}

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
		rank++
		return nil
	})
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
	} else {
		s.symbols = m.charSymbols(s.symbols[:0], word)
	}
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

// smallWord is the number of symbols up to which looking at every pair is faster than a heap.
const smallWord = 24

// noMerge is the value of a pair without a merge; it is above all others.
const noMerge = ^uint64(0)

// mergeScratch is the memory for merging one word.
type mergeScratch struct {
	text       []byte
	symbols    []int32
	value      []uint64 // of the pair that starts at a position: rank and merged symbol
	prev, next []int32
	heap       []uint64 // rank and position
}

// mergeSmall scans all pairs for each merge.
func (m *bpe) mergeSmall(out []int32, s *mergeScratch) []int32 {
	sym := s.symbols
	var value [smallWord]uint64
	for i := range len(sym) - 1 {
		value[i] = m.pairs.get(sym[i], sym[i+1])
	}
	for len(sym) > 1 {
		best, at := noMerge, 0
		for i, v := range value[:len(sym)-1] {
			if v < best {
				best, at = v, i
			}
		}
		if best == noMerge {
			break
		}
		sym[at] = int32(uint32(best))
		copy(sym[at+1:], sym[at+2:])
		copy(value[at:len(sym)-1], value[at+1:len(sym)-1])
		sym = sym[:len(sym)-1]
		if at > 0 {
			value[at-1] = m.pairs.get(sym[at-1], sym[at])
		}
		if at+1 < len(sym) {
			value[at] = m.pairs.get(sym[at], sym[at+1])
		}
	}
	return append(out, sym...)
}

// mergeLarge keeps the pairs in a heap and the symbols in a linked list, so that time is n log n.
func (m *bpe) mergeLarge(out []int32, s *mergeScratch) []int32 {
	sym := s.symbols
	n := len(sym)
	s.grow(n)
	for i := range n {
		s.prev[i], s.next[i] = int32(i-1), int32(i+1)
		s.value[i] = noMerge
		if i+1 < n {
			s.value[i] = m.pairs.get(sym[i], sym[i+1])
		}
		s.push(i)
	}
	for len(s.heap) > 0 {
		top := s.pop()
		at := int32(uint32(top))
		if s.value[at]>>32 != top>>32 {
			continue // the pair has changed since
		}
		sym[at] = int32(uint32(s.value[at]))
		gone := s.next[at]
		after := s.next[gone]
		s.next[at], s.value[at], s.value[gone] = after, noMerge, noMerge
		if int(after) < n {
			s.prev[after] = at
			s.value[at] = m.pairs.get(sym[at], sym[after])
			s.push(int(at))
		}
		if before := s.prev[at]; before >= 0 {
			s.value[before] = m.pairs.get(sym[before], sym[at])
			s.push(int(before))
		}
	}
	for i := 0; i < n; i = int(s.next[i]) {
		out = append(out, sym[i])
	}
	return out
}

func (s *mergeScratch) grow(n int) {
	s.heap = s.heap[:0]
	if cap(s.value) < n {
		s.value, s.prev, s.next = make([]uint64, n), make([]int32, n), make([]int32, n)
	}
	s.value, s.prev, s.next = s.value[:n], s.prev[:n], s.next[:n]
}

// push adds the pair at a position to the heap, if it has a merge.
func (s *mergeScratch) push(at int) {
	if s.value[at] == noMerge {
		return
	}
	key := s.value[at]&^0xFFFFFFFF | uint64(at)
	s.heap = append(s.heap, key)
	i := len(s.heap) - 1
	for i > 0 {
		up := (i - 1) / 4
		if s.heap[up] <= key {
			break
		}
		s.heap[i] = s.heap[up]
		i = up
	}
	s.heap[i] = key
}

func (s *mergeScratch) pop() uint64 {
	top := s.heap[0]
	last := len(s.heap) - 1
	key := s.heap[last]
	s.heap = s.heap[:last]
	i := 0
	for {
		first := 4*i + 1
		if first >= last {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, last); c++ {
			if s.heap[c] < s.heap[least] {
				least = c
			}
		}
		if s.heap[least] >= key {
			break
		}
		s.heap[i] = s.heap[least]
		i = least
	}
	if last > 0 {
		s.heap[i] = key
	}
	return top
}

// pairTable maps a pair of symbols to the rank of its merge and the symbol it gives, by open addressing.
type pairTable struct {
	slots []pairSlot
	used  int
	shift int
}

type pairSlot struct {
	key   uint64 // the two symbols, plus one so that zero is an empty slot
	value uint64 // rank<<32 | merged symbol
}

func (t *pairTable) reserve(n int) {
	size := bits.Len(uint(2*n + 15))
	t.slots, t.shift, t.used = make([]pairSlot, 1<<size), 64-size, 0
}

func (t *pairTable) slot(key uint64) *pairSlot {
	for i := key * 0x9E3779B97F4A7C15 >> t.shift; ; i = (i + 1) & uint64(len(t.slots)-1) {
		if s := &t.slots[i]; s.key == key || s.key == 0 {
			return s
		}
	}
}

func (t *pairTable) set(a, b int32, rank uint32, merged int32) {
	if 2*t.used >= len(t.slots) {
		old := t.slots
		t.reserve(len(old))
		for _, s := range old {
			if s.key != 0 {
				*t.slot(s.key) = s
				t.used++
			}
		}
	}
	s := t.slot(uint64(a)<<32 | uint64(b) + 1)
	if s.key == 0 {
		t.used++
	}
	s.key, s.value = uint64(a)<<32|uint64(b)+1, uint64(rank)<<32|uint64(merged)
}

// get returns the pair's value, or noMerge.
func (t *pairTable) get(a, b int32) uint64 {
	if len(t.slots) == 0 {
		return noMerge
	}
	if s := t.slot(uint64(a)<<32 | uint64(b) + 1); s.key != 0 {
		return s.value
	}
	return noMerge
}
