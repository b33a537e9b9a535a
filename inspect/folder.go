package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// FS is a Source over the files of a folder in hub layout: a local folder or the embedded model.
type FS struct {
	fsys     fs.FS
	location string
	bytes    atomic.Int64

	indexOnce sync.Once
	index     *Index
	id        string
	indexErr  error

	mu     sync.Mutex
	open   map[string]*openFile
	closed bool
}

// openFile is a weight file kept open. Files that cannot read at an offset are read by seeking, one at a time.
type openFile struct {
	fs.File
	at       io.ReaderAt
	size     int64
	modified time.Time
}

// NewFS makes a Source of a folder. location is what people see; if it is the path of a snapshot in a hub cache, the
// Source has the ID of that revision, as if it had been read from the hub.
func NewFS(fsys fs.FS, location string) *FS {
	return &FS{fsys: fsys, location: location, open: map[string]*openFile{}}
}

// ID is computed from the tensor index, and empty when that cannot be read.
func (f *FS) ID() string {
	f.loadIndex(context.Background())
	return f.id
}

func (f *FS) Location() string { return f.location }

func (f *FS) ReadFile(_ context.Context, name string) ([]byte, error) {
	data, err := fs.ReadFile(f.fsys, name)
	f.bytes.Add(int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, bareError(err))
	}
	return data, nil
}

// bareError drops the operation and path that fs puts before the cause.
func bareError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func (f *FS) Index(ctx context.Context) (*Index, error) {
	f.loadIndex(ctx)
	return f.index, f.indexErr
}

func (f *FS) loadIndex(ctx context.Context) {
	f.indexOnce.Do(func() {
		ctx := context.WithoutCancel(ctx) // the result outlives this caller
		ix, err := buildIndex(ctx, f)
		if err == nil {
			err = f.dateFiles(ix)
		}
		if err == nil {
			f.id, err = f.contentID(ctx, ix)
		}
		if err != nil {
			f.indexErr = err
			return
		}
		f.index = ix
	})
}

// dateFiles notes when the weight files were changed.
func (f *FS) dateFiles(ix *Index) error {
	for i := range ix.Files {
		of, err := f.file(ix.Files[i].Name)
		if err != nil {
			return fmt.Errorf("reading %q: %w", ix.Files[i].Name, err)
		}
		ix.Files[i].Modified = of.modified
	}
	return nil
}

var snapshotPath = regexp.MustCompile(`(?:^|/)models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})/?$`)

// sampleBytes is how much of each tensor enters the ID of a folder.
const sampleBytes = 256

// contentID is the hub ID of a snapshot, or a hash of the names, dtypes and shapes of all tensors, the first bytes of
// each, and config.json. It tells two models apart, not two models that were made to collide.
func (f *FS) contentID(ctx context.Context, ix *Index) (string, error) {
	if m := snapshotPath.FindStringSubmatch(filepath.ToSlash(f.location)); m != nil {
		return m[1] + "/" + m[2] + "@" + m[3], nil
	}
	h := sha256.New()
	buf := make([]byte, sampleBytes)
	for _, t := range ix.Sorted() {
		hashTensor(h, t)
		p := buf[:min(sampleBytes, t.Len())]
		if err := f.ReadAt(ctx, t.File, p, t.Begin); err != nil {
			return "", fmt.Errorf("reading tensor %q: %w", t.Name, err)
		}
		hashBytes(h, p)
	}
	config, err := f.ReadFile(ctx, "config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	hashBytes(h, config)
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// hashTensor writes name, dtype and shape; every part is preceded by its length, so that no two lists read the same.
func hashTensor(w io.Writer, t Tensor) {
	hashBytes(w, []byte(t.Name))
	hashBytes(w, []byte(t.DType))
	dims := binary.LittleEndian.AppendUint64(nil, uint64(len(t.Shape)))
	for _, d := range t.Shape {
		dims = binary.LittleEndian.AppendUint64(dims, uint64(d))
	}
	w.Write(dims)
}

// hashBytes writes p preceded by its length.
func hashBytes(w io.Writer, p []byte) {
	w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(p))))
	w.Write(p)
}

// Fetch has nothing to do: the files are here.
func (f *FS) Fetch(_ context.Context, ranges []Range, progress func(n int64)) error {
	return reportAll(ranges, progress)
}

// reportAll tells progress that ranges need no work.
func reportAll(ranges []Range, progress func(n int64)) error {
	if progress != nil {
		for _, r := range mergeRanges(ranges, FetchGap) {
			progress(r.Len())
		}
	}
	return nil
}

func (f *FS) ReadAt(ctx context.Context, file string, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	of, err := f.file(file)
	if err != nil {
		return fmt.Errorf("reading %q: %w", file, err)
	}
	n, err := f.readAt(of, p, off)
	f.bytes.Add(int64(n))
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("reading %q: file is truncated: bytes %d to %d wanted, found %d",
			file, off, off+int64(len(p)), off+int64(n))
	}
	return fmt.Errorf("reading %q: %w", file, bareError(err))
}

func (f *FS) readAt(of *openFile, p []byte, off int64) (int, error) {
	if of.at != nil {
		return of.at.ReadAt(p, off)
	}
	seeker, ok := of.File.(io.Seeker)
	if !ok {
		return 0, errors.New("file system supports neither ReadAt nor Seek")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := seeker.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	return io.ReadFull(of.File, p)
}

// file returns a weight file, opened once.
func (f *FS) file(name string) (*openFile, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of := f.open[name]; of != nil {
		return of, nil
	}
	if f.closed {
		return nil, fs.ErrClosed
	}
	file, err := f.fsys.Open(name)
	if err != nil {
		return nil, bareError(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		file.Close()
		return nil, bareError(err)
	}
	of := &openFile{File: file, size: info.Size(), modified: info.ModTime()}
	of.at, _ = file.(io.ReaderAt)
	f.open[name] = of
	return of, nil
}

func (f *FS) prefix(ctx context.Context, file string, n int64) ([]byte, int64, error) {
	of, err := f.file(file)
	if err != nil {
		return nil, 0, err
	}
	p := make([]byte, min(n, of.size))
	return p, of.size, f.ReadAt(ctx, file, p, 0)
}

func (f *FS) Stats() Stats { return Stats{Bytes: f.bytes.Load()} }

// Close closes the weight files. Reads that follow fail.
func (f *FS) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var errs []error
	for name, of := range f.open {
		errs = append(errs, of.Close())
		delete(f.open, name)
	}
	return errors.Join(errs...)
}
