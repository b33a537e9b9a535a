// Package inspect knows what a model is: where its files are (a hub repository, a folder, the embedded model, or tensors
// made on demand), what config.json means (Spec), which bytes hold which tensor (Index), and how text becomes tokens.
//
// Open is the entry point. It reads config and safetensors headers only; weights come later, by range: StageTensors
// says which tensors a stage of layers needs, CoalesceRanges which byte ranges those are, Source.Fetch brings them in
// about one request per file, and Floats converts them piece by piece.
//
// Hub repositories are pinned to a commit before anything is read, and what is fetched stays in a local cache, so that
// a restart fetches nothing. The package prints nothing: progress and retries are callbacks.
package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Source gives read access to the files of one revision of one model: a hub repository, a local folder in the same
// layout, the embedded model, or synthetic tensors. It is safe for concurrent use.
type Source interface {
	// ID names the content, so that two machines can compare what they hold: "org/name@COMMIT" for a hub repository
	// (also when read from the standard cache), "sha256:HEX" over sampled tensor bytes for a folder or the embedded
	// model, "synthetic:NAME".
	ID() string
	// Location is for people: what the operator asked for and where it is read from.
	Location() string
	// ReadFile reads a whole small file (config.json, tokenizer.json). A missing file is fs.ErrNotExist.
	ReadFile(ctx context.Context, name string) ([]byte, error)
	// Index lists every tensor from the safetensors headers alone.
	Index(ctx context.Context) (*Index, error)
	// Fetch makes the byte ranges available locally in as few requests as possible, so that ReadAt costs none.
	// progress, which may be nil, is called with the number of bytes that became available since the last call:
	// over a successful Fetch the calls sum to the length of the ranges, coalesced. Calls do not overlap.
	Fetch(ctx context.Context, ranges []Range, progress func(n int64)) error
	// ReadAt fills p from byte off of file.
	ReadAt(ctx context.Context, file string, p []byte, off int64) error
	// Stats reports what was read so far, from the network or disk.
	Stats() Stats
	Close() error
}

// Range is a half-open byte range [Begin, End) of a file of a Source.
type Range struct {
	File       string
	Begin, End int64
}

// Len is the number of bytes.
func (r Range) Len() int64 { return r.End - r.Begin }

// Stats counts what a Source read.
type Stats struct {
	Bytes    int64 // bytes read: over the network for a hub repository, from files for a local source
	Requests int64 // network requests; 0 for local sources
	Cached   int64 // bytes of a hub repository that were read from the local cache
}

// DType is a safetensors element type.
type DType string

// The element types that can be read as float32. An index lists others too.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	F8   DType = "F8_E4M3" // with a scale for each block in a tensor of its own
)

// Tensor is one entry of a safetensors header.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Range // absolute byte range in its file, data only
}

// Elems is the number of elements: the product of the shape.
func (t Tensor) Elems() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

// Index is every tensor of a model by name.
type Index struct {
	Tensors map[string]Tensor
	// Files are the safetensors files in order, with their sizes in bytes.
	Files []FileInfo
}

// FileInfo is a safetensors file.
type FileInfo struct {
	Name string
	Size int64
	// Modified is when a file of a local folder was last changed; zero where the content cannot change.
	Modified time.Time
}

// Sorted lists the tensors by name.
func (ix *Index) Sorted() []Tensor {
	ts := make([]Tensor, 0, len(ix.Tensors))
	for _, t := range ix.Tensors {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return ts
}

// FetchGap is the number of unwanted bytes worth reading to save a request.
const FetchGap = 64 << 10

// CoalesceRanges joins the ranges of tensors that lie at most gap bytes apart in one file, sorted by file and offset:
// each result is one request.
func CoalesceRanges(tensors []Tensor, gap int64) []Range {
	rs := make([]Range, len(tensors))
	for i, t := range tensors {
		rs[i] = t.Range
	}
	return mergeRanges(rs, gap)
}

// mergeRanges sorts ranges and joins those at most gap bytes apart. Empty ranges vanish.
func mergeRanges(ranges []Range, gap int64) []Range {
	rs := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return r.Len() <= 0 })
	slices.SortFunc(rs, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End))
	})
	var out []Range
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].File == r.File && r.Begin-out[n-1].End <= gap {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}
