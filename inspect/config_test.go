package inspect

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// readIndex reads the headers of every safetensors file of a testdata folder: names, types and shapes only.
func readIndex(t testing.TB, dir string) *Index {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if len(files) == 0 {
		t.Fatalf("no safetensors in %s", dir)
	}
	ix := &Index{Tensors: make(map[string]Tensor)}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n := binary.LittleEndian.Uint64(b)
		var header map[string]struct {
			DType DType
			Shape []int
		}
		if err := json.Unmarshal(b[8:8+n], &header); err != nil {
			t.Fatal(err)
		}
		delete(header, "__metadata__")
		for name, h := range header {
			ix.Tensors[name] = Tensor{Name: name, DType: h.DType, Shape: h.Shape}
		}
	}
	return ix
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// parseFolder parses the config of a testdata folder with its own index.
func parseFolder(t testing.TB, dir string) (Spec, error) {
	t.Helper()
	return ParseConfig(readFile(t, filepath.Join(dir, "config.json")),
		readFile(t, filepath.Join(dir, "generation_config.json")), readIndex(t, dir))
}

func TestParseConfigFolders(t *testing.T) {
	folders, _ := filepath.Glob("../testdata/tales-*")
	more, _ := filepath.Glob("../testdata/families/*")
	folders = append(folders, more...)
	if len(folders) < 6 {
		t.Fatalf("only %d model folders", len(folders))
	}
	for _, dir := range folders {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			s, err := parseFolder(t, dir)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := json.Marshal(&s)
			t.Logf("%s", b)
		})
	}
}
