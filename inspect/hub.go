package inspect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// fetchStreams is how many requests of one Fetch run at once.
const fetchStreams = 4

// Hub is a Source over one commit of a hub repository. What is in the standard cache is read from there; what is
// fetched goes to a cache of our own beside it, range by range.
type Hub struct {
	id, revision, commit string
	env                  hubEnv
	client               *hubClient
	snapshot             string // folder of the commit in the standard cache; may not exist
	cache                commitCache
	cached               atomic.Int64

	fetching chan struct{} // holds one token; who takes it may fetch

	mu    sync.Mutex
	parts map[string]*partFile

	indexMu sync.Mutex
	index   *Index
}

// OpenHub finds the commit of a revision ("" means main) of repository id, by asking the hub, or from the caches when
// HF_HUB_OFFLINE is set. A full commit hash is taken as it is.
func OpenHub(ctx context.Context, id, revision string, opts Options) (*Hub, error) {
	if revision == "" {
		revision = "main"
	}
	fail := func(err error) (*Hub, error) { return nil, fmt.Errorf("opening model %s@%s: %w", id, revision, err) }
	if err := errors.Join(opts.Validate(), checkRepoID(id), checkRevision(revision)); err != nil {
		return fail(err)
	}
	env, err := readHubEnv(opts)
	if err != nil {
		return fail(err)
	}
	h := &Hub{id: id, revision: revision, env: env, fetching: make(chan struct{}, 1), parts: map[string]*partFile{},
		client: newHubClient(env, id, revision, opts)}
	if h.commit, err = h.resolve(ctx); err != nil {
		return fail(err)
	}
	h.snapshot = filepath.Join(env.hubCache, "models--"+repoFolder(id), "snapshots", h.commit)
	h.cache = commitCache{filepath.Join(env.ownCache, repoFolder(id), h.commit)}
	return h, nil
}

// resolve pins the revision to a commit.
func (h *Hub) resolve(ctx context.Context) (string, error) {
	if commitHash.MatchString(h.revision) {
		return h.revision, nil
	}
	known := h.cachedCommit()
	if h.env.offline {
		if known == "" {
			return "", errors.New("HF_HUB_OFFLINE is set and the caches do not know this revision")
		}
		return known, nil
	}
	commit, err := h.client.commit(ctx)
	if err != nil {
		if known != "" && !isFatal(err) && ctx.Err() == nil {
			err = fmt.Errorf("%w (commit %s was used before: HF_HUB_OFFLINE=1 or revision %s use it again)", err, known, known)
		}
		return "", err
	}
	if commit != known {
		if err := writeAtomic(h.ownRef(), []byte(commit)); err != nil {
			return "", err
		}
	}
	return commit, nil
}

func (h *Hub) ownRef() string {
	return filepath.Join(h.env.ownCache, repoFolder(h.id), "refs", filepath.FromSlash(h.revision))
}

// cachedCommit is the newer of what the standard cache and ours last learned about the revision, or "".
func (h *Hub) cachedCommit() string {
	standard := filepath.Join(h.env.hubCache, "models--"+repoFolder(h.id), "refs", filepath.FromSlash(h.revision))
	var newest fs.FileInfo
	commit := ""
	for _, path := range []string{standard, h.ownRef()} {
		data, err := os.ReadFile(path)
		if err != nil || !commitHash.MatchString(strings.TrimSpace(string(data))) {
			continue
		}
		info, err := os.Stat(path)
		if err != nil || newest != nil && !info.ModTime().After(newest.ModTime()) {
			continue
		}
		newest, commit = info, strings.TrimSpace(string(data))
	}
	return commit
}

// ID is "org/name@COMMIT".
func (h *Hub) ID() string { return h.id + "@" + h.commit }

// Commit is the full hash that the revision stands for.
func (h *Hub) Commit() string { return h.commit }

func (h *Hub) Location() string {
	if h.revision == h.commit {
		return fmt.Sprintf("%s@%s (%s)", h.id, h.commit, h.env.endpoint)
	}
	return fmt.Sprintf("%s@%s (%s, commit %s)", h.id, h.revision, h.env.endpoint, h.commit)
}

// errOffline is why a file that no cache holds cannot be had.
func (h *Hub) errOffline(file string) error {
	return fatalf("HF_HUB_OFFLINE is set and %s of %s is not in %s or %s", file, h.ID(), h.env.hubCache, h.env.ownCache)
}

func (h *Hub) ReadFile(ctx context.Context, name string) ([]byte, error) {
	data, err := h.readFile(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return data, nil
}

func (h *Hub) readFile(ctx context.Context, name string) ([]byte, error) {
	if err := checkFileName(name); err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(filepath.Join(h.snapshot, filepath.FromSlash(name))); err == nil {
		h.cached.Add(int64(len(data)))
		return data, nil
	}
	if data, err := h.cache.readWhole(name); err == nil {
		h.cached.Add(int64(len(data)))
		return data, nil
	}
	if h.knownAbsent(name) {
		return nil, fs.ErrNotExist
	}
	if h.env.offline {
		return nil, h.errOffline(name)
	}
	var data []byte
	err := h.client.retry(ctx, func() (n int64, err error) {
		data, err = h.download(ctx, name)
		return 0, err
	})
	if err != nil {
		return nil, h.noteAbsent(name, err)
	}
	return data, h.cache.writeWhole(name, data)
}

// knownAbsent says whether the commit is known to lack a file: by our cache, by the standard cache's own notes, or
// because a snapshot there holds the other form of the weights, or is complete as far as can be seen and all there is.
func (h *Hub) knownAbsent(name string) bool {
	has := func(elem ...string) bool {
		_, err := os.Stat(filepath.Join(elem...))
		return err == nil
	}
	noted := filepath.Join(h.snapshot, "..", "..", ".no_exist", h.commit, filepath.FromSlash(name))
	switch {
	case h.cache.isAbsent(name), has(noted):
		return true
	case name == singleFile:
		return has(h.snapshot, shardIndex)
	case strings.HasSuffix(name, ".safetensors"):
		return false // a shard that was not downloaded yet
	}
	return h.env.offline && has(h.snapshot, "config.json") && (has(h.snapshot, singleFile) || has(h.snapshot, shardIndex))
}

// noteAbsent remembers that the hub knows no such file. A 404 that does not say so may come from a broken mirror.
func (h *Hub) noteAbsent(file string, err error) error {
	if errors.Is(err, errNoEntry) {
		if cacheErr := h.cache.writeAbsent(file); cacheErr != nil {
			return cacheErr
		}
	}
	return err
}

// download makes one attempt to get a whole file. Where the hub's ETag is a SHA-256, the content is held to it.
func (h *Hub) download(ctx context.Context, name string) ([]byte, error) {
	data, a, err := h.client.readAll(ctx, h.client.resolveURL(h.commit, name), name, maxSmall)
	if err != nil {
		return nil, err
	}
	if a.commit != "" && a.commit != h.commit {
		return nil, fatalf("hub answered for commit %s, asked for %s", a.commit, h.commit)
	}
	if sum := sha256.Sum256(data); len(a.etag) == 64 && a.linkedSize >= 0 && a.etag != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("content has SHA-256 %x, the hub says %s", sum, a.etag)
	}
	return data, nil
}

// Index reads the headers once; a failed attempt may be repeated.
func (h *Hub) Index(ctx context.Context) (*Index, error) {
	h.indexMu.Lock()
	defer h.indexMu.Unlock()
	if h.index != nil {
		return h.index, nil
	}
	ix, err := buildIndex(ctx, h)
	if err != nil {
		return nil, err
	}
	h.index = ix
	return ix, nil
}

// prefix reads the head of a weight file, with one request when nothing of it is held.
func (h *Hub) prefix(ctx context.Context, file string, n int64) ([]byte, int64, error) {
	if f, info, err := h.openLocal(file); err == nil {
		defer f.Close()
		p := make([]byte, min(n, info.Size()))
		_, err := f.ReadAt(p, 0)
		h.cached.Add(int64(len(p)))
		return p, info.Size(), err
	}
	if h.knownAbsent(file) {
		return nil, 0, fs.ErrNotExist
	}
	pf := h.partFile(file)
	if size, known := pf.size(); known {
		n = min(n, size)
	}
	held := n - partsLen(pf.missing(0, n))
	if err := h.fetch(ctx, []Range{{file, 0, n}}, func(int64) {}); err != nil {
		return nil, 0, h.noteAbsent(file, err)
	}
	h.cached.Add(held)
	size, _ := pf.size()
	p := make([]byte, min(n, size))
	return p, size, pf.readAt(p, 0)
}

func partsLen(parts []part) (n int64) {
	for _, p := range parts {
		n += p.end - p.begin
	}
	return n
}

// openLocal opens a weight file of the standard cache.
func (h *Hub) openLocal(file string) (*os.File, fs.FileInfo, error) {
	f, err := os.Open(filepath.Join(h.snapshot, filepath.FromSlash(file)))
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func (h *Hub) partFile(file string) *partFile {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts[file] == nil {
		h.parts[file] = h.cache.part(file)
	}
	return h.parts[file]
}

// Fetch brings what no cache holds, one request per run of ranges at most FetchGap apart.
func (h *Hub) Fetch(ctx context.Context, ranges []Range, progress func(n int64)) error {
	runs := mergeRanges(ranges, FetchGap)
	total := int64(0)
	for _, r := range runs {
		if err := checkFileName(r.File); err != nil || r.Begin < 0 {
			return fmt.Errorf("fetching %q from byte %d: not a range of a file", r.File, r.Begin)
		}
		total += r.Len()
	}
	var mu sync.Mutex // orders the calls of progress
	report := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		if n = min(n, total); n > 0 && progress != nil {
			progress(n)
		}
		total -= n
	}
	select {
	case h.fetching <- struct{}{}:
		defer func() { <-h.fetching }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := h.fetch(ctx, runs, report); err != nil {
		return err
	}
	report(total)
	return nil
}

// fetch brings the missing pieces of runs.
func (h *Hub) fetch(ctx context.Context, runs []Range, report func(int64)) error {
	var wanted []Range
	for _, r := range runs {
		if f, _, err := h.openLocal(r.File); err == nil {
			f.Close()
			continue
		}
		pf := h.partFile(r.File)
		pf.reload()
		missing := pf.missing(r.Begin, r.End)
		report(r.Len() - partsLen(missing))
		for _, s := range missing {
			wanted = append(wanted, Range{r.File, s.begin, s.end})
		}
	}
	wanted = mergeRanges(wanted, FetchGap)
	if len(wanted) > 0 && h.env.offline {
		return h.errOffline(wanted[0].File)
	}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchStreams)
	for _, r := range wanted {
		group.Go(func() error {
			err := h.client.fetchRange(gctx, h.commit, r.File, h.partFile(r.File), r.Begin, r.End, report)
			if err != nil {
				return fmt.Errorf("fetching %q of %s, bytes %d to %d: %w", r.File, h.ID(), r.Begin, r.End, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// ReadAt reads from the caches; bytes that are in none are fetched.
func (h *Hub) ReadAt(ctx context.Context, file string, p []byte, off int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.readAt(ctx, file, p, off); err != nil {
		return fmt.Errorf("reading %q of %s, bytes %d to %d: %w", file, h.ID(), off, off+int64(len(p)), err)
	}
	return nil
}

func (h *Hub) readAt(ctx context.Context, file string, p []byte, off int64) error {
	if err := checkFileName(file); err != nil {
		return err
	}
	if f, info, err := h.openLocal(file); err == nil {
		defer f.Close()
		n, err := f.ReadAt(p, off)
		h.cached.Add(int64(n))
		if err == io.EOF && n < len(p) {
			return fmt.Errorf("file is truncated: found %d bytes", info.Size())
		}
		if n == len(p) {
			err = nil
		}
		return err
	}
	pf := h.partFile(file)
	err := pf.readAt(p, off)
	if errors.Is(err, errNotHeld) {
		if size, known := pf.size(); known && off+int64(len(p)) > size {
			return fmt.Errorf("file has %d bytes", size)
		}
		if err := h.Fetch(ctx, []Range{{file, off, off + int64(len(p))}}, nil); err != nil {
			return err
		}
		return pf.readAt(p, off)
	}
	if err == nil {
		h.cached.Add(int64(len(p)))
	}
	return err
}

// Stats counts the network. Cached counts what was read from a cache instead, fetched ranges read back included.
func (h *Hub) Stats() Stats {
	return Stats{Bytes: h.client.bytes.Load(), Requests: h.client.requests.Load(), Cached: h.cached.Load()}
}

// Close gives up idle connections. Nothing else is held open.
func (h *Hub) Close() error {
	h.client.http.CloseIdleConnections()
	return nil
}
