package inspect

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// hubEnv is what the environment says about the hub, by the names and rules of its own tools.
type hubEnv struct {
	endpoint *url.URL
	token    string
	hubCache string // the standard cache: models--ORG--NAME/...
	ownCache string // ours: ORG--NAME/COMMIT/...
	offline  bool
}

// readHubEnv reads HF_ENDPOINT, HF_TOKEN (else the file HF_TOKEN_PATH, else HF_HOME/token), HF_HUB_OFFLINE and what
// hubFolders reads.
func readHubEnv(opts Options) (hubEnv, error) {
	var e hubEnv
	endpoint := opts.env("HF_ENDPOINT")
	if endpoint == "" {
		endpoint = "https://huggingface.co"
	}
	u, err := url.Parse(strings.TrimRight(endpoint, "/"))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return e, errors.New("HF_ENDPOINT is no plain http or https address")
	}
	e.endpoint = u
	var home string
	if home, e.hubCache, e.ownCache, err = hubFolders(opts); err != nil {
		return e, err
	}
	switch strings.ToUpper(opts.env("HF_HUB_OFFLINE")) {
	case "1", "ON", "YES", "TRUE":
		e.offline = true
	}
	e.token, err = readToken(opts, home)
	return e, err
}

// hubFolders finds HF_HOME, by default $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface, the standard cache
// HF_HUB_CACHE, else HF_HOME/hub, and the cache of our own beside it.
func hubFolders(opts Options) (home, hubCache, ownCache string, err error) {
	fail := func(err error) (string, string, string, error) { return "", "", "", err }
	home = opts.env("HF_HOME")
	if home == "" {
		base := opts.env("XDG_CACHE_HOME")
		if base == "" {
			dir, err := homeDir(opts)
			if err != nil {
				return fail(fmt.Errorf("finding the model cache: %w (set HF_HOME)", err))
			}
			base = filepath.Join(dir, ".cache")
		}
		home = filepath.Join(base, "huggingface")
	}
	if home, err = expandHome(home, opts); err != nil {
		return fail(err)
	}
	cache := opts.env("HF_HUB_CACHE")
	if cache == "" {
		return home, filepath.Join(home, "hub"), filepath.Join(home, "dchain"), nil
	}
	if hubCache, err = expandHome(cache, opts); err != nil {
		return fail(err)
	}
	// The operator moved the data, so ours goes along, under a name that tools reading the folder skip.
	return home, hubCache, filepath.Join(hubCache, ".dchain"), nil
}

// PackedFolder is where packed weights are kept: a folder of our own cache that no repository's can be, since those
// have "--" in their names.
func PackedFolder(opts Options) (string, error) {
	_, _, own, err := hubFolders(opts)
	if err != nil {
		return "", err
	}
	return filepath.Join(own, "packed"), nil
}

// readToken returns "" when there is none.
func readToken(opts Options, home string) (string, error) {
	token := strings.TrimSpace(opts.env("HF_TOKEN"))
	if token == "" {
		path := opts.env("HF_TOKEN_PATH")
		if path == "" {
			path = filepath.Join(home, "token")
		}
		path, err := expandHome(path, opts)
		if err != nil {
			return "", err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("reading hub token: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("reading hub token: it holds characters no token has (check HF_TOKEN or the token file)")
	}
	return token, nil
}

// homeDir honours an Env that is not the process's.
func homeDir(opts Options) (string, error) {
	if opts.Env != nil {
		for _, name := range []string{"HOME", "USERPROFILE"} {
			if dir := opts.Env(name); dir != "" {
				return dir, nil
			}
		}
	}
	return os.UserHomeDir()
}

func expandHome(path string, opts Options) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		home, err := homeDir(opts)
		if err != nil {
			return "", err
		}
		return filepath.Join(home, rest), nil
	}
	return path, nil
}

var repoPart = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)

// checkRepoID accepts org/name as the hub does. The ID becomes part of URLs and of paths, where "--" stands for "/".
func checkRepoID(id string) error {
	org, name, ok := strings.Cut(id, "/")
	switch {
	case !ok:
		return fmt.Errorf("repository %q has no org/ before its name", id)
	case len(id) > 96 || !repoPart.MatchString(org) || !repoPart.MatchString(name),
		strings.Contains(id, "--"), strings.Contains(id, ".."), strings.HasSuffix(id, ".git"):
		return fmt.Errorf("%q is no valid repository name", id)
	}
	return nil
}

var commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)

// checkRevision accepts what git could have as a branch, a tag or a commit, and what is safe as a relative path.
func checkRevision(rev string) error {
	bad := rev == "" || len(rev) > 200 || checkFileName(rev) != nil || strings.Contains(rev, "..") ||
		strings.ContainsAny(rev, " ~^[@")
	if bad {
		return fmt.Errorf("%q is no valid revision", rev)
	}
	return nil
}

// repoFolder is the name of a repository in a cache.
func repoFolder(id string) string { return strings.ReplaceAll(id, "/", "--") }
