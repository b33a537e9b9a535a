package inspect

import (
	"path/filepath"
	"strings"
	"testing"
)

func benchmarkTokenizers(b *testing.B, run func(b *testing.B, tok *Tokenizer)) {
	for _, dir := range append(fixtureFolders(b), "../testdata/tales-qwen2") {
		b.Run(filepath.Base(dir), func(b *testing.B) {
			run(b, loadAny(b, dir))
		})
	}
}

// BenchmarkEncode gives tokens per second on English prose.
func BenchmarkEncode(b *testing.B) {
	text := string(readFile(b, "../testdata/heldout.txt"))[:60000]
	benchmarkTokenizers(b, func(b *testing.B, tok *Tokenizer) {
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			n += len(tok.Encode(text, false))
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
	})
}

// BenchmarkEncodeWorst gives the time for texts of 100 kB that are hard on patterns and merges.
func BenchmarkEncodeWorst(b *testing.B) {
	benchmarkTokenizers(b, func(b *testing.B, tok *Tokenizer) {
		for name, part := range worstCases {
			text := strings.Repeat(part, 100000/len(part))
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					tok.Encode(text, false)
				}
			})
		}
	})
}

// BenchmarkLoadTokenizer gives the time to load the largest file, of 33 MB.
func BenchmarkLoadTokenizer(b *testing.B) {
	dir := filepath.Join(tokenizerFixtures, "gemma3")
	file := gunzip(b, filepath.Join(dir, "tokenizer.json.gz"))
	config := readFile(b, filepath.Join(dir, "tokenizer_config.json"))
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		if _, err := LoadTokenizer(file, config); err != nil {
			b.Fatal(err)
		}
	}
}
