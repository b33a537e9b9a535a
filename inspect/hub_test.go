package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dchain/inspect"
	"dchain/inspect/inspecttest"
)

const (
	repoID = "tellers/tales"
	commit = "0123456789abcdef0123456789abcdef01234567"
)

// newHub serves testdata/tales-qwen2 as tellers/tales.

func newHub(t *testing.T) *inspecttest.Hub {
	t.Helper()
	files, err := inspecttest.FromFS(os.DirFS("../testdata/tales-qwen2"))
	if err != nil {
		t.Fatal(err)
	}
	h := inspecttest.NewHub()
	t.Cleanup(h.Close)
	h.AddCommit(repoID, commit, files, "main", "refs/pr/1")
	return h
}

// options are those of a client with short waits between attempts. Timeouts stay long, so that a loaded machine does
// not look like a silent hub; tests of silence shorten them.

func options(h *inspecttest.Hub, home string, env ...string) inspect.Options {
	return inspect.Options{Env: h.Env(home, env...), HeaderTimeout: 20 * time.Second, StallTimeout: 20 * time.Second,
		Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, Retries: 3}
}

func open(t *testing.T, model string, opts inspect.Options) *inspect.Model {
	t.Helper()
	m, err := inspect.Open(t.Context(), model, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// fetchAll fetches the weights of every layer and returns their bytes in one piece.

func fetchAll(ctx context.Context, m *inspect.Model) ([]byte, error) {
	tensors, err := m.StageTensors(0, m.Spec.Layers-1, true, true)
	if err != nil {
		return nil, err
	}
	ranges := inspect.CoalesceRanges(tensors, inspect.FetchGap)
	want, got := int64(0), int64(0)
	for _, r := range ranges {
		want += r.Len()
	}
	if err := m.Source.Fetch(ctx, ranges, func(n int64) { got += n }); err != nil {
		return nil, err
	}
	if got != want {
		return nil, errors.New("progress does not sum to the ranges")
	}
	var out []byte
	for _, r := range ranges {
		p := make([]byte, r.Len())
		if err := m.Source.ReadAt(ctx, r.File, p, r.Begin); err != nil {
			return nil, err
		}
		out = append(out, p...)
	}
	return out, nil
}

// localBytes is what fetchAll must give.

func localBytes(t *testing.T) []byte {
	t.Helper()
	data, err := fetchAll(t.Context(), open(t, "../testdata/tales-qwen2", inspect.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func checkAll(t *testing.T, m *inspect.Model) {
	t.Helper()
	got, err := fetchAll(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, localBytes(t)) {
		t.Fatal("fetched bytes differ from the file's")
	}
}

func TestHubRead(t *testing.T) {
	h := newHub(t)
	h.Protect(repoID, "hf_secret", true)
	m := open(t, repoID, options(h, t.TempDir(), "HF_TOKEN", "hf_secret"))
	if got, want := m.Source.ID(), repoID+"@"+commit; got != want {
		t.Errorf("ID is %q, want %q", got, want)
	}
	if m.Spec.Layers != 8 || m.Spec.Family != "qwen2" {
		t.Errorf("spec is %+v", m.Spec)
	}
	checkAll(t, m)
	if h.TokenLeaked() {
		t.Error("the token reached the storage host")
	}
	stored := 0
	for _, r := range h.Requests() {
		if r.Storage {
			stored++
		}
	}
	if stored != 2 {
		t.Errorf("%d requests to the storage host, want 2: header and weights", stored)
	}
	if got := m.Source.Stats(); got.Bytes != h.Sent() || got.Requests != int64(len(h.Requests())) {
		t.Errorf("stats are %+v, hub sent %d bytes in %d requests", got, h.Sent(), len(h.Requests()))
	}
}

func TestHubRevisions(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	for _, model := range []string{repoID, repoID + "@main", repoID + "@refs/pr/1", repoID + "@" + commit} {
		m := open(t, model, options(h, home))
		if got := m.Source.ID(); got != repoID+"@"+commit {
			t.Errorf("%s: ID is %q", model, got)
		}
		if loc := m.Source.Location(); !strings.Contains(loc, commit) || !strings.Contains(loc, h.URL()) {
			t.Errorf("%s: location is %q", model, loc)
		}
	}
	// Offline, a branch is the commit it last was, and one never asked for is unknown.
	if m := open(t, repoID+"@refs/pr/1", options(h, home, "HF_HUB_OFFLINE", "true")); m.Source.ID() != repoID+"@"+commit {
		t.Errorf("offline: ID is %q", m.Source.ID())
	}
	_, err := inspect.Open(t.Context(), repoID+"@dev", options(h, home, "HF_HUB_OFFLINE", "1"))
	if err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("offline, unknown branch: %v", err)
	}
	// A branch that moves is followed.
	files, err := inspecttest.FromFS(os.DirFS("../testdata/tales-llama"))
	if err != nil {
		t.Fatal(err)
	}
	h.AddCommit(repoID, strings.Repeat("b", 40), files, "main")
	if m := open(t, repoID, options(h, home)); m.Source.ID() != repoID+"@"+strings.Repeat("b", 40) || m.Spec.Layers != 6 {
		t.Errorf("moved branch: ID is %q", m.Source.ID())
	}
	_, err = inspect.Open(t.Context(), repoID+"@"+commit, inspect.Options{Revision: "main", Env: h.Env(home)})
	if err == nil || !strings.Contains(err.Error(), "contradicts") {
		t.Errorf("two revisions: %v", err)
	}
}

// TestHubMended holds faults that the client overcomes: the result is whole and equal.

func TestHubMended(t *testing.T) {
	weights := "model.safetensors"
	tests := []struct {
		name  string
		fault inspecttest.Fault
	}{
		{"429 with Retry-After", inspecttest.Fault{Path: "/api/", Times: 2, Status: 429, Header: http.Header{"Retry-After": {"1"}}}},
		{"503 from the hub", inspecttest.Fault{Path: "resolve/", Times: 3, Status: 503}},
		{"500 from the storage", inspecttest.Fault{Path: weights, Storage: true, Times: 2, Status: 500}},
		{"403 from the storage", inspecttest.Fault{Path: weights, Storage: true, Times: 2, Status: 403}},
		{"small file cut", inspecttest.Fault{Path: "resolve-cache/" + repoID + "/" + commit + "/config.json", Times: 1, CutAfter: 100}},
		{"header cut", inspecttest.Fault{Path: weights, Storage: true, Times: 1, CutAfter: 5}},
		{"body cut often", inspecttest.Fault{Path: weights, Storage: true, Times: 8, CutAfter: 800_000}},
		{"body falls silent", inspecttest.Fault{Path: weights, Storage: true, Times: 2, CutAfter: 100_000, Mute: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			h.Inject(tt.fault)
			opts := options(h, t.TempDir())
			if tt.fault.Mute {
				opts.StallTimeout = 200 * time.Millisecond
			}
			var retries atomic.Int32
			opts.OnRetry = func(r inspect.Retry) { retries.Add(1) }
			checkAll(t, open(t, repoID, opts))
			if retries.Load() == 0 {
				t.Error("the fault did not strike")
			}
		})
	}
}

// TestHubRefused holds faults that are errors, and what the errors say.

func TestHubRefused(t *testing.T) {
	weights := "model.safetensors"
	tests := []struct {
		name  string
		fault inspecttest.Fault
		want  string
	}{
		{"wrong Content-Range", inspecttest.Fault{Path: weights, Storage: true,
			Header: http.Header{"Content-Range": {"bytes 8-262151/7493160"}}}, "sends bytes 8-262151, asked for 0-262143"},
		{"Content-Range of another size", inspecttest.Fault{Path: weights, Storage: true,
			Header: http.Header{"Content-Range": {"bytes 0-262143/9999999"}}}, "7493160 bytes, its storage says 9999999"},
		{"Content-Range without size", inspecttest.Fault{Path: weights, Storage: true,
			Header: http.Header{"Content-Range": {"bytes 0-262143/*"}}}, "is not understood"},
		{"range ignored", inspecttest.Fault{Path: weights, Storage: true, IgnoreRange: true}, "sends the whole file"},
		{"416", inspecttest.Fault{Path: weights, Storage: true, Status: 416}, "has no bytes"},
		{"compressed", inspecttest.Fault{Path: weights, Storage: true,
			Header: http.Header{"Content-Encoding": {"br"}}}, `encoding "br"`},
		{"other commit", inspecttest.Fault{Path: "resolve/" + commit + "/" + weights,
			Header: http.Header{"X-Repo-Commit": {strings.Repeat("c", 40)}}}, "answered for commit ccc"},
		{"always 503", inspecttest.Fault{Path: "/api/", Status: 503}, "giving up: http://"},
		{"always cut", inspecttest.Fault{Path: weights, Storage: true, CutAfter: 1000}, "cut at byte"},
		{"always silent", inspecttest.Fault{Path: weights, Storage: true, CutAfter: 1000, Mute: true}, "nothing arrived for 200ms"},
		{"always 403 from the storage", inspecttest.Fault{Path: weights, Storage: true, Status: 403}, "storage address is refused"},
		{"redirect loop", inspecttest.Fault{Path: "/tales/", Status: 302, Header: http.Header{"Location": {"/tellers/tales/again"}}},
			"redirects more than 5 times"},
		{"redirect to nowhere", inspecttest.Fault{Path: "resolve/", Status: 302}, "without an address"},
		{"redirect to a file", inspecttest.Fault{Path: "resolve/", Status: 302, Header: http.Header{"Location": {"file:///etc/passwd"}}},
			"less secure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			h.Inject(tt.fault)
			opts := options(h, t.TempDir(), "HF_TOKEN", "hf_secret")
			if tt.fault.Mute {
				opts.StallTimeout = 200 * time.Millisecond
			}
			m, err := inspect.Open(t.Context(), repoID, opts)
			if err == nil {
				_, err = fetchAll(t.Context(), m)
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error is %v, want %q in it", err, tt.want)
			}
			if strings.Contains(err.Error(), "hf_secret") || strings.Contains(err.Error(), "signature") {
				t.Errorf("error tells a secret: %v", err)
			}
		})
	}
}

func TestHubMuteServer(t *testing.T) {
	h := newHub(t)
	h.Inject(inspecttest.Fault{Path: "/api/", Mute: true})
	opts := options(h, t.TempDir())
	opts.HeaderTimeout, opts.Retries = 50*time.Millisecond, 1
	_, err := inspect.Open(t.Context(), repoID, opts)
	if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Fatalf("error is %v", err)
	}
}

func TestHubAccess(t *testing.T) {
	tests := []struct {
		name, model, token string
		gated              bool
		want               []string
	}{
		{"gated, no token", repoID, "", true, []string{"is gated: request access at http://", "/tellers/tales and set HF_TOKEN"}},
		{"gated, other token", repoID, "hf_wrong", true, []string{"is gated: request access at http://", "with the account of your token"}},
		{"private, no token", repoID, "", false, []string{"repository tellers/tales is not at http://", "check the name, or set HF_TOKEN"}},
		{"private, other token", repoID, "hf_wrong", false, []string{"is not at http://", "the one in use has none"}},
		{"missing repository", "tellers/nothing", "hf_right", false, []string{"repository tellers/nothing is not at"}},
		{"missing branch", repoID + "@dev", "hf_right", false, []string{`tellers/tales has no revision "dev"`, "/tree/main"}},
		{"missing commit", repoID + "@" + strings.Repeat("d", 40), "hf_right", false, []string{"has no revision \"ddd"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			h.Protect(repoID, "hf_right", tt.gated)
			_, err := inspect.Open(t.Context(), tt.model, options(h, t.TempDir(), "HF_TOKEN", tt.token))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %v, want %q in it", err, want)
				}
			}
			if tt.token != "" && strings.Contains(err.Error(), tt.token) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error tells the token or has many lines: %v", err)
			}
		})
	}
}

func TestHubNoWeights(t *testing.T) {
	h := newHub(t)
	h.AddCommit("tellers/empty", commit, map[string]inspecttest.File{"config.json": inspecttest.Small([]byte("{}"))}, "main")
	_, err := inspect.Open(t.Context(), "tellers/empty", options(h, t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "only safetensors weights") {
		t.Errorf("error is %v", err)
	}
}

func TestHubExpiredAddress(t *testing.T) {
	h := newHub(t)
	m := open(t, repoID, options(h, t.TempDir()))
	h.ExpireURLs()
	h.Reset()
	checkAll(t, m)
	var seen []int
	for _, r := range h.Requests() {
		seen = append(seen, r.Status)
	}
	if len(seen) != 3 || seen[0] != 403 || seen[1] != 302 || seen[2] != 206 {
		t.Errorf("answers were %v, want 403 302 206", seen)
	}
}

func TestHubFileChanges(t *testing.T) {
	other, err := os.ReadFile("../testdata/tales-qwen2/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(other)
	changed[len(changed)-1]++
	for name, data := range map[string][]byte{"other size": other[:len(other)-2], "other content": changed} {
		for _, expire := range []bool{false, true} { // seen by the storage's answer, by the hub's
			h := newHub(t)
			m := open(t, repoID, options(h, t.TempDir()))
			h.Replace(repoID, commit, "model.safetensors", inspecttest.Large(data))
			if expire {
				h.ExpireURLs()
			}
			_, err := fetchAll(t.Context(), m)
			if err == nil || !strings.Contains(err.Error(), "file changed between requests") {
				t.Errorf("%s, expired %t: error is %v", name, expire, err)
			}
		}
	}
}

func TestHubContentHash(t *testing.T) {
	h := newHub(t)
	f := inspecttest.Large([]byte(`{"model":{}}`))
	f.ETag = strings.Repeat("0", 64)
	h.Replace(repoID, commit, "tokenizer.json", f)
	m := open(t, repoID, options(h, t.TempDir()))
	_, err := m.Source.ReadFile(t.Context(), "tokenizer.json")
	if err == nil || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("error is %v", err)
	}
}

// TestHubPartialFetchResumes cancels a fetch in the middle; the next process brings the rest only.

// TestHubTwoProcesses lets two sources write one cache at once.

// TestHubDamagedCache cuts a part short, as a full disk or a careless copy would.

// TestHubStandardCache reads a model that another tool downloaded.

func TestHubTokenFile(t *testing.T) {
	h := newHub(t)
	h.Protect(repoID, "hf_file", false)
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, repoID, options(h, home))
	other := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(other, []byte("hf_file"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, repoID, options(h, t.TempDir(), "HF_TOKEN_PATH", other))
	if err := os.WriteFile(other, []byte("hf file"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := inspect.Open(t.Context(), repoID, options(h, t.TempDir(), "HF_TOKEN_PATH", other))
	if err == nil || strings.Contains(err.Error(), "hf file") {
		t.Errorf("error is %v", err)
	}
}
