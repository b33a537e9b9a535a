package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

const (
	singleFile = "model.safetensors"
	shardIndex = "model.safetensors.index.json"
	// firstRead is what is read of a file whose header length is not known: enough for about 2,000 tensors.
	firstRead = 256 << 10
	// entryBytes is a generous guess of a header entry without its name, so that a shard's header arrives with the
	// first request and little more does.
	entryBytes = 110
)

// headerSource is what building an Index needs of a Source.
type headerSource interface {
	// prefix returns the first min(n, size) bytes of file, and its size. A missing file is fs.ErrNotExist.
	prefix(ctx context.Context, file string, n int64) (data []byte, size int64, err error)
	ReadFile(ctx context.Context, name string) ([]byte, error)
}

// buildIndex reads model.safetensors, or else the shards that model.safetensors.index.json names.
func buildIndex(ctx context.Context, src headerSource) (*Index, error) {
	tensors, size, err := readHeader(ctx, src, singleFile, firstRead)
	if err == nil {
		ix := &Index{Tensors: map[string]Tensor{}, Files: []FileInfo{{Name: singleFile, Size: size}}}
		for _, t := range tensors {
			ix.Tensors[t.Name] = t
		}
		return ix, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data, err := src.ReadFile(ctx, shardIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for weights: neither %s nor %s (only safetensors weights can be read): %w",
			singleFile, shardIndex, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	weightMap, err := parseWeightMap(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", shardIndex, err)
	}
	return readShards(ctx, src, weightMap)
}

// parseWeightMap reads the map from tensor name to file name. File names become paths and URLs, so only plain relative
// ones are accepted.
func parseWeightMap(data []byte) (map[string]string, error) {
	var doc struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if len(doc.WeightMap) == 0 {
		return nil, errors.New("weight_map is empty or missing")
	}
	for name, file := range doc.WeightMap {
		if err := checkFileName(file); err != nil {
			return nil, fmt.Errorf("weight_map: tensor %q: %w", name, err)
		}
		if path.Ext(file) != ".safetensors" {
			return nil, fmt.Errorf("weight_map: tensor %q is in %q, which is no safetensors file", name, file)
		}
	}
	return doc.WeightMap, nil
}

// checkFileName accepts relative slash-separated names without dot elements, control characters, or anything a file
// system or URL would read differently.
func checkFileName(name string) error {
	bad := !fs.ValidPath(name) || name == "." || len(name) > 255 ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|`, r) })
	if bad {
		return fmt.Errorf("%q is no acceptable file name", name)
	}
	return nil
}

func readShards(ctx context.Context, src headerSource, weightMap map[string]string) (*Index, error) {
	guess := map[string]int64{}
	for name, file := range weightMap {
		guess[file] += int64(len(name)) + entryBytes
	}
	files := slices.Sorted(maps.Keys(guess))
	shards := make([][]Tensor, len(files))
	sizes := make([]int64, len(files))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i, file := range files {
		group.Go(func() (err error) {
			shards[i], sizes[i], err = readHeader(gctx, src, file, min(guess[file]+1024, maxHeader))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	ix := &Index{Tensors: make(map[string]Tensor, len(weightMap))}
	for i, file := range files {
		ix.Files = append(ix.Files, FileInfo{Name: file, Size: sizes[i]})
		for _, t := range shards[i] {
			if weightMap[t.Name] == file {
				ix.Tensors[t.Name] = t
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		if _, ok := ix.Tensors[name]; !ok {
			return nil, fmt.Errorf("tensor %q is missing from %q, where %s puts it", name, weightMap[name], shardIndex)
		}
	}
	return ix, nil
}

// readHeader reads the header of a safetensors file, guess bytes at first and more only if its length asks for it.
func readHeader(ctx context.Context, src headerSource, file string, guess int64) ([]Tensor, int64, error) {
	fail := func(err error) ([]Tensor, int64, error) {
		return nil, 0, fmt.Errorf("reading header of %q: %w", file, err)
	}
	data, size, err := src.prefix(ctx, file, guess)
	if err != nil {
		return fail(err)
	}
	n, err := headerLen(data, size)
	if err != nil {
		return fail(err)
	}
	if 8+n > int64(len(data)) {
		if data, _, err = src.prefix(ctx, file, 8+n); err != nil {
			return fail(err)
		}
	}
	tensors, err := parseHeader(file, data[8:8+n], size)
	if err != nil {
		return fail(err)
	}
	return tensors, size, nil
}
