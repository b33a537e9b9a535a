package cmd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
)

// mutate SRC DST EDIT ARGS... copies the model folder SRC of testdata to DST, unless DST is there, and edits the copy:
//
//	config KEY JSON    set a key of config.json
//	nan TENSOR         make one value of a bf16 tensor NaN
//	flip TENSOR        change the sign of one value in the middle of a bf16 tensor
//	drop TENSOR        give a tensor a name nobody asks for
//	cut BYTES          shorten model.safetensors
//	tokenizer          change tokenizer.json
func mutate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: mutate SRC DST EDIT ARGS...")
	}
	dir := ts.MkAbs(args[1])
	if _, err := os.Stat(dir); err != nil {
		ts.Check(os.CopyFS(dir, os.DirFS(filepath.Join(ts.Getenv("TESTDATA"), args[0]))))
	}
	edit := func(name string, f func(data []byte) []byte) {
		file := filepath.Join(dir, name)
		data, err := os.ReadFile(file)
		ts.Check(err)
		ts.Check(os.WriteFile(file, f(data), 0o644))
	}
	arg := func(i int) string {
		if len(args) <= 3+i {
			ts.Fatalf("mutate %s: an argument is missing", args[2])
		}
		return args[3+i]
	}
	switch args[2] {
	case "config":
		edit("config.json", func(data []byte) []byte {
			var config map[string]json.RawMessage
			ts.Check(json.Unmarshal(data, &config))
			config[arg(0)] = json.RawMessage(arg(1))
			out, err := json.Marshal(config)
			ts.Check(err)
			return out
		})
	case "nan", "flip":
		edit("model.safetensors", func(data []byte) []byte {
			at := tensorMiddle(ts, data, arg(0))
			if args[2] == "nan" {
				data[at], data[at+1] = 0xc0, 0x7f
			} else {
				data[at+1] ^= 0x80
			}
			return data
		})
	case "drop":
		edit("model.safetensors", func(data []byte) []byte {
			name := []byte(strconv.Quote(arg(0)))
			if bytes.Count(data, name) != 1 {
				ts.Fatalf("mutate drop: %s is not there", name)
			}
			return bytes.Replace(data, name, append([]byte(`"x`), name[2:]...), 1)
		})
	case "cut":
		n, err := strconv.Atoi(arg(0))
		ts.Check(err)
		edit("model.safetensors", func(data []byte) []byte { return data[:len(data)-n] })
	case "tokenizer":
		edit("tokenizer.json", func(data []byte) []byte { return append(data, '\n') })
	default:
		ts.Fatalf("mutate: unknown edit %q", args[2])
	}
}

// tensorMiddle is the offset of a bf16 value in the middle of a tensor, in a safetensors file.
func tensorMiddle(ts *testscript.TestScript, data []byte, name string) int {
	header := binary.LittleEndian.Uint64(data)
	var tensors map[string]struct {
		DType   string `json:"dtype"`
		Offsets [2]int `json:"data_offsets"`
	}
	ts.Check(json.Unmarshal(data[8:8+header], &tensors))
	t, ok := tensors[name]
	if !ok || t.DType != "BF16" {
		ts.Fatalf("tensor %q: %+v", name, t)
	}
	return int(8+header) + t.Offsets[0] + (t.Offsets[1]-t.Offsets[0])/4*2
}
