package inspect

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// tokenizerFixtures holds real tokenizer.json files with encodings by the Rust library. They are third-party data and
// no part of the repository, so a checkout without them tests only the built-in tokenizers; CI must have them.
const tokenizerFixtures = "../../shared/fixtures/tokenizers"

func fixtureFolders(t testing.TB) []string {
	t.Helper()
	folders, _ := filepath.Glob(filepath.Join(tokenizerFixtures, "*"))
	if len(folders) == 0 && os.Getenv("CI") == "true" {
		t.Fatalf("no tokenizers in %s", tokenizerFixtures)
	}
	return folders
}

func gunzip(t testing.TB, path string) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(readFile(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loadAny loads the tokenizer of a fixture or of a testdata folder.
func loadAny(t testing.TB, dir string) *Tokenizer {
	t.Helper()
	if strings.HasPrefix(dir, tokenizerFixtures) {
		return loadFixture(t, dir)
	}
	tok, err := LoadTokenizer(readFile(t, filepath.Join(dir, "tokenizer.json")),
		readFile(t, filepath.Join(dir, "tokenizer_config.json")))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// loadedFixtures keeps tokenizers for the tests that follow.
var loadedFixtures = make(map[string]*Tokenizer)

func loadFixture(t testing.TB, dir string) *Tokenizer {
	t.Helper()
	if tok, ok := loadedFixtures[dir]; ok {
		return tok
	}
	file := gunzip(t, filepath.Join(dir, "tokenizer.json.gz"))
	config := readFile(t, filepath.Join(dir, "tokenizer_config.json"))
	start := time.Now()
	tok, err := LoadTokenizer(file, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loaded %d bytes in %v", len(file), time.Since(start).Round(time.Millisecond))
	loadedFixtures[dir] = tok
	return tok
}

// encoding is a line of encodings.jsonl.
type encoding struct {
	S       string
	IDs     []int
	Plain   []int // without special tokens, when that differs
	Dec     *string
	DecSkip *string `json:"dec_skip"`
}

// newerUnicode is how many strings of a tokenizer may differ, and only strings with a character that this Unicode
// version does not know: the library that made the encodings has other tables.
const newerUnicode = 2

func hasUnknown(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Cn, r) })
}

func TestTokenizerFixtures(t *testing.T) {
	var figures strings.Builder
	figures.WriteString("| tokenizer | strings | differ |\n|---|---|---|\n")
	for _, dir := range fixtureFolders(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok := loadFixture(t, dir)
			lines := bytes.Split(bytes.TrimSpace(gunzip(t, filepath.Join(dir, "encodings.jsonl.gz"))), []byte("\n"))
			differ := 0
			for _, line := range lines {
				var want encoding
				if err := json.Unmarshal(line, &want); err != nil {
					t.Fatal(err)
				}
				if what := compareEncoding(tok, want); what != "" {
					if differ++; differ > newerUnicode || !hasUnknown(want.S) {
						t.Errorf("%.200q: %s", want.S, what)
					}
				}
			}
			fmt.Fprintf(&figures, "| %s | %d | %d |\n", filepath.Base(dir), len(lines), differ)
		})
	}
	if len(fixtureFolders(t)) > 0 && !t.Failed() {
		checkGenerated(t, "../docs/FAMILIES.md", "tokenizer figures", figures.String())
	}
}

// compareEncoding names the first thing that is not as expected.
func compareEncoding(tok *Tokenizer, want encoding) string {
	if want.Plain == nil {
		want.Plain = want.IDs
	}
	switch {
	case !slices.Equal(tok.Encode(want.S, true), want.IDs):
		return "ids with special tokens"
	case !slices.Equal(tok.Encode(want.S, false), want.Plain):
		return "ids"
	case want.Dec != nil && tok.Decode(want.IDs, false) != *want.Dec:
		return "text"
	case want.DecSkip != nil && tok.Decode(want.IDs, true) != *want.DecSkip:
		return "text without special tokens"
	}
	var b strings.Builder
	s := tok.NewStream(false)
	for _, id := range want.IDs {
		b.WriteString(s.Push(id))
	}
	if b.WriteString(s.Flush()); want.Dec != nil && b.String() != *want.Dec {
		return "streamed text"
	}
	return ""
}
