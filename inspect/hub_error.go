package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// fatalError marks an error that another attempt cannot mend.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

func fatal(err error) error                   { return fatalError{err} }
func fatalf(format string, args ...any) error { return fatalError{fmt.Errorf(format, args...)} }
func isFatal(err error) bool                  { var f fatalError; return errors.As(err, &f) }

// busyError is an answer that another attempt may mend, after wait if the server said so.
type busyError struct {
	error
	wait time.Duration
}

// errExpired means that the storage host no longer accepts the address the hub gave for a file.
var errExpired = errors.New("storage address is refused")

// errNoEntry is the hub's statement that a commit has no such file.
var errNoEntry = fmt.Errorf("entry not found: %w", fs.ErrNotExist)

// bareURLError drops the URL that net/http puts into its errors: it may carry a signature.
func bareURLError(err error) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		return ue.Err
	}
	return err
}

// publicURL is a URL without what may be secret.
func publicURL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// repoError explains an answer of the hub itself about a repository. The hub answers 401 also for a repository that
// does not exist, so that strangers cannot tell private ones apart.
func (c *hubClient) repoError(resp *http.Response, what string) error {
	page := c.endpoint.JoinPath(c.repo).String()
	token := "set HF_TOKEN to a token with access"
	if c.token != "" {
		token = "use a token (HF_TOKEN or the token file) with access: the one in use has none"
	}
	code := resp.Header.Get("X-Error-Code")
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout:
		return busyError{fmt.Errorf("%s answered %s%s", publicURL(resp.Request.URL), statusText(resp), c.serverText(resp)),
			retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	case code == "GatedRepo":
		if c.token == "" {
			return fatalf("%s is gated: request access at %s and set HF_TOKEN", c.repo, page)
		}
		return fatalf("%s is gated: request access at %s with the account of your token (HF_TOKEN or the token file)", c.repo, page)
	case code == "RevisionNotFound":
		return fatalf("%s has no revision %q: see %s/tree/main for those it has", c.repo, c.revision, page)
	case code == "EntryNotFound":
		return fatalf("%s has no file %s: %w", c.repo, what, errNoEntry)
	case code == "RepoNotFound", code == "" && resp.StatusCode == http.StatusNotFound && what == "":
		return fatalf("repository %s is not at %s, or is private: check the name, or %s", c.repo, c.endpoint, token)
	case resp.StatusCode == http.StatusUnauthorized && c.token != "":
		return fatalf("access to %s is refused (401%s): check the name and the token (HF_TOKEN or the token file)", c.repo, c.serverText(resp))
	case resp.StatusCode == http.StatusUnauthorized:
		return fatalf("access to %s is refused (401%s): check the name, or %s", c.repo, c.serverText(resp), token)
	case resp.StatusCode == http.StatusForbidden:
		return fatalf("access to %s is forbidden (403%s): see %s, or %s", c.repo, c.serverText(resp), page, token)
	case resp.StatusCode == http.StatusNotFound:
		return fatalf("%s has no file %s: %w", c.repo, what, fs.ErrNotExist)
	}
	return fatalf("%s answered %s%s", publicURL(resp.Request.URL), statusText(resp), c.serverText(resp))
}

func statusText(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// serverText is what the hub says about an error, made safe to print.
func (c *hubClient) serverText(resp *http.Response) string {
	msg := resp.Header.Get("X-Error-Message")
	if c.token != "" {
		msg = strings.ReplaceAll(msg, c.token, "...")
	}
	msg = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, msg)
	if len(msg) > 200 {
		msg = strings.ToValidUTF8(msg[:200], "") + "..."
	}
	if msg == "" {
		return ""
	}
	return ": " + msg
}

// retryAfter reads seconds or a date; 0 when there is none.
func retryAfter(value string, now time.Time) time.Duration {
	if s, err := strconv.Atoi(value); err == nil && s >= 0 {
		return time.Duration(min(s, 1<<20)) * time.Second
	}
	if t, err := http.ParseTime(value); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}
