package stage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"dchain/inspect"
	"dchain/units"
)

// A packed file keeps the matrices of a stage as the device works on them, so that the next process maps them instead
// of reading, quantising and laying them out. It belongs to this machine and is neither portable nor trusted beyond the
// folder it lies in: whoever can write there can also replace the program.
//
//	matrices  each at a multiple of packedAlign, zeros between
//	index     packedIndex as JSON
//	trailer   SHA-256 of the index, its length (u64, little-endian), packedMagic
//
// The index holds a CRC-32C for every block of the matrices. They guard against what happens to files: a cut, a hole,
// a page of something else, a flipped bit. A CRC-32C misses one in 2^32 damaged blocks and no damage of up to 32 bits
// in a row, file systems rely on it for the same purpose, and processors compute it as fast as they read memory, where
// SHA-256 would make a start several times slower. What the CRCs are is itself under the SHA-256 of the index.
//
// Files are written under another name, synced and renamed, and never changed, so a mapping stays what was checked.
const (
	// packedVersion changes with the format, and with any change of what a matrix is made of that the fingerprint of the
	// model and the packing of the device do not tell.
	packedVersion = 1
	packedMagic   = "dchainpw"
	packedAlign   = 64
	packedBlock   = 2 << 20 // a large page
	trailerBytes  = sha256.Size + 8 + len(packedMagic)
	maxIndexBytes = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packedIndex describes a packed file.
type packedIndex struct {
	Key      string         `json:"key"`   // packedKey
	Model    string         `json:"model"` // for people
	Matrices []packedMatrix `json:"matrices"`
	Blocks   []uint32       `json:"blocks"` // of packedBlock bytes, the last one shorter
}

// packedMatrix is where a matrix lies.
type packedMatrix struct {
	Name   string `json:"name"` // matrixPart.String
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
}

// packedKey names everything that the bytes of a packed file depend on.
func packedKey(m *inspect.Model, packing string, opts *LoadOptions) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n%x\n%d-%d %v\n%s\n", packedVersion, m.Fingerprint(opts.Mode.String(), units.NumericsVersion),
		opts.Range.First, opts.Range.Last, opts.Readout, packing)
	if opts.Embed && !opts.Readout {
		fmt.Fprintln(h, "embed")
	}
	for _, f := range m.Index.Files { // the fingerprint of a folder knows a sample of its bytes only
		fmt.Fprintf(h, "%q %d %s\n", f.Name, f.Size, f.Modified.UTC().Format(time.RFC3339Nano))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// packedPath is the file of a key. Its name tells people what it is for, and a key's first digits tell it apart.
func packedPath(m *inspect.Model, key string, opts *LoadOptions) string {
	model, _, _ := strings.Cut(m.Source.ID(), "@")
	model = strings.Map(func(r rune) rune {
		if strings.ContainsRune("/:\\", r) {
			return '-'
		}
		return r
	}, model)
	part := "none"
	if opts.Range.Len() > 0 {
		part = opts.Range.String()
	}
	if opts.Readout {
		part += "+head"
	}
	return filepath.Join(opts.Cache, fmt.Sprintf("%.40s.%s.%v.%.16s.packed", model, part, opts.Mode, key))
}

// packedError says why a packed file cannot be used.
type packedError struct {
	path string
	err  error
}

func (e *packedError) Error() string { return fmt.Sprintf("packed weights %s: %v", e.path, e.err) }
func (e *packedError) Unwrap() error { return e.err }

// packedFile is a packed file that has been checked. Its matrices are taken in the order in which they were written.
type packedFile struct {
	path  string
	index packedIndex
	data  []byte // the matrices, read only
	taken int
}

// openPacked maps the file at path and compares every byte with the index. Failures are *packedError; a file that is
// not there is fs.ErrNotExist.
func openPacked(ctx context.Context, path, key string, workers int) (*packedFile, error) {
	p := &packedFile{path: path}
	f, err := os.Open(path)
	if err != nil {
		return nil, p.fail(err)
	}
	defer f.Close()
	size, err := p.readIndex(f, key)
	if err != nil {
		return nil, p.fail(err)
	}
	if p.data, err = mapFile(f, size); err != nil {
		return nil, p.fail(err)
	}
	if err := p.verify(ctx, workers); err != nil {
		p.close()
		return nil, p.fail(err)
	}
	return p, nil
}

func (p *packedFile) fail(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) { // the path is named already
		err = pe.Err
	}
	return &packedError{p.path, err}
}

var errNoPacked = errors.New("it is damaged: its end is none of a packed file")

// readIndex reads and checks the index and returns how many bytes the matrices take.
func (p *packedFile) readIndex(f *os.File, key string) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var trailer [trailerBytes]byte
	at := info.Size() - int64(len(trailer))
	if at < 0 {
		return 0, errNoPacked
	}
	if _, err := f.ReadAt(trailer[:], at); err != nil {
		return 0, err
	}
	length := binary.LittleEndian.Uint64(trailer[sha256.Size:])
	if string(trailer[sha256.Size+8:]) != packedMagic || length > uint64(min(at, maxIndexBytes)) {
		return 0, errNoPacked
	}
	size := at - int64(length)
	text := make([]byte, length)
	if _, err := f.ReadAt(text, size); err != nil {
		return 0, err
	}
	if sha256.Sum256(text) != [sha256.Size]byte(trailer[:sha256.Size]) {
		return 0, errors.New("it is damaged: its index has another hash")
	}
	if err := json.Unmarshal(text, &p.index); err != nil {
		return 0, fmt.Errorf("its index: %w", err)
	}
	if p.index.Key != key {
		return 0, errors.New("it was made for another model or layout")
	}
	return size, p.index.check(size)
}

// check refuses an index that points outside of size bytes of matrices.
func (x *packedIndex) check(size int64) error {
	if size <= 0 || size > math.MaxInt || int64(len(x.Blocks)) != (size+packedBlock-1)/packedBlock {
		return fmt.Errorf("it is damaged: its index has %d blocks for %d bytes", len(x.Blocks), size)
	}
	for _, m := range x.Matrices {
		if m.Offset < 0 || m.Bytes < 0 || m.Offset%packedAlign != 0 || m.Offset > size-m.Bytes {
			return fmt.Errorf("it is damaged: its index puts %s at byte %d of %d", m.Name, m.Offset, size)
		}
	}
	return nil
}

// verify compares every block with the index, several at a time.
func (p *packedFile) verify(ctx context.Context, workers int) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(p.index.Blocks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				block := p.data[i*packedBlock : min((i+1)*packedBlock, len(p.data))]
				if err := populate(block); err != nil {
					return fmt.Errorf("reading block %d: %w", i, err)
				}
				if crc32.Checksum(block, castagnoli) != p.index.Blocks[i] {
					return fmt.Errorf("it is damaged: bytes %d to %d have another checksum", i*packedBlock, i*packedBlock+len(block)-1)
				}
			}
		})
	}
	return g.Wait()
}

// take returns the bytes of the next matrix, which must be the named one.
func (p *packedFile) take(name string) ([]byte, error) {
	if p.taken == len(p.index.Matrices) {
		return nil, p.fail(fmt.Errorf("it lacks %s", name))
	}
	m := p.index.Matrices[p.taken]
	if m.Name != name {
		return nil, p.fail(fmt.Errorf("it holds %s in place of %s", m.Name, name))
	}
	p.taken++
	end := m.Offset + m.Bytes
	return p.data[m.Offset:end:end], nil
}

// close unmaps the file. Idempotent.
func (p *packedFile) close() error {
	if p.data == nil {
		return nil
	}
	data := p.data
	p.data = nil
	return unmapFile(data)
}
