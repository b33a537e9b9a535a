package inspect

import "context"

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
	// progress, which may be nil, is called with the number of bytes that arrived since the last call.
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

// Stats counts what a Source read.
type Stats struct {
	Bytes    int64 // bytes read
	Requests int64 // network requests; 0 for local sources
}

// DType is a safetensors element type.
type DType string

const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// Tensor is one entry of a safetensors header.
type Tensor struct {
	Name  string
	DType DType
	Shape []int
	Range // absolute byte range in its file, data only
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
}
