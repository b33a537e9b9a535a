package inspect_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dchain/inspect"
)

func TestHubRestartFetchesNothing(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	model := repoID + "@" + commit
	m := open(t, model, options(h, home))
	if _, err := m.Source.ReadFile(t.Context(), "tokenizer.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Source.ReadFile(t.Context(), "special.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing file: %v", err)
	}
	checkAll(t, m)
	h.Reset()
	for _, offline := range []string{"", "1"} {
		m := open(t, model, options(h, home, "HF_HUB_OFFLINE", offline))
		if _, err := m.Source.ReadFile(t.Context(), "tokenizer.json"); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Source.ReadFile(t.Context(), "special.json"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("missing file: %v", err)
		}
		checkAll(t, m)
		if n := len(h.Requests()); n != 0 {
			t.Errorf("offline %q: %d requests, first %+v", offline, n, h.Requests()[0])
		}
		if s := m.Source.Stats(); s.Bytes != 0 || s.Requests != 0 || s.Cached == 0 {
			t.Errorf("offline %q: stats are %+v", offline, s)
		}
	}
}

func TestHubPartialFetchResumes(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	m := open(t, repoID, options(h, home))
	ctx, cancel := context.WithCancel(t.Context())
	r := inspect.Range{File: "model.safetensors", Begin: 1 << 20, End: 7 << 20}
	got := int64(0)
	err := m.Source.Fetch(ctx, []inspect.Range{r}, func(n int64) {
		if got += n; got > 2<<20 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled fetch: %v", err)
	}
	h.Reset()
	checkAll(t, open(t, repoID, options(h, home)))
	size := m.Index.Files[0].Size
	if sent := h.Sent(); sent > size-2<<20 {
		t.Errorf("after %d of %d bytes were there, %d were sent", got, size, sent)
	}
	left, err := filepath.Glob(filepath.Join(home, "dchain", "*", "*", "parts", "*", ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}

func TestHubTwoProcesses(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	models := []*inspect.Model{open(t, repoID, options(h, home)), open(t, repoID, options(h, home))}
	done := make(chan error, len(models))
	for _, m := range models {
		go func() {
			_, err := fetchAll(t.Context(), m)
			done <- err
		}()
	}
	for range models {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for _, m := range models {
		checkAll(t, m)
	}
}

func TestHubDamagedCache(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	checkAll(t, open(t, repoID, options(h, home)))
	parts, err := filepath.Glob(filepath.Join(home, "dchain", "tellers--tales", commit, "parts", "model.safetensors", "*-*"))
	if err != nil || len(parts) == 0 {
		t.Fatalf("no parts: %v", err)
	}
	for _, p := range parts {
		if err := os.Truncate(p, 1000); err != nil {
			t.Fatal(err)
		}
	}
	checkAll(t, open(t, repoID, options(h, home)))
}

func TestHubStandardCache(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	repo := filepath.Join(home, "hub", "models--tellers--tales")
	snapshot := filepath.Join(repo, "snapshots", commit)
	blobs := filepath.Join(repo, "blobs")
	for _, dir := range []string{snapshot, blobs, filepath.Join(repo, "refs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(repo, "refs", "main"), []byte(commit))
	for i, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		data, err := os.ReadFile(filepath.Join("../testdata/tales-qwen2", name))
		if err != nil {
			t.Fatal(err)
		}
		blob := strings.Repeat("abc"[i:i+1], 40)
		write(filepath.Join(blobs, blob), data)
		if err := os.Symlink(filepath.Join("..", "..", "blobs", blob), filepath.Join(snapshot, name)); err != nil {
			t.Fatal(err)
		}
	}
	m := open(t, repoID, options(h, home, "HF_HUB_OFFLINE", "1"))
	checkAll(t, m)
	if n := len(h.Requests()); n != 0 {
		t.Errorf("%d requests while offline", n)
	}
	checkAll(t, open(t, repoID, options(h, home)))
	for _, r := range h.Requests() {
		if r.Storage || strings.Contains(r.Path, "/config.json") {
			t.Errorf("request for %s, which the cache has", r.Path)
		}
	}
	// The folder itself is the same model.
	folder := open(t, snapshot, inspect.Options{})
	if folder.Source.ID() != m.Source.ID() {
		t.Errorf("snapshot folder has ID %q, hub %q", folder.Source.ID(), m.Source.ID())
	}
	if folder.Fingerprint("int8", 1) != m.Fingerprint("int8", 1) {
		t.Error("snapshot folder and hub have different fingerprints")
	}
	// HF_HUB_CACHE names the folder directly.
	elsewhere := options(h, t.TempDir(), "HF_HUB_CACHE", filepath.Join(home, "hub"), "HF_HUB_OFFLINE", "1")
	checkAll(t, open(t, repoID, elsewhere))
	// A truncated file of the cache is an error that says so.
	if err := os.Truncate(filepath.Join(blobs, strings.Repeat("b", 40)), 1<<20); err != nil {
		t.Fatal(err)
	}
	_, err := inspect.Open(t.Context(), repoID, options(h, home))
	if err == nil || !strings.Contains(err.Error(), "truncated: its header describes 7493160 bytes, found 1048576") {
		t.Errorf("truncated cache: %v", err)
	}
}

func TestHubOfflineWithoutCache(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	_, err := inspect.Open(t.Context(), repoID+"@"+commit, options(h, home, "HF_HUB_OFFLINE", "YES"))
	if err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") || !strings.Contains(err.Error(), home) {
		t.Errorf("error is %v", err)
	}
	if n := len(h.Requests()); n != 0 {
		t.Errorf("%d requests while offline", n)
	}
}

func TestHubAway(t *testing.T) {
	h := newHub(t)
	home := t.TempDir()
	open(t, repoID, options(h, home))
	opts := options(h, home, "HF_ENDPOINT", "http://127.0.0.1:1")
	opts.Retries = 6
	retries := 0
	opts.OnRetry = func(inspect.Retry) { retries++ }
	_, err := inspect.Open(t.Context(), repoID, opts)
	if retries != 1 {
		t.Errorf("a hub that is away was asked again %d times, want once", retries)
	}
	if err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE=1 or revision "+commit) {
		t.Errorf("error is %v", err)
	}
}
