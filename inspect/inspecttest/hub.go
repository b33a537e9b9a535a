// Package inspecttest runs a hub in this process for tests: two servers that behave like the real one, the hub and its
// storage host, with faults that can be switched on, and a log of every request.
package inspecttest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Hub serves repositories. Large files are redirected to the storage host under signed addresses, small ones to another
// path of the hub, as the real one does. Its methods are safe for concurrent use.
type Hub struct {
	hub, storage *httptest.Server

	mu     sync.Mutex
	repos  map[string]*repo
	faults []*Fault
	log    []Request
	signed int // number of the last signed address
	valid  int // addresses up to this number have expired
	leaked bool
	closed chan struct{}
}

type repo struct {
	commits   map[string]map[string]File
	revisions map[string]string
	token     string // needed to read; "" for a public repository
	gated     bool   // a missing token is answered as for a gated repository, else as for a private one
}

// Request is one request as a server saw it.
type Request struct {
	Storage bool   // to the storage host
	Path    string // without query
	Range   string // Range header
	Status  int
	Bytes   int64 // of the body, as far as sent
	Token   bool  // an Authorization header came along
}

// NewHub starts both servers. The caller calls Close.
func NewHub() *Hub {
	h := &Hub{repos: map[string]*repo{}, closed: make(chan struct{})}
	h.hub = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, false) }))
	h.storage = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.serve(w, r, true) }))
	return h
}

// Close stops both servers and releases requests that a fault holds.
func (h *Hub) Close() {
	close(h.closed)
	for _, s := range []*httptest.Server{h.hub, h.storage} {
		s.CloseClientConnections()
		s.Close()
	}
}

// URL is the address for HF_ENDPOINT.
func (h *Hub) URL() string { return h.hub.URL }

// Env is an environment in which the hub is found and home is HF_HOME. more holds further names and values.
func (h *Hub) Env(home string, more ...string) func(string) string {
	env := map[string]string{"HF_ENDPOINT": h.URL(), "HF_HOME": home, "HOME": home}
	for i := 0; i+1 < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return func(name string) string { return env[name] }
}

// AddCommit adds a commit to a repository, made if there is none, and points the revisions at it.
func (h *Hub) AddCommit(id, commit string, files map[string]File, revisions ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[id]
	if r == nil {
		r = &repo{commits: map[string]map[string]File{}, revisions: map[string]string{}}
		h.repos[id] = r
	}
	r.commits[commit] = maps.Clone(files)
	for _, rev := range revisions {
		r.revisions[rev] = commit
	}
}

// Protect makes a repository need a token, as a gated or as a private one.
func (h *Hub) Protect(id, token string, gated bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[id].token, h.repos[id].gated = token, gated
}

// Replace changes a file under a commit, which a hub must never do.
func (h *Hub) Replace(id, commit, name string, f File) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[id].commits[commit][name] = f
}

// ExpireURLs makes the storage host refuse every address signed so far.
func (h *Hub) ExpireURLs() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.valid = h.signed
}

// Requests returns the log so far.
func (h *Hub) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.log)
}

// Reset empties the log.
func (h *Hub) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = nil
}

// Sent sums the bytes of all bodies in the log.
func (h *Hub) Sent() (n int64) {
	for _, r := range h.Requests() {
		n += r.Bytes
	}
	return n
}

// TokenLeaked says whether an Authorization header ever reached the storage host.
func (h *Hub) TokenLeaked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leaked
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request, storage bool) {
	c := &counter{ResponseWriter: w}
	token := r.Header.Get("Authorization") != ""
	h.mu.Lock()
	h.leaked = h.leaked || storage && token
	f := h.fault(r.URL.Path, storage)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.log = append(h.log, Request{storage, r.URL.Path, r.Header.Get("Range"), c.status, c.bytes, token})
	}()
	if f != nil && f.Mute && f.CutAfter == 0 {
		h.hold(r)
		return
	}
	if f != nil && f.Status != 0 {
		maps.Copy(w.Header(), f.Header)
		c.WriteHeader(f.Status)
		return
	}
	switch {
	case storage:
		h.serveStored(c, r, f)
	case strings.HasPrefix(r.URL.Path, "/api/models/"):
		h.serveRevision(c, r)
	case strings.HasPrefix(r.URL.Path, "/api/resolve-cache/"):
		if file, ok := h.find(c, r, strings.TrimPrefix(r.URL.Path, "/api/resolve-cache/")); ok {
			h.serveFile(c, r, file, f)
		}
	default:
		h.serveResolve(c, r, f)
	}
}

// hold keeps a request waiting until the client or the test gives up.
func (h *Hub) hold(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-h.closed:
	}
}

// serveRevision answers /api/models/ORG/NAME/revision/REV.
func (h *Hub) serveRevision(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.EscapedPath(), "/api/models/"), "/", 4)
	if len(parts) != 4 || parts[2] != "revision" {
		refuse(w, http.StatusNotFound, "", "no such route")
		return
	}
	id := parts[0] + "/" + parts[1]
	rev, _ := url.PathUnescape(parts[3])
	h.mu.Lock()
	defer h.mu.Unlock()
	repo, ok := h.admitLocked(w, r, id)
	if !ok {
		return
	}
	commit := repo.revisions[rev]
	if repo.commits[rev] != nil {
		commit = rev
	}
	if commit == "" {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+rev)
		return
	}
	type sibling struct {
		Name string `json:"rfilename"`
	}
	var siblings []sibling
	for _, name := range slices.Sorted(maps.Keys(repo.commits[commit])) {
		siblings = append(siblings, sibling{name})
	}
	json.NewEncoder(w).Encode(map[string]any{"id": id, "sha": commit, "siblings": siblings})
}

// admitLocked finds a repository that the request may read, or answers.
func (h *Hub) admitLocked(w http.ResponseWriter, r *http.Request, id string) (*repo, bool) {
	repo := h.repos[id]
	auth := r.Header.Get("Authorization")
	switch {
	case repo != nil && (repo.token == "" || auth == "Bearer "+repo.token):
		return repo, true
	case repo != nil && repo.gated && strings.HasPrefix(r.URL.Path, "/api/models/"):
		return repo, true // what a gated repository is called is public, only its files are not
	case repo != nil && repo.gated && auth == "":
		refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+id+" is restricted.")
	case repo != nil && repo.gated:
		refuse(w, http.StatusForbidden, "GatedRepo", "You are not in the authorized list.")
	case auth == "":
		refuse(w, http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
	default:
		refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	}
	return nil, false
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	http.Error(w, message, status)
}

// find looks up ORG/NAME/COMMIT/FILE, or answers.
func (h *Hub) find(w http.ResponseWriter, r *http.Request, path string) (File, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := strings.SplitN(path, "/", 4)
	if len(parts) != 4 {
		refuse(w, http.StatusNotFound, "", "no such route")
		return File{}, false
	}
	repo, ok := h.admitLocked(w, r, parts[0]+"/"+parts[1])
	if !ok {
		return File{}, false
	}
	commit := repo.commits[parts[2]]
	if commit == nil {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+parts[2])
		return File{}, false
	}
	file, ok := commit[parts[3]]
	if !ok {
		w.Header().Set("X-Repo-Commit", parts[2])
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
	}
	return file, ok
}

// serveResolve answers /ORG/NAME/resolve/COMMIT/FILE with a redirect.
func (h *Hub) serveResolve(w http.ResponseWriter, r *http.Request, f *Fault) {
	path := strings.Replace(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/", "/", 1)
	file, ok := h.find(w, r, path)
	if !ok {
		return
	}
	commit := strings.SplitN(path, "/", 4)[2]
	w.Header().Set("X-Repo-Commit", commit)
	if !file.Stored {
		w.Header().Set("Location", "/api/resolve-cache/"+path)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	h.mu.Lock()
	h.signed++
	address := fmt.Sprintf("%s/%s?signature=%d", h.storage.URL, path, h.signed)
	h.mu.Unlock()
	w.Header().Set("X-Linked-Size", strconv.FormatInt(file.Size, 10))
	w.Header().Set("X-Linked-Etag", strconv.Quote(file.ETag))
	w.Header().Set("Location", address)
	if f != nil && f.Header != nil {
		maps.Copy(w.Header(), f.Header)
	}
	w.WriteHeader(http.StatusFound)
	io.WriteString(w, "Found. Redirecting to the storage host")
}

// serveStored answers on the storage host, which knows signatures and no tokens.
func (h *Hub) serveStored(w http.ResponseWriter, r *http.Request, f *Fault) {
	signature, err := strconv.Atoi(r.URL.Query().Get("signature"))
	h.mu.Lock()
	expired := err != nil || signature <= h.valid
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	var file File
	if len(parts) == 4 && h.repos[parts[0]+"/"+parts[1]] != nil {
		file = h.repos[parts[0]+"/"+parts[1]].commits[parts[2]][parts[3]]
	}
	h.mu.Unlock()
	if expired || file.Data == nil {
		http.Error(w, "<Error><Code>AccessDenied</Code></Error>", http.StatusForbidden)
		return
	}
	h.serveFile(w, r, file, f)
}

// serveFile sends a file or a range of it, with the faults of bodies.
func (h *Hub) serveFile(w http.ResponseWriter, r *http.Request, file File, f *Fault) {
	if f == nil {
		f = &Fault{}
	}
	begin, end, status := int64(0), file.Size, http.StatusOK
	w.Header().Set("ETag", strconv.Quote(file.ETag))
	if s := r.Header.Get("Range"); s != "" && !f.IgnoreRange {
		var last int64
		if n, _ := fmt.Sscanf(s, "bytes=%d-%d", &begin, &last); n != 2 || begin >= file.Size {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", file.Size))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		end, status = min(last+1, file.Size), http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", begin, end-1, file.Size))
	}
	maps.Copy(w.Header(), f.Header)
	w.Header().Set("Content-Length", strconv.FormatInt(end-begin, 10))
	w.WriteHeader(status)
	if f.CutAfter > 0 {
		end = min(end, begin+f.CutAfter)
	}
	if _, err := io.Copy(w, io.NewSectionReader(file.Data, begin, end-begin)); err != nil {
		return
	}
	if f.CutAfter > 0 {
		w.(*counter).Flush()
		if f.Mute {
			h.hold(r)
		}
		panic(http.ErrAbortHandler) // closes the connection in the middle of the body
	}
}

// counter notes what is sent.
type counter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *counter) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	n, err := c.ResponseWriter.Write(p)
	c.bytes += int64(n)
	return n, err
}

func (c *counter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// Fault is something that goes wrong for requests to a path.
type Fault struct {
	Path    string // part of the path it strikes, "" for every path
	Storage bool   // on the storage host instead of the hub
	Times   int    // how often; 0 means until Heal

	Status      int         // answer this, with Header
	Header      http.Header // or: add these headers to the right answer
	CutAfter    int64       // close the connection after so many bytes of the body
	Mute        bool        // say nothing at all, or with CutAfter: fall silent instead of closing
	IgnoreRange bool        // send the whole file
}

// Inject switches a fault on. The first that fits strikes.
func (h *Hub) Inject(f Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, &f)
}

// fault finds the fault that strikes a request and counts it. The caller holds the lock.
func (h *Hub) fault(path string, storage bool) *Fault {
	for i, f := range h.faults {
		if f.Storage != storage || !strings.Contains(path, f.Path) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				h.faults = slices.Delete(h.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}
