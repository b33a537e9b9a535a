package inspect

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// stFile is a safetensors file with that header and n zero bytes of data.
func stFile(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func entry(name, dtype, shape, offsets string) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":%s}`, name, dtype, shape, offsets)
}

func indexOf(t *testing.T, files map[string][]byte) (*Index, error) {
	t.Helper()
	m := fstest.MapFS{}
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data}
	}
	return NewFS(m, "test").Index(t.Context())
}

func TestHeaderErrors(t *testing.T) {
	a, b := entry("a", "F32", "[2]", "[0,8]"), entry("b", "BF16", "[2,2]", "[8,16]")
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	tests := []struct {
		name string
		file []byte
		want string
	}{
		{"empty file", nil, "0 bytes, at least 8 expected"},
		{"short file", []byte("1234567"), "7 bytes, at least 8 expected"},
		{"header beyond the file", append(length(100), '{', '}'), "its header needs 108 bytes, found 10"},
		{"100 MB header", append(length(100_000_001), '{', '}'), "header length 100000001 exceeds"},
		{"header length wraps", append(length(1<<63+1), '{', '}'), "exceeds"},
		{"no header", length(0), "not a JSON object"},
		{"not JSON", stFile("{hello}", 0), "not valid JSON"},
		{"other JSON", stFile("[1]", 0), "not a JSON object"},
		{"leading space", stFile(" {}", 0), "not a JSON object"},
		{"not UTF-8", stFile("{\"\xff\":1}", 0), "not UTF-8"},
		{"JSON ends early", stFile("{"+a, 8), "not valid JSON"},
		{"text after", stFile("{"+a+"}{}", 8), "text after"},
		{"entry no object", stFile(`{"a":[1]}`, 0), `tensor "a": { expected`},
		{"listed twice", stFile("{"+a+","+a+"}", 8), `tensor "a" is listed twice`},
		{"metadata twice", stFile(`{"__metadata__":{},"__metadata__":{}}`, 0), "listed twice"},
		{"key twice", stFile(`{"a":{"dtype":"F32","dtype":"F16"}}`, 0), "dtype is given twice"},
		{"key missing", stFile(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "data_offsets is missing"},
		{"dtype no string", stFile(`{"a":{"dtype":7}}`, 4), "dtype is 7, not a string"},
		{"negative dimension", stFile("{"+entry("a", "F32", "[-1]", "[0,4]")+"}", 4), "shape holds -1"},
		{"fractional dimension", stFile("{"+entry("a", "F32", "[1.5]", "[0,4]")+"}", 4), "shape holds 1.5"},
		{"dimension as text", stFile("{"+entry("a", "F32", `["1"]`, "[0,4]")+"}", 4), "not a number"},
		{"huge dimension", stFile("{"+entry("a", "F32", "[99999999999999999999]", "[0,4]")+"}", 4), "shape holds 9999"},
		{"shape overflows", stFile("{"+entry("a", "F32", "[4294967296,4294967296]", "[0,0]")+"}", 0), "overflows"},
		{"too many dimensions", stFile("{"+entry("a", "F32", "["+strings.Repeat("1,", 40)+"1]", "[0,4]")+"}", 4), "more than 32"},
		{"negative offset", stFile("{"+entry("a", "F32", "[1]", "[-4,0]")+"}", 4), "data_offsets holds -4"},
		{"offsets backwards", stFile("{"+entry("a", "F32", "[1]", "[4,0]")+"}", 4), "are not a range"},
		{"three offsets", stFile("{"+entry("a", "F32", "[1]", "[0,4,8]")+"}", 4), "more than 2"},
		{"one offset", stFile("{"+entry("a", "F32", "[1]", "[0]")+"}", 4), "are not a range"},
		{"offset overflows", stFile("{"+entry("a", "F32", "[1]", "[9223372036854775803,9223372036854775807]")+"}", 4), "data_offsets holds"},
		{"size of shape", stFile("{"+entry("a", "F32", "[2]", "[0,4]")+"}", 4), "takes 8 bytes, data_offsets span 4"},
		{"overlap", stFile("{"+a+","+entry("b", "F32", "[2]", "[4,12]")+"}", 12), `tensors "a" and "b" overlap`},
		{"hole", stFile("{"+a+","+entry("b", "F32", "[2]", "[12,20]")+"}", 20), `before tensor "b" belong to no tensor`},
		{"out of range", stFile("{"+a+","+b+"}", 12), "file is truncated"},
		{"too long", stFile("{"+a+","+b+"}", 17), "file is too long"},
		{"deep JSON", stFile(`{"__metadata__":`+strings.Repeat(`[`, 1000), 0), "nested deeper than 32"},
		{"deep JSON in a tensor", stFile(`{"a":{"x":`+strings.Repeat(`{"y":`, 1000), 0), "nested deeper than 32"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := indexOf(t, map[string][]byte{singleFile: tt.file})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), singleFile) {
				t.Errorf("error is %v, want %q and the file's name in it", err, tt.want)
			}
		})
	}
}

func TestHeaderAccepted(t *testing.T) {
	header := `{"__metadata__":{"format":"pt"},` + entry("b", "F8_E4M3", "[3]", "[4,7]") + "," +
		entry("a", "BF16", "[1,2]", "[0,4]") + "," + entry("scalar", "I64", "[]", "[7,15]") + "," +
		entry("none", "F32", "[0,5]", "[15,15]") + "," + entry("odd", "Q3", "[9]", "[15,20]") + "}   "
	ix, err := indexOf(t, map[string][]byte{singleFile: stFile(header, 20)})
	if err != nil {
		t.Fatal(err)
	}
	if len(ix.Tensors) != 5 || len(ix.Files) != 1 || ix.Files[0].Size != int64(8+len(header)+20) {
		t.Errorf("index is %+v", ix)
	}
	start := int64(8 + len(header))
	if got := ix.Tensors["b"]; got.Begin != start+4 || got.End != start+7 || got.File != singleFile || got.Elems() != 3 {
		t.Errorf("tensor b is %+v", got)
	}
	if err := readFloats(t.Context(), NewFS(fstest.MapFS{}, ""), ix.Tensors["odd"], 0, 1, make([]float32, 1)); err == nil ||
		!strings.Contains(err.Error(), `"odd": dtype Q3 is not supported`) {
		t.Errorf("reading an unknown dtype: %v", err)
	}
}

func TestShards(t *testing.T) {
	one := stFile("{"+entry("a", "F32", "[1]", "[0,4]")+"}", 4)
	two := stFile("{"+entry("b", "F32", "[1]", "[0,4]")+","+entry("stale", "F32", "[1]", "[4,8]")+"}", 8)
	meta := stFile(`{"__metadata__":{"format":"pt"}}`, 0)
	list := func(pairs string) []byte { return []byte(`{"metadata":{},"weight_map":{` + pairs + `}}`) }
	good := list(`"a":"1.safetensors","b":"sub/2.safetensors"`)
	ix, err := indexOf(t, map[string][]byte{shardIndex: good, "1.safetensors": one, "sub/2.safetensors": two})
	if err != nil {
		t.Fatal(err)
	}
	if len(ix.Tensors) != 2 || ix.Tensors["b"].File != "sub/2.safetensors" || len(ix.Files) != 2 {
		t.Errorf("index is %+v", ix)
	}
	tests := []struct {
		name  string
		files map[string][]byte
		want  []string
	}{
		{"no weights", map[string][]byte{"pytorch_model.bin": nil}, []string{"neither", singleFile, shardIndex}},
		{"shard without tensors", map[string][]byte{shardIndex: good, "1.safetensors": one, "sub/2.safetensors": meta},
			[]string{`tensor "b" is missing from "sub/2.safetensors"`}},
		{"shard missing", map[string][]byte{shardIndex: good, "1.safetensors": one}, []string{"sub/2.safetensors", "not exist"}},
		{"shard damaged", map[string][]byte{shardIndex: good, "1.safetensors": one[:len(one)-1], "sub/2.safetensors": two},
			[]string{"1.safetensors", "truncated"}},
		{"list not JSON", map[string][]byte{shardIndex: []byte("no")}, []string{shardIndex, "invalid"}},
		{"list empty", map[string][]byte{shardIndex: []byte("{}")}, []string{shardIndex, "weight_map is empty"}},
		{"path leads out", map[string][]byte{shardIndex: list(`"a":"../x.safetensors"`)}, []string{shardIndex, "no acceptable file name"}},
		{"absolute path", map[string][]byte{shardIndex: list(`"a":"/x.safetensors"`)}, []string{"no acceptable file name"}},
		{"path of another system", map[string][]byte{shardIndex: list(`"a":"..\\x.safetensors"`)}, []string{"no acceptable file name"}},
		{"other kind of file", map[string][]byte{shardIndex: list(`"a":"x.bin"`)}, []string{`"x.bin", which is no safetensors file`}},
	}
	for _, tt := range tests {
		_, err := indexOf(t, tt.files)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error is %v, want %q in it", tt.name, err, want)
			}
		}
	}
}

// FuzzHeader holds that a file is either refused or tiled by its tensors without overlap, whatever it says.
func FuzzHeader(f *testing.F) {
	names, err := filepath.Glob("../testdata/families/*/*.safetensors")
	if err != nil || len(names) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	seeds := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if n := 8 + binary.LittleEndian.Uint64(data); n < 1500 { // small seeds keep the fuzzer fast
			f.Add(data[:n], int64(len(data)))
			seeds++
		}
	}
	if seeds == 0 {
		f.Fatal("no small seeds")
	}
	f.Add(stFile(`{`+entry("a", "F32", "[2]", "[0,8]")+`}`, 8), int64(8))
	f.Add(stFile(`{"__metadata__":{"a":[[[[]]]]}}`, 0), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, size int64) {
		if size = max(size, int64(len(data))); size < 8 {
			return
		}
		n, err := headerLen(data, size)
		if err != nil || 8+n > int64(len(data)) {
			return
		}
		tensors, err := parseHeader("f", data[8:8+n], size)
		if err != nil {
			return
		}
		end := 8 + n
		for _, x := range tensors {
			if x.Begin != end || x.End < x.Begin || x.Elems() < 0 {
				t.Fatalf("tensor %+v after byte %d", x, end)
			}
			if bits, known := dtypeBits[x.DType]; known && x.Len() != (x.Elems()*bits+7)/8 {
				t.Fatalf("tensor %+v has %d bytes", x, x.Len())
			}
			end = x.End
		}
		if end != size {
			t.Fatalf("tensors end at %d of %d", end, size)
		}
	})
}

func FuzzWeightMap(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"b.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../b.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := parseWeightMap(data)
		for _, name := range files {
			if err == nil && (!fs.ValidPath(name) || !filepath.IsLocal(name)) {
				t.Fatalf("accepted %q", name)
			}
		}
	})
}
