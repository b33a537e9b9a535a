package inspect

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated tables of tokenizers")

// tokenizerKinds are the types of each part of tokenizer.json that the tokenizers library knows: an example of each, with
// which it is accepted, and those that are refused by name.
var tokenizerKinds = []struct {
	part, title string
	accepted    [][2]string // type, what it needs
	refused     []string
}{
	{"normalizer", "normalisers",
		[][2]string{{"NFC"}, {"NFD"}, {"NFKC"}, {"NFKD"}, {"Lowercase"}, {"Prepend", `"prepend":"x"`},
			{"Replace", `"pattern":{"Regex":"a"},"content":"b"`}, {"Sequence", `"normalizers":[]`}},
		[]string{"BertNormalizer", "Strip", "StripAccents", "Nmt", "Precompiled", "ByteLevel"}},
	{"pre_tokenizer", "pre-tokenizers",
		[][2]string{{"ByteLevel"}, {"Split", `"pattern":{"Regex":"a"},"behavior":"Isolated"`}, {"Digits"}, {"Punctuation"},
			{"Metaspace", `"replacement":"▁"`}, {"Sequence", `"pretokenizers":[]`}},
		[]string{"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit", "UnicodeScripts", "FixedLength"}},
	{"model", "models",
		[][2]string{{"BPE", `"vocab":{"a":0},"merges":[]`}},
		[]string{"Unigram", "WordPiece", "WordLevel"}},
	{"post_processor", "post-processors",
		[][2]string{{"ByteLevel"}, {"TemplateProcessing", `"single":[{"Sequence":{"id":"A","type_id":0}}]`}, {"Sequence", `"processors":[]`}},
		[]string{"BertProcessing", "RobertaProcessing"}},
	{"decoder", "decoders",
		[][2]string{{"ByteLevel"}, {"ByteFallback"}, {"Fuse"}, {"Replace", `"pattern":{"String":"a"},"content":"b"`},
			{"Strip", `"content":" ","start":1,"stop":0`}, {"Metaspace", `"replacement":"▁"`}, {"Sequence", `"decoders":[]`}},
		[]string{"WordPiece", "BPEDecoder", "CTC"}},
}

// TestTokenizerKinds holds the documentation to what is accepted.
func TestTokenizerKinds(t *testing.T) {
	load := func(part, kind, needs string) error {
		object := fmt.Sprintf(`{"type":%q}`, kind)
		if needs != "" {
			object = fmt.Sprintf(`{"type":%q,%s}`, kind, needs)
		}
		file := fmt.Sprintf(`{%q:%s}`, part, object)
		if part != "model" {
			file = fmt.Sprintf(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},%q:%s}`, part, object)
		}
		_, err := LoadTokenizer([]byte(file), nil)
		return err
	}
	var table strings.Builder
	table.WriteString("| part | supported | refused by name |\n|---|---|---|\n")
	for _, k := range tokenizerKinds {
		var accepted []string
		for _, kind := range k.accepted {
			accepted = append(accepted, kind[0])
			if err := load(k.part, kind[0], kind[1]); err != nil {
				t.Errorf("%s %s: %v", k.part, kind[0], err)
			}
		}
		for _, kind := range k.refused {
			if err := load(k.part, kind, ""); err == nil || !strings.Contains(err.Error(), kind) {
				t.Errorf("%s %s: error %v, want one that names it", k.part, kind, err)
			}
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", k.title, strings.Join(accepted, ", "), strings.Join(k.refused, ", "))
	}
	checkGenerated(t, "../docs/FAMILIES.md", "tokenizers", table.String())
	checkGenerated(t, "../README.md", "tokenizers", table.String())
}

// checkGenerated compares the part of a file between two comments with what it should be, or writes it with -update.
func checkGenerated(t *testing.T, file, name, want string) {
	t.Helper()
	b := string(readFile(t, file))
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
	head, rest, ok := strings.Cut(b, begin)
	have, tail, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no part %q", file, strings.TrimSpace(begin))
	case have == want:
	case !*update:
		t.Errorf("%s is out of date: run go test ./inspect -run Tokenizer -update\nhave:\n%s\nwant:\n%s", file, have, want)
	default:
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
