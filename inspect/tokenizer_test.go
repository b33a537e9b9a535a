package inspect

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

func loadTales(t testing.TB) *Tokenizer {
	t.Helper()
	return loadAny(t, "../testdata/tales-qwen2")
}

// TestTokenizerReference holds the tokenizer against the prompts and continuations that the float models were run on.
func TestTokenizerReference(t *testing.T) {
	folders, _ := filepath.Glob("../testdata/tales-*")
	if len(folders) < 3 {
		t.Fatalf("only %d folders", len(folders))
	}
	for _, dir := range folders {
		tok := loadAny(t, dir)
		var ref struct {
			Prompts []struct {
				Text       string
				IDs        []int
				Greedy     []int
				GreedyText string `json:"greedy_text"`
			}
		}
		if err := json.Unmarshal(readFile(t, filepath.Join(dir, "reference.json")), &ref); err != nil {
			t.Fatal(err)
		}
		if len(ref.Prompts) == 0 || ref.Prompts[0].GreedyText == "" {
			t.Fatalf("%s has no prompts", dir)
		}
		for _, p := range ref.Prompts {
			if got := tok.Encode(p.Text, true); !slices.Equal(got, p.IDs) {
				t.Errorf("%s: %q gives %v, want %v", dir, p.Text, got, p.IDs)
			}
			if got := tok.Decode(p.Greedy, false); got != p.GreedyText {
				t.Errorf("%s: %v gives %q, want %q", dir, p.Greedy, got, p.GreedyText)
			}
		}
	}
}

func TestTokenizerRoundTrip(t *testing.T) {
	tok := loadTales(t)
	if tok.VocabSize() != 3072 {
		t.Errorf("vocabulary of %d", tok.VocabSize())
	}
	texts := []string{string(readFile(t, "../testdata/heldout.txt")), "", " ", "\x00", "a\xff\xfeb", "\xe2\x82", "漢字 👨‍👩‍👧‍👦\r\n",
		"<|im_start|>user<|endoftext|>"}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := make([]byte, random.IntN(40))
		for i := range b {
			b[i] = byte(random.IntN(256) >> random.IntN(2))
		}
		texts = append(texts, string(b))
	}
	for _, text := range texts {
		checkRoundTrip(t, tok, text)
	}
}

// checkRoundTrip encodes and decodes a text, at once and as a stream.
func checkRoundTrip(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	ids := tok.Encode(text, false)
	want := repairUTF8(text)
	if got := tok.Decode(ids, false); got != want {
		t.Errorf("%.100q comes back as %.100q", text, got)
	}
	checkStream(t, tok, ids)
}

// checkStream decodes ids one by one: whole characters only, and the same text as at once.
func checkStream(t *testing.T, tok *Tokenizer, ids []int) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		want := tok.Decode(ids, skip)
		s := tok.NewStream(skip)
		for range 2 { // a stream may be used again
			var b strings.Builder
			for _, id := range ids {
				part := s.Push(id)
				if !utf8.ValidString(part) {
					t.Errorf("%v: part %q is not UTF-8", ids, part)
				}
				b.WriteString(part)
			}
			b.WriteString(s.Flush())
			if b.String() != want {
				t.Errorf("%v: streamed %.200q, want %.200q", ids, b.String(), want)
			}
		}
	}
}

func TestStreamHoldsBackPartsOfCharacters(t *testing.T) {
	tok := loadTales(t)
	ids := tok.Encode("🜕!", false)
	if len(ids) < 4 {
		t.Fatalf("%v: want a character of several tokens", ids)
	}
	s := tok.NewStream(false)
	var parts []string
	for _, id := range ids {
		if part := s.Push(id); part != "" {
			parts = append(parts, part)
		}
	}
	if !slices.Equal(parts, []string{"🜕", "!"}) || s.Flush() != "" {
		t.Errorf("parts %q", parts)
	}
	s.Push(ids[0])
	if got := s.Flush(); got != "\uFFFD" {
		t.Errorf("cut character gives %q", got)
	}
}

func TestStreamOfAnyIDs(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, dir := range append(fixtureFolders(t), "../testdata/tales-qwen2") {
		tok := loadAny(t, dir)
		for range 30 {
			ids := make([]int, random.IntN(30))
			for i := range ids {
				ids[i] = random.IntN(tok.VocabSize()+10) - 5 // some do not exist
				if random.IntN(2) == 0 {
					ids[i] = random.IntN(300) // bytes
				}
			}
			checkStream(t, tok, ids)
		}
	}
}

// characters is a tokenizer whose words are characters, in the manner of Llama 2.
const characters = `{
	"added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}],
	"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
		{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
	"pre_tokenizer": null,
	"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
		{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
	"decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
		{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
	"model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
		"vocab": {"<unk>": 0, "<s>": 1, "<0xC3>": 2, "<0xA9>": 3, "▁": 4, "a": 5, "b": 6, "ab": 7, "▁ab": 8, "b▁": 9},
		"merges": ["a b", "▁ ab", "b ▁"]}}`

func TestCharacterTokenizer(t *testing.T) {
	tok, err := LoadTokenizer([]byte(characters), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		ids  []int
		back string
	}{
		{"", []int{1}, "<s>"},
		{"ab", []int{1, 8}, "<s> ab"},
		{"ab ab", []int{1, 8, 8}, "<s> ab ab"},
		{"b a", []int{1, 4, 9, 5}, "<s> b a"}, // a merge reaches over the blank
		{"aé", []int{1, 4, 5, 2, 3}, "<s> aé"},
		{"xyz", []int{1, 4, 0}, "<s> <unk>"}, // unknown, fused
		{"a<s>b", []int{1, 4, 5, 1, 4, 6}, "<s> a<s> b"},
	} {
		if got := tok.Encode(c.text, true); !slices.Equal(got, c.ids) {
			t.Errorf("%q gives %v, want %v", c.text, got, c.ids)
		}
		if got := tok.Decode(c.ids, false); got != c.back {
			t.Errorf("%v gives %q, want %q", c.ids, got, c.back)
		}
	}
	if got := tok.Decode([]int{8, 2, 3, 2, 8}, true); got != "ab\uFFFD\uFFFD\uFFFD ab" {
		t.Errorf("a run of bytes that is no text gives %q", got)
	}
}

// TestAddedTokenFlags uses tokens that strip, that must be words, and that are found after normalisation.
func TestAddedTokenFlags(t *testing.T) {
	file := strings.Replace(string(readFile(t, "../testdata/tales-qwen2/tokenizer.json")), `"added_tokens": [`, `"added_tokens": [
		{"id": 4000, "content": "<l>", "lstrip": true}, {"id": 4001, "content": "<r>", "rstrip": true},
		{"id": 4002, "content": "word", "single_word": true}, {"id": 4003, "content": "<ll>"}, {"id": 4004, "content": "<long", "normalized": true},`, 1)
	tok, err := LoadTokenizer([]byte(file), []byte(`{"added_tokens_decoder": {"4005": {"content": "<|late|>", "special": true}}, "bos_token": {"content": "x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if tok.VocabSize() != 4006 {
		t.Errorf("vocabulary of %d", tok.VocabSize())
	}
	for _, c := range []struct {
		text string
		want string
	}{
		{"a \n<l> b", `"a" 4000 " b"`},
		{"a <r> \t b", `"a " 4001 "b"`},
		{"a <r> <l> b", `"a " 4001 4000 " b"`},
		{"word words -word- sword word", `4002 " words -" 4002 "- sword " 4002`},
		{"<ll><l><l", `4003 4000 "<l"`},
		{"<longer<long>", `4004 "er" 4004 ">"`},
		{"a<|late|>", `"a" 4005`},
	} {
		var parts []string
		var text []int
		for _, id := range append(tok.Encode(c.text, false), -1) {
			if id >= 0 && id < 4000 {
				text = append(text, id)
				continue
			}
			if len(text) > 0 {
				parts = append(parts, fmt.Sprintf("%q", tok.Decode(text, false)))
				text = nil
			}
			if id >= 0 {
				parts = append(parts, fmt.Sprint(id))
			}
		}
		if got := strings.Join(parts, " "); got != c.want {
			t.Errorf("%q gives %s, want %s", c.text, got, c.want)
		}
	}
	if id, ok := tok.IDOf("<|late|>"); !ok || id != 4005 || !tok.IsSpecial(id) || tok.IsSpecial(4000) {
		t.Errorf("<|late|> is %d, %v", id, ok)
	}
	if got := tok.Decode([]int{4000, 4005}, true); got != "<l>" {
		t.Errorf("without special tokens: %q", got)
	}
	if bare, err := LoadTokenizer([]byte(file), nil); err != nil || bare.Hash() == tok.Hash() {
		t.Errorf("the hash does not see the token laid over: %v", err)
	}
}

// pieces runs a pre-tokenizer over a text.
func pieces(t *testing.T, spec, text string) []string {
	t.Helper()
	steps, _, err := compilePreTokenizers([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	collect := func(_ *encoder, _ int, text string, _ bool) { out = append(out, text) }
	e := &encoder{t: &Tokenizer{pre: append(steps, collect), model: &bpe{}}}
	e.piece(0, text, true)
	return out
}

func TestPreTokenizers(t *testing.T) {
	for _, c := range []struct{ spec, text, want string }{
		{`{"type":"Split","pattern":{"String":"-"},"behavior":"Removed"}`, "the-final--countdown", "the|final|countdown"},
		{`{"type":"Split","pattern":{"String":"-"},"behavior":"Isolated"}`, "the-final--countdown", "the|-|final|-|-|countdown"},
		{`{"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithPrevious"}`, "the-final--countdown", "the-|final-|-|countdown"},
		{`{"type":"Split","pattern":{"String":"-"},"behavior":"MergedWithNext"}`, "the-final--countdown", "the|-final|-|-countdown"},
		{`{"type":"Split","pattern":{"String":"-"},"behavior":"Contiguous"}`, "the-final--countdown", "the|-|final|--|countdown"},
		{`{"type":"Split","pattern":{"Regex":"[a-z]+"},"behavior":"Removed","invert":true}`, "a, bé c", "a|b|c"},
		{`{"type":"Digits","individual_digits":true}`, "a12²b", "a|1|2|²|b"},
		{`{"type":"Digits","individual_digits":false}`, "a12²b", "a|12²|b"},
		{`{"type":"Punctuation"}`, "a, b.「c」$", "a|,| b|.|「|c|」|$"},
		{`{"type":"ByteLevel","add_prefix_space":false}`, "I'm 12  x", "I|'m| 12| | x"},
		{`{"type":"ByteLevel"}`, "I'm", " I|'m"},
		{`{"type":"ByteLevel","use_regex":false,"add_prefix_space":false}`, "I'm 12", "I'm 12"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, "a  b", "▁a|▁|▁b"},
		{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":false}`, "a b", "a▁b"},
		{`{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"Sequence","pretokenizers":[{"type":"Punctuation"}]}]}`, "a1.2", "a|1|.|2"},
		{`{"type":"Split","pattern":{"Regex":"(?i:'s)|^b$"},"behavior":"Isolated"}`, "a'S\nb\nc", "a|'S|\n|b|\nc"},
	} {
		if got := strings.Join(pieces(t, c.spec, c.text), "|"); got != c.want {
			t.Errorf("%s: %q gives %q, want %q", c.spec, c.text, got, c.want)
		}
	}
}

// TestPartsAfterByteLevel uses the pre-tokenizers of Falcon: digits are looked for among the characters that stand for
// bytes, some of which count as numbers. The pieces are those of the tokenizers library.
func TestPartsAfterByteLevel(t *testing.T) {
	const falcon = `{"type":"Sequence","pretokenizers":[{"type":"Punctuation","behavior":"Contiguous"},
		{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
		{"type":"Digits","individual_digits":false},{"type":"Split","pattern":{"Regex":"[0-9][0-9][0-9]"},"behavior":"Isolated","invert":false}]}`
	var got []string
	for _, piece := range pieces(t, falcon, "I have 12345 things!? a²b ¼ é漢ò 1234567x--- 12ß3") {
		var b strings.Builder
		for i := range len(piece) {
			b.WriteRune(byteRune[piece[i]])
		}
		got = append(got, b.String())
	}
	want := "I|Ġhave|Ġ|123|45|Ġthings|!?|Ġa|Â|²|b|ĠÂ|¼|ĠÃ©æ|¼|¢Ã|²|Ġ|123|456|7|x|---|Ġ|12|ÃŁ|3"
	if joined := strings.Join(got, "|"); joined != want {
		t.Errorf("have %s\nwant %s", joined, want)
	}
}

func TestMergeSmallAndLargeAgree(t *testing.T) {
	m := loadTales(t).model
	random := rand.New(rand.NewPCG(5, 6))
	text := readFile(t, "../testdata/heldout.txt")
	for range 2000 {
		n := 1 + random.IntN(smallWord)
		at := random.IntN(len(text) - n)
		var s mergeScratch
		s.symbols = m.byteSymbols(nil, string(text[at:at+n]))
		large := m.mergeLarge(nil, &s)
		s.symbols = m.byteSymbols(nil, string(text[at:at+n]))
		if small := m.mergeSmall(nil, &s); !slices.Equal(small, large) {
			t.Fatalf("%q: %v by looking at all pairs, %v by heap", text[at:at+n], small, large)
		}
	}
}

// worstCases are texts that, repeated, make long words, long matches or long runs of marks.
var worstCases = map[string]string{
	"letter":  "a",
	"letters": "qzjxkvbpygfwmucldrhsnioate",
	"space":   " ",
	"newline": "\n",
	"rule":    "=",
	"cjk":     "漢字仮名交",
	"emoji":   "👨‍👩‍👧‍👦",
	"digit":   "7",
	"marks":   "\u0301\u0323",
	"words":   "word ",
	"mixed":   "aB",
	"tabs":    " \t",
	"special": "<|im_start|>",
	"cut":     "<|im_start|",
	"byte":    "\xff",
}

// TestTokenizerWorstCases takes texts of 100 kB that would take minutes if any step were quadratic.
func TestTokenizerWorstCases(t *testing.T) {
	folders := []string{"../testdata/tales-qwen2"}
	for _, dir := range fixtureFolders(t) {
		if name := filepath.Base(dir); name == "llama2" || name == "deepseek_v3" {
			folders = append(folders, dir)
		}
	}
	for _, dir := range folders {
		tok := loadAny(t, dir)
		for name, part := range worstCases {
			text := strings.Repeat(part, 100000/len(part))
			start := time.Now()
			ids := tok.Encode(text, false)
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("%s, %s: %v", dir, name, took)
			}
			if got := tok.Decode(ids, false); got != repairUTF8(text) {
				t.Errorf("%s, %s: does not come back", dir, name)
			}
		}
	}
}

func TestTokenizerConcurrent(t *testing.T) {
	tok := loadTales(t)
	texts := []string{"Once upon a time", string(readFile(t, "../testdata/heldout.txt"))[:3000], "<|im_start|>a\u0301 1234"}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 60 {
				text := texts[i%len(texts)]
				if got := tok.Decode(tok.Encode(text, false), false); got != text {
					t.Errorf("%.40q comes back as %.40q", text, got)
				}
			}
		})
	}
	group.Wait()
}

func TestScanObjectKeepsEscapedKeys(t *testing.T) {
	members, err := scanObject([]byte(`{"m\u006fdel": {"a\nb": ["\ud83d\ude00", -1.5e3, true, {}]}, "x": 0}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(members) != 2 || string(members["model"]) != `{"a\nb": ["\ud83d\ude00", -1.5e3, true, {}]}` || string(members["x"]) != "0" {
		t.Errorf("members %s", members)
	}
}

func TestLoadTokenizerErrors(t *testing.T) {
	with := func(old, new string) string {
		if !strings.Contains(characters, old) {
			t.Fatalf("no %q to replace", old)
		}
		return strings.Replace(characters, old, new, 1)
	}
	for _, c := range []struct{ file, want string }{
		{"", "want an object"},
		{"null", "want an object"},
		{"{}", "no model"},
		{characters + "x", "text after the end"},
		{characters[:len(characters)/2], "at byte"},
		{"{\"\xff\":1}", "UTF-8"},
		{strings.Repeat("[", 100), "want an object"},
		{`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "nested"},
		{`{"model":{"type":"Unigram","vocab":[["a",0.5]]}}`, `type "Unigram" is not supported`},
		{`{"model":{"type":"WordPiece","vocab":{"a":0}}}`, `type "WordPiece" is not supported`},
		{`{"model":{"type":"WordLevel","vocab":{"a":0}}}`, `type "WordLevel" is not supported`},
		{`{"model":{"vocab":{"a":0}}}`, `type "" is not supported`},
		{`{"model":{"type":"BPE","vocab":{},"merges":[]}}`, "it is empty"},
		{`{"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}}`, `id 0 is both "a" and "b"`},
		{`{"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}`, "want a token id"},
		{`{"model":{"type":"BPE","vocab":{"a":1.5},"merges":[]}}`, "comma"},
		{`{"model":{"type":"BPE","vocab":{"a":4000000},"merges":[]}}`, "id 4000000 among only 1 tokens"},
		{`{"model":{"type":"BPE","vocab":{"a":99999999999999999999},"merges":[]}}`, "want a token id"},
		{`{"model":{"type":"BPE","vocab":{"\ud800":0},"merges":[]}}`, "surrogate"},
		{`{"model":{"type":"BPE","vocab":{"\x":0},"merges":[]}}`, "unknown escape"},
		{with(`"a b"`, `"a z"`), "not in the vocabulary"},
		{with(`"a b"`, `"ab"`), "not two tokens"},
		{with(`"a b"`, `["a"]`), "merge of 1 tokens"},
		{with(`"a b"`, `["a","b","ab"]`), "merge of 3 tokens"},
		{with(`"a b"`, `7`), "want a list"},
		{with(`"<unk>", "fuse_unk"`, `"<none>", "fuse_unk"`), `unk_token "<none>" is not in the vocabulary`},
		{with(`"fuse_unk": true`, `"dropout": 0.1`), "dropout"},
		{with(`"fuse_unk": true`, `"end_of_word_suffix": "</w>"`), "end_of_word_suffix"},
		{with(`"fuse_unk": true`, `"continuing_subword_prefix": "##"`), "continuing_subword_prefix"},
		{with(`"pre_tokenizer": null`, `"pre_tokenizer": {"type":"BertPreTokenizer"}`), "BertPreTokenizer: this type is not supported"},
		{with(`"pre_tokenizer": null`, `"pre_tokenizer": {"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"}`), "pattern"},
		{with(`"pre_tokenizer": null`, `"pre_tokenizer": {"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated"}`), `"&&" is not supported`},
		{with(`"pre_tokenizer": null`, `"pre_tokenizer": {"type":"Split","pattern":{"String":"a"},"behavior":"Odd"}`), `behavior "Odd"`},
		{with(`"pre_tokenizer": null`, `"pre_tokenizer": {"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Metaspace","replacement":"▁"}]}`), "Metaspace: after ByteLevel"},
		{with(`"type": "Prepend"`, `"type": "StripAccents"`), `normalizer: type "StripAccents" is not supported`},
		{with(`"type": "TemplateProcessing"`, `"type": "BertProcessing"`), `post_processor: type "BertProcessing"`},
		{with(`"special_tokens": {"<s>"`, `"special_tokens": {"<t>"`), `special token "<s>" has no ids`},
		{with(`"type": "Fuse"`, `"type": "CTC"`), "decoder: CTC: this type is not supported"},
		{with(`{"id": 1, "content": "<s>"`, `{"id": 5, "content": "<t>"`), `id 5 is both "a" and "<t>"`},
	} {
		if _, err := LoadTokenizer([]byte(c.file), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200s\nerror %v, want one with %q", c.file, err, c.want)
		}
	}
	if _, err := LoadTokenizer([]byte(characters), []byte("{")); err == nil || !strings.Contains(err.Error(), "tokenizer_config.json") {
		t.Errorf("broken tokenizer_config.json: %v", err)
	}
}

func FuzzLoadTokenizer(f *testing.F) {
	f.Add([]byte(characters))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"\u00e9":0,"\ud83d\ude00":1},"merges":[["a","b"]]}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		tok, err := LoadTokenizer(file, nil)
		if err != nil {
			return
		}
		if !json.Valid(file) {
			t.Fatal("took a file that is not JSON")
		}
		ids := tok.Encode("ab é<s> \xff 12", true)
		checkStream(t, tok, ids)
	})
}

func FuzzEncode(f *testing.F) {
	tok := loadTales(f)
	small, err := LoadTokenizer([]byte(characters), nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"Once upon a time", "a\u0301\u0323", "\xf0\x9f", "<|im_start|>x", "  \r\n 12'S"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkRoundTrip(t, tok, text)
		checkStream(t, small, small.Encode(text, true))
	})
}
