package inspect

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// TestParts checks the bookkeeping of ranges against a plain list of bytes.
func TestParts(t *testing.T) {
	const size = 300
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	cache := commitCache{t.TempDir()}
	if err := cache.part("f").setMeta(fileMeta{Size: size, ETag: "e"}); err != nil {
		t.Fatal(err)
	}
	held := make([]bool, size)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		pf := cache.part("f") // as another process would see it
		begin := rng.Int64N(size)
		end := begin + 1 + rng.Int64N(min(60, size-begin))
		w := pf.writer(begin)
		w.limit = 16
		if n, err := w.Write(data[begin:end]); err != nil || n != int(end-begin) {
			t.Fatalf("write: %d, %v", n, err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for i := begin; i < end; i++ {
			held[i] = true
		}
		for _, view := range []*partFile{pf, cache.part("f")} {
			checkParts(t, view, data, held)
			p := make([]byte, end-begin)
			if err := view.readAt(p, begin); err != nil || !bytes.Equal(p, data[begin:end]) {
				t.Fatalf("range %d-%d: %v", begin, end, err)
			}
		}
	}
	if err := cache.part("f").setMeta(fileMeta{Size: size, ETag: "x"}); err == nil {
		t.Error("another ETag is accepted")
	}
	for _, name := range []string{"1-0", "1-1", "-1-5", "a-b", "01-5", "5", "0-5.tmp", "+0-5", "0-5-9"} {
		if s, ok := parsePart(name); ok {
			t.Errorf("part name %q is accepted as %v", name, s)
		}
	}
}

func checkParts(t *testing.T, pf *partFile, data []byte, held []bool) {
	t.Helper()
	lack := make([]bool, len(data))
	for _, s := range pf.missing(0, int64(len(data))) {
		for i := s.begin; i < s.end; i++ {
			lack[i] = true
		}
	}
	for i := range held {
		if held[i] == lack[i] {
			t.Fatalf("byte %d: held %t, missing %t", i, held[i], lack[i])
		}
		p := make([]byte, 1)
		err := pf.readAt(p, int64(i))
		if held[i] && (err != nil || p[0] != data[i]) || !held[i] && !errors.Is(err, errNotHeld) {
			t.Fatalf("byte %d: held %t, read %v %v", i, held[i], p, err)
		}
	}
}
