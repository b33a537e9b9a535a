package inspect

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Tokenizer turns text into token ids and back, as the Hugging Face tokenizers library does for the same
// tokenizer.json. It is safe for concurrent use.
//
// Encoding a text goes through five steps: added tokens are cut out of the raw text; what lies between is normalised;
// added tokens marked as normalised are cut out of that; the rest is cut into words (pre-tokenised); each word is
// merged pair by pair (BPE).
type Tokenizer struct {
	model     *bpe
	added     map[int]addedToken
	addedIDs  map[string]int
	raw       matcher // added tokens found in the text as given
	normal    matcher // added tokens found in normalised text
	normalize []normalizer
	pre       []preTokenizer
	template  []templateItem // nil: no special tokens are added
	decoders  []decoderSpec  // nil: tokens are joined with blanks
	joinBlank bool
	size      int
	hash      [32]byte
	encoders  sync.Pool // of *encoder
}

// addedToken is an entry of added_tokens in tokenizer.json, or of added_tokens_decoder in tokenizer_config.json.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// LoadTokenizer reads tokenizer.json and lays the added_tokens_decoder of tokenizer_config.json (may be nil) over its
// added tokens. A part that is not supported (Unigram, WordPiece, ...) is an error naming it.
func LoadTokenizer(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	file, err := scanTokenizer(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("reading tokenizer.json: %w", err)
	}
	t := &Tokenizer{}
	if err := t.load(file); err != nil {
		return nil, fmt.Errorf("reading tokenizer.json: %w", err)
	}
	extra, err := addedTokensDecoder(tokenizerConfigJSON)
	if err != nil {
		return nil, fmt.Errorf("reading tokenizer_config.json: %w", err)
	}
	if err := t.loadAdded(file.Added, extra); err != nil {
		return nil, fmt.Errorf("reading added tokens: %w", err)
	}
	t.encoders.New = func() any { return new(encoder) }
	t.hash = hashTokenizer(tokenizerJSON, extra)
	return t, nil
}

// load compiles every part but the added tokens.
func (t *Tokenizer) load(file *tokenizerFile) error {
	var err error
	if t.normalize, err = compileNormalizer(file.Normalizer, 0); err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	var byteLevel bool
	if t.pre, byteLevel, err = compilePreTokenizers(file.PreTokenizer); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.model, err = newBPE(file, byteLevel); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	if t.template, err = compilePostProcessor(file.PostProcessor, 0); err != nil {
		return fmt.Errorf("post_processor: %w", err)
	}
	if t.decoders, err = compileDecoder(file.Decoder, 0); err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	t.joinBlank = isNull(file.Decoder)
	return nil
}

// loadAdded builds the two matchers. A token whose text is in the vocabulary has the vocabulary's id.
func (t *Tokenizer) loadAdded(lists ...[]addedToken) error {
	t.size = len(t.model.tokens)
	t.added, t.addedIDs = make(map[int]addedToken), make(map[string]int)
	for _, list := range lists {
		for _, a := range list {
			if a.Content == "" {
				continue
			}
			if id, ok := t.model.ids[a.Content]; ok {
				a.ID = int(id)
			}
			if a.ID < 0 || a.ID >= maxVocab {
				return fmt.Errorf("token %q: id %d is outside 0 to %d", a.Content, a.ID, maxVocab-1)
			}
			if old, ok := t.addedIDs[a.Content]; ok && old != a.ID {
				return fmt.Errorf("token %q has the ids %d and %d", a.Content, old, a.ID)
			}
			if other := t.Token(a.ID); other != "" && other != a.Content {
				return fmt.Errorf("id %d is both %q and %q", a.ID, other, a.Content)
			}
			t.added[a.ID], t.addedIDs[a.Content] = a, a.ID
			t.size = max(t.size, a.ID+1)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.added)) {
		a := t.added[id]
		if a.Normalized {
			t.normal.add(t.normalizeText(a.Content), a)
		} else {
			t.raw.add(a.Content, a)
		}
	}
	return nil
}

// addedTokensDecoder reads the added tokens of tokenizer_config.json; some files keep tokens only there.
func addedTokensDecoder(config []byte) ([]addedToken, error) {
	if len(config) == 0 {
		return nil, nil
	}
	var c struct {
		Added map[int]addedToken `json:"added_tokens_decoder"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, err
	}
	list := make([]addedToken, 0, len(c.Added))
	for id := range c.Added {
		a := c.Added[id]
		a.ID = id
		list = append(list, a)
	}
	sortAdded(list)
	return list, nil
}

func hashTokenizer(tokenizerJSON []byte, extra []addedToken) [32]byte {
	h := sha256.New()
	inner := sha256.Sum256(tokenizerJSON)
	h.Write(inner[:])
	for _, a := range extra {
		fmt.Fprintf(h, "%d %q %t %t %t %t %t\n", a.ID, a.Content, a.SingleWord, a.LStrip, a.RStrip, a.Normalized, a.Special)
	}
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}

// Hash identifies the tokenizer: the bytes of tokenizer.json and the tokens laid over it.
func (t *Tokenizer) Hash() [32]byte { return t.hash }

// VocabSize is one more than the largest id, added tokens included.
func (t *Tokenizer) VocabSize() int { return t.size }

// IDOf returns the id of a token by its text as the files write it.
func (t *Tokenizer) IDOf(token string) (int, bool) {
	if id, ok := t.addedIDs[token]; ok {
		return id, true
	}
	id, ok := t.model.ids[token]
	return int(id), ok
}

// Token returns a token's text as the files write it, or "" when there is no such id.
func (t *Tokenizer) Token(id int) string {
	if a, ok := t.added[id]; ok {
		return a.Content
	}
	if id < 0 || id >= len(t.model.tokens) {
		return ""
	}
	return t.model.tokens[id]
}

// IsSpecial says whether an id is a special token, which Decode leaves out when asked to.
func (t *Tokenizer) IsSpecial(id int) bool { return t.added[id].Special }

// Encode returns the ids of a text; with addSpecial also those that the tokenizer puts round every text (<s>, <bos>).
// Special tokens written in the text are recognised in either case. Invalid UTF-8 counts as U+FFFD, one for each
// maximal part of a character.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int {
	e := t.encoders.Get().(*encoder)
	defer t.encoders.Put(e)
	e.t, e.out = t, e.out[:0]
	e.text(repairUTF8(text))

	if !addSpecial || t.template == nil {
		return toInts(nil, e.out)
	}
	var ids []int
	for _, item := range t.template {
		if item.text {
			ids = toInts(ids, e.out)
		} else {
			ids = append(ids, item.ids...)
		}
	}
	return ids
}

func toInts(dst []int, src []int32) []int {
	if dst == nil {
		dst = make([]int, 0, len(src)+1)
	}
	for _, id := range src {
		dst = append(dst, int(id))
	}
	return dst
}

// encoder is the scratch memory of one call of Encode.
type encoder struct {
	t     *Tokenizer
	out   []int32
	runes []rune
	cuts  []cut // a stack: each pre-tokenizer pushes the pieces of its text and pops them when they are done
	merge mergeScratch
}

// text cuts out the added tokens of the raw text.
func (e *encoder) text(text string) {
	e.t.raw.split(text, func(piece string, start int, id int32) {
		if id >= 0 {
			e.out = append(e.out, id)
			return
		}
		e.normal(e.t.normalizeText(piece), start == 0)
	})
}

// normal cuts out the added tokens of normalised text; first is whether the text starts with this piece.
func (e *encoder) normal(text string, first bool) {
	e.t.normal.split(text, func(piece string, start int, id int32) {
		if id >= 0 {
			e.out = append(e.out, id)
			return
		}
		e.piece(0, piece, first && start == 0)
	})
}

// piece gives text to the pre-tokenizers from the given one on, then to the model.
func (e *encoder) piece(from int, text string, first bool) {
	if text == "" {
		return
	}
	if from == len(e.t.pre) {
		e.out = e.t.model.encode(e.out, text, &e.merge)
		return
	}
	e.t.pre[from](e, from+1, text, first)
}
