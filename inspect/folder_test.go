package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func TestFolderID(t *testing.T) {
	base := func() fstest.MapFS {
		return fstest.MapFS{
			"config.json": {Data: []byte(`{"a":1}`)},
			singleFile:    {Data: stFile("{"+entry("a", "F32", "[128]", "[0,512]")+","+entry("b", "F32", "[1]", "[512,516]")+"}", 516)},
		}
	}
	id := func(m fstest.MapFS, location string) string { return NewFS(m, location).ID() }
	want := id(base(), "here")
	if !strings.HasPrefix(want, "sha256:") || len(want) != 7+64 {
		t.Fatalf("ID is %q", want)
	}
	if got := id(base(), "elsewhere"); got != want {
		t.Errorf("ID depends on the location: %q", got)
	}
	at := len(base()[singleFile].Data) - 516
	change := map[string]func(m fstest.MapFS){
		"first byte of a tensor": func(m fstest.MapFS) { m[singleFile].Data[at]++ },
		"byte 255 of a tensor":   func(m fstest.MapFS) { m[singleFile].Data[at+255]++ },
		"last tensor":            func(m fstest.MapFS) { m[singleFile].Data[at+515]++ },
		"config":                 func(m fstest.MapFS) { m["config.json"].Data = []byte(`{"a":2}`) },
		"name": func(m fstest.MapFS) {
			m[singleFile].Data = bytes.Replace(m[singleFile].Data, []byte(`"b"`), []byte(`"c"`), 1)
		},
		"shape": func(m fstest.MapFS) {
			m[singleFile].Data = bytes.Replace(m[singleFile].Data, []byte(`[128]`), []byte(`[2,64]`), 1)
			binary.LittleEndian.PutUint64(m[singleFile].Data, uint64(at-8+1))
		},
	}
	for name, f := range change {
		m := base()
		f(m)
		if got := id(m, "here"); got == want || got == "" {
			t.Errorf("another %s gives ID %q", name, got)
		}
	}
	commit := strings.Repeat("0a", 20)
	for location, want := range map[string]string{
		"/x/hub/models--org--na-me/snapshots/" + commit:       "org/na-me@" + commit,
		"/x/hub/models--org--na-me/snapshots/" + commit + "/": "org/na-me@" + commit,
		"/x/hub/models--org--name/snapshots/main":             want,
	} {
		if got := id(base(), location); got != want {
			t.Errorf("%s: ID is %q", location, got)
		}
	}
	m := base()
	m[singleFile].Data = m[singleFile].Data[:20]
	if got := id(m, "here"); got != "" {
		t.Errorf("unreadable model has ID %q", got)
	}
}

func TestFolderTruncatedLater(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, singleFile)
	if err := os.WriteFile(path, stFile("{"+entry("a", "F32", "[1000]", "[0,4000]")+"}", 4000), 0o644); err != nil {
		t.Fatal(err)
	}
	src := NewFS(os.DirFS(dir), dir)
	defer src.Close()
	ix, err := src.Index(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 2000); err != nil {
		t.Fatal(err)
	}
	err = readFloats(t.Context(), src, ix.Tensors["a"], 0, 1000, make([]float32, 1000))
	if err == nil || !strings.Contains(err.Error(), "truncated") || !strings.Contains(err.Error(), "found 2000") {
		t.Errorf("error is %v", err)
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	if err := src.ReadAt(t.Context(), singleFile, make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

// seekFS hides ReadAt.
type seekFS struct{ fs.FS }

type seekOnly struct{ fs.File }

func (f seekOnly) Seek(off int64, whence int) (int64, error) {
	return f.File.(interface {
		Seek(int64, int) (int64, error)
	}).Seek(off, whence)
}

func (s seekFS) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return seekOnly{f}, nil
}

func TestFolderWithoutReadAt(t *testing.T) {
	dir := os.DirFS("../testdata/families/qwen2")
	a, b := NewFS(dir, "a"), NewFS(seekFS{dir}, "b")
	defer a.Close()
	defer b.Close()
	if a.ID() == "" || a.ID() != b.ID() {
		t.Errorf("IDs are %q and %q", a.ID(), b.ID())
	}
}
