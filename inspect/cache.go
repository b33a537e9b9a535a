package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The local cache of one commit of a hub repository, apart from the standard cache because it holds parts of files:
//
//	files/NAME              whole small files
//	absent/NAME             empty: the commit has no such file
//	parts/NAME/meta.json    size and ETag of a large file
//	parts/NAME/BEGIN-END    bytes [BEGIN, END) of it
//
// Files are written under another name, synced, and renamed, so that what has its name is complete, and any number of
// processes may write at once. Parts may overlap. A commit never changes, so nothing is ever updated.

// partBytes is the length at which a part is closed while its stream goes on: what a crash can lose.
const partBytes = 64 << 20

// commitCache is the folder of one commit.
type commitCache struct{ dir string }

// readWhole returns a small file.
func (c commitCache) readWhole(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(c.dir, "files", filepath.FromSlash(name)))
}

func (c commitCache) isAbsent(name string) bool {
	_, err := os.Stat(filepath.Join(c.dir, "absent", filepath.FromSlash(name)))
	return err == nil
}

func (c commitCache) writeWhole(name string, data []byte) error {
	return writeAtomic(filepath.Join(c.dir, "files", filepath.FromSlash(name)), data)
}

func (c commitCache) writeAbsent(name string) error {
	return writeAtomic(filepath.Join(c.dir, "absent", filepath.FromSlash(name)), nil)
}

// fileMeta is what must not change between the requests for one file.
type fileMeta struct {
	Size int64  `json:"size"`
	ETag string `json:"etag"`
}

// partFile is a large file of which some ranges are held.
type partFile struct {
	dir string

	mu    sync.Mutex
	meta  *fileMeta // nil until the first answer
	parts []part    // sorted by begin
}

type part struct{ begin, end int64 }

func (p part) name() string { return fmt.Sprintf("%d-%d", p.begin, p.end) }

func (c commitCache) part(name string) *partFile {
	p := &partFile{dir: filepath.Join(c.dir, "parts", filepath.FromSlash(name))}
	p.reload()
	return p
}

// reload lists what this and other processes have written.
func (p *partFile) reload() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts = nil
	if p.meta == nil {
		var m fileMeta
		data, err := os.ReadFile(filepath.Join(p.dir, "meta.json"))
		if err != nil || json.Unmarshal(data, &m) != nil || m.Size < 0 {
			return
		}
		p.meta = &m
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue
		}
		if isStaleTemp(info) {
			os.Remove(filepath.Join(p.dir, e.Name()))
			continue
		}
		if s, ok := parsePart(e.Name()); ok && s.end <= p.meta.Size && info.Size() == s.end-s.begin {
			p.parts = append(p.parts, s)
		}
	}
	p.sortLocked()
}

func (p *partFile) sortLocked() {
	slices.SortFunc(p.parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end)) })
}

func parsePart(name string) (part, bool) {
	a, b, ok := strings.Cut(name, "-")
	begin, err1 := strconv.ParseInt(a, 10, 64)
	end, err2 := strconv.ParseInt(b, 10, 64)
	s := part{begin, end}
	return s, ok && err1 == nil && err2 == nil && 0 <= begin && begin < end && s.name() == name
}

// size is known once the first answer came.
func (p *partFile) size() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meta == nil {
		return 0, false
	}
	return p.meta.Size, true
}

// setMeta keeps the first answer's size and ETag and refuses a later one that differs.
func (p *partFile) setMeta(m fileMeta) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meta != nil {
		if old := *p.meta; old.Size != m.Size || old.ETag != "" && m.ETag != "" && old.ETag != m.ETag {
			return fatalf("file changed between requests: it had %d bytes and ETag %q, now %d bytes and ETag %q "+
				"(to start anew, delete %s)", old.Size, old.ETag, m.Size, m.ETag, p.dir)
		}
		return nil
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := writeAtomic(filepath.Join(p.dir, "meta.json"), data); err != nil {
		return fatal(err)
	}
	p.meta = &m
	return nil
}

// missing returns the subranges of [begin, end) that are not held.
func (p *partFile) missing(begin, end int64) []part {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []part
	for _, s := range p.parts {
		if s.end <= begin {
			continue
		}
		if s.begin >= end {
			break
		}
		if s.begin > begin {
			out = append(out, part{begin, s.begin})
		}
		begin = max(begin, s.end)
	}
	if begin < end {
		out = append(out, part{begin, end})
	}
	return out
}

// readAt fills buf from held parts. errNotHeld means that some of it is not, or no longer.
func (p *partFile) readAt(buf []byte, off int64) error {
	for len(buf) > 0 {
		s, ok := p.holding(off)
		if !ok {
			return errNotHeld
		}
		n := min(int64(len(buf)), s.end-off)
		if err := readPart(filepath.Join(p.dir, s.name()), buf[:n], off-s.begin); err != nil {
			return err
		}
		buf, off = buf[n:], off+n
	}
	return nil
}

var errNotHeld = errors.New("not in the local cache")

// holding returns the part that goes furthest from off.
func (p *partFile) holding(off int64) (best part, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.parts {
		if s.begin > off {
			break
		}
		if s.end > off && s.end > best.end {
			best, ok = s, true
		}
	}
	return best, ok
}

// readPart opens the file anew each time: an open costs microseconds, and a large model has more parts than a process
// may have descriptors.
func readPart(path string, buf []byte, off int64) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errNotHeld
	}
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return errNotHeld
	}
	return err
}

// partWriter writes a stream that begins at pos into parts. Close keeps what has arrived.
type partWriter struct {
	file  *partFile
	begin int64 // of the open part
	limit int64 // length of a part
	pos   int64
	tmp   *os.File
}

func (p *partFile) writer(begin int64) *partWriter {
	return &partWriter{file: p, begin: begin, limit: partBytes, pos: begin}
}

func (w *partWriter) Write(data []byte) (int, error) {
	written := 0
	for len(data) > 0 {
		if w.tmp == nil {
			f, err := CreateTemp(filepath.Join(w.file.dir, "part"))
			if err != nil {
				return written, fatal(err)
			}
			w.tmp, w.begin = f, w.pos
		}
		n := min(int64(len(data)), w.begin+w.limit-w.pos)
		if _, err := w.tmp.Write(data[:n]); err != nil {
			w.discard()
			return written, fatal(cacheError(err))
		}
		w.pos += n
		written += int(n)
		data = data[n:]
		if w.pos == w.begin+w.limit {
			if err := w.Close(); err != nil {
				return written, fatal(err)
			}
		}
	}
	return written, nil
}

func (w *partWriter) discard() {
	w.tmp.Close()
	os.Remove(w.tmp.Name())
	w.tmp, w.pos = nil, w.begin
}

// Close commits the open part, however short.
func (w *partWriter) Close() error {
	if w.tmp == nil {
		return nil
	}
	s := part{w.begin, w.pos}
	tmp := w.tmp
	w.tmp = nil
	if s.end == s.begin {
		tmp.Close()
		return os.Remove(tmp.Name())
	}
	if err := CommitTemp(tmp, filepath.Join(w.file.dir, s.name())); err != nil {
		return err
	}
	w.file.mu.Lock()
	defer w.file.mu.Unlock()
	w.file.parts = append(w.file.parts, s)
	w.file.sortLocked()
	return nil
}
