package inspecttest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"dchain/inspect"
)

// File is a file of a repository.
type File struct {
	Data   io.ReaderAt
	Size   int64
	ETag   string // without quotes
	Stored bool   // on the storage host
}

// Small is a file that the hub serves itself.
func Small(data []byte) File {
	sum := sha256.Sum256(data)
	return File{bytes.NewReader(data), int64(len(data)), fmt.Sprintf("%x", sum[:20]), false}
}

// Large is a file on the storage host.
func Large(data []byte) File {
	return File{bytes.NewReader(data), int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data)), true}
}

// FromFS takes the files of a folder: weights to the storage host, the others to the hub.
func FromFS(fsys fs.FS) (map[string]File, error) {
	files := map[string]File{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		files[name] = Small(data)
		if path.Ext(name) == ".safetensors" {
			files[name] = Large(data)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = errors.New("no files")
	}
	return files, err
}

// FromSource lays the tensors of a source out over shards of about equal size, in order of offset, without storing
// them: their bytes are read when asked for.
func FromSource(ctx context.Context, src inspect.Source, shards int) (map[string]File, error) {
	ix, err := src.Index(ctx)
	if err != nil {
		return nil, err
	}
	config, err := src.ReadFile(ctx, "config.json")
	if err != nil {
		return nil, err
	}
	files := map[string]File{"config.json": Small(config)}
	tensors := ix.Sorted()
	slices.SortStableFunc(tensors, func(a, b inspect.Tensor) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Begin, b.Begin))
	})
	total := int64(0)
	for _, t := range tensors {
		total += t.Len()
	}
	weightMap := map[string]string{}
	for i := range shards {
		name := "model.safetensors"
		if shards > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		}
		n, size := 0, int64(0)
		for n < len(tensors) && (i == shards-1 || size < total/int64(shards)) {
			weightMap[tensors[n].Name] = name
			size += tensors[n].Len()
			n++
		}
		s := newShard(src, tensors[:n])
		tensors = tensors[n:]
		files[name] = File{s, s.size, fmt.Sprintf("%x", sha256.Sum256([]byte(src.ID()+name))), true}
	}
	if shards > 1 {
		index, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap})
		if err != nil {
			return nil, err
		}
		files["model.safetensors.index.json"] = Small(index)
	}
	return files, nil
}

// shard is a safetensors file made of tensors that lie elsewhere.
type shard struct {
	src    inspect.Source
	header []byte
	parts  []inspect.Tensor
	begins []int64 // offset of each part in the file
	size   int64
}

func newShard(src inspect.Source, tensors []inspect.Tensor) *shard {
	type entry struct {
		DType   inspect.DType `json:"dtype"`
		Shape   []int         `json:"shape"`
		Offsets [2]int64      `json:"data_offsets"`
	}
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	off := int64(0)
	s := &shard{src: src, parts: tensors}
	for _, t := range tensors {
		header[t.Name] = entry{t.DType, t.Shape, [2]int64{off, off + t.Len()}}
		s.begins = append(s.begins, off)
		off += t.Len()
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err) // only strings and integers are in it
	}
	s.header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	for i := range s.begins {
		s.begins[i] += int64(len(s.header))
	}
	s.size = int64(len(s.header)) + off
	return s
}

func (s *shard) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < int64(len(s.header)) {
		n = copy(p, s.header[off:])
	}
	i, found := slices.BinarySearch(s.begins, off+int64(n))
	if !found {
		i--
	}
	for ; n < len(p) && i >= 0 && i < len(s.parts); i++ {
		at := off + int64(n) - s.begins[i]
		k := min(int64(len(p)-n), s.parts[i].Len()-at)
		if err := s.src.ReadAt(context.Background(), s.parts[i].File, p[n:n+int(k)], s.parts[i].Begin+at); err != nil {
			return n, err
		}
		n += int(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
