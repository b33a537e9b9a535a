package inspect

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestHubNames(t *testing.T) {
	for id, ok := range map[string]bool{
		"Qwen/Qwen2.5-0.5B": true, "a/b": true, "_x/y_": true, "gpt2": false, "": false, "/b": false, "a/": false,
		"a/b/c": false, "../b": false, "a/..": false, "a/b--c": false, "a/b..c": false, "a/b.git": false, "a/b?x": false,
		"a/b#": false, "a/b c": false, "a/b%2f": false, "-a/b": false, "a/b.": false, "a/\u00e9": false, "a/b\n": false,
		"a/" + strings.Repeat("b", 95): false,
	} {
		if err := checkRepoID(id); (err == nil) != ok {
			t.Errorf("repository %q: %v", id, err)
		}
	}
	for rev, ok := range map[string]bool{
		"main": true, "refs/pr/1": true, "v1.0": true, strings.Repeat("a", 40): true, "": false, "../x": false, "/x": false,
		"a..b": false, "a b": false, "a\n": false, "a@{1}": false, "a/": false, `a\b`: false,
	} {
		if err := checkRevision(rev); (err == nil) != ok {
			t.Errorf("revision %q: %v", rev, err)
		}
	}
}

func TestHubEnv(t *testing.T) {
	read := func(env ...string) (hubEnv, error) {
		return readHubEnv(Options{Env: func(name string) string {
			for i := 0; i < len(env); i += 2 {
				if env[i] == name {
					return env[i+1]
				}
			}
			return ""
		}})
	}
	tests := []struct {
		env      []string
		hub, own string
	}{
		{[]string{"HOME", "/h"}, "/h/.cache/huggingface/hub", "/h/.cache/huggingface/dchain"},
		{[]string{"HOME", "/h", "XDG_CACHE_HOME", "/c"}, "/c/huggingface/hub", "/c/huggingface/dchain"},
		{[]string{"HOME", "/h", "HF_HOME", "~/x"}, "/h/x/hub", "/h/x/dchain"},
		{[]string{"HF_HOME", "/x", "HF_HUB_CACHE", "/y"}, "/y", "/y/.dchain"},
	}
	for _, tt := range tests {
		e, err := read(tt.env...)
		if err != nil || filepath.ToSlash(e.hubCache) != tt.hub || filepath.ToSlash(e.ownCache) != tt.own || e.offline ||
			e.endpoint.String() != "https://huggingface.co" {
			t.Errorf("%v: %+v, %v", tt.env, e, err)
		}
	}
	for _, endpoint := range []string{"ftp://x", "x", "https://", "https://u:p@x", "https://x?y", "://"} {
		if _, err := read("HF_HOME", "/x", "HF_ENDPOINT", endpoint); err == nil {
			t.Errorf("HF_ENDPOINT %q is accepted", endpoint)
		}
	}
	if e, err := read("HF_HOME", "/x", "HF_ENDPOINT", "https://mirror/hf/"); err != nil || e.endpoint.String() != "https://mirror/hf" {
		t.Errorf("endpoint is %v, %v", e.endpoint, err)
	}
	if _, err := read("HF_HOME", "/x", "HF_TOKEN", "hf_a\nX-Evil: 1"); err == nil || strings.Contains(err.Error(), "hf_a") {
		t.Errorf("token with a line break: %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0, "99999999999": (1 << 20) * time.Second,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("Retry-After %q is %s, want %s", value, got, want)
		}
	}
}

func TestBackoff(t *testing.T) {
	c := &hubClient{opts: Options{Backoff: time.Second, MaxBackoff: 10 * time.Second}}
	plain := errors.New("cut")
	for failures, limit := range map[int]time.Duration{1: 1e9, 2: 2e9, 4: 8e9, 5: 10e9, 60: 10e9} {
		for range 100 {
			if got := c.backoff(failures, plain); got < limit/2 || got > limit {
				t.Fatalf("after %d failures the wait is %s, want %s to %s", failures, got, limit/2, limit)
			}
		}
	}
	if got := c.backoff(1, busyError{plain, 7 * time.Second}); got != 7*time.Second {
		t.Errorf("asked to wait 7 s, the wait is %s", got)
	}
	if got := c.backoff(1, busyError{plain, time.Hour}); got != 10*time.Second {
		t.Errorf("asked to wait 1 h, the wait is %s, not the cap", got)
	}
}
