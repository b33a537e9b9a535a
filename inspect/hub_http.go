package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxRedirects = 5
	maxSmall     = 256 << 20 // largest file read as a whole
	maxAPI       = 32 << 20  // largest answer of the API
	// progressBytes is what an attempt must bring for the count of repetitions to start anew.
	progressBytes = 64 << 10
)

// Retry tells of a hub request that will be repeated.
type Retry struct {
	Err  error         // why
	Wait time.Duration // before the next attempt
}

// hubClient speaks HTTP with the hub about one repository. The token goes to the hub's own origin only.
type hubClient struct {
	http           *http.Client
	endpoint       *url.URL
	token          string
	repo, revision string // for addresses and messages
	opts           Options

	requests, bytes atomic.Int64

	mu      sync.Mutex
	storage map[string]*url.URL // where the hub last sent us for a file
	etags   map[string]string   // ETag of the storage host by address without query
}

func newHubClient(env hubEnv, repo, revision string, opts Options) *hubClient {
	opts.HeaderTimeout = cmp.Or(opts.HeaderTimeout, 30*time.Second)
	opts.StallTimeout = cmp.Or(opts.StallTimeout, 30*time.Second)
	opts.Backoff = cmp.Or(opts.Backoff, 500*time.Millisecond)
	opts.MaxBackoff = cmp.Or(opts.MaxBackoff, time.Minute)
	opts.Retries = cmp.Or(opts.Retries, 6)
	client := &http.Client{Transport: hubTransport}
	if opts.HTTP != nil {
		client.Transport = opts.HTTP.Transport
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &hubClient{http: client, endpoint: env.endpoint, token: env.token, repo: repo, revision: revision,
		opts: opts, storage: map[string]*url.URL{}, etags: map[string]string{}}
}

var hubTransport = func() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.MaxIdleConnsPerHost = 8
	t.DisableCompression = true
	return t
}()

// answer is a final, non-redirect answer with an open body, and what the hub's own answers before it said.
type answer struct {
	*http.Response
	commit, etag string // X-Repo-Commit; X-Linked-Etag, or the ETag where the hub serves the file itself
	linkedSize   int64  // X-Linked-Size, -1 when absent
	stored       bool   // the answer is from another host than the hub
}

// ask sends one GET and follows redirects. byteRange is the value of the Range header, or "". The body gives up when
// nothing arrives for the stall timeout.
func (c *hubClient) ask(ctx context.Context, u *url.URL, byteRange string) (*answer, error) {
	a := &answer{linkedSize: -1}
	for range maxRedirects + 1 {
		resp, err := c.send(ctx, u, byteRange)
		if err != nil {
			return nil, fmt.Errorf("asking %s: %w", publicURL(u), err)
		}
		a.Response, a.stored = resp, !c.isHub(u)
		if err := a.note(resp.Header); err != nil {
			resp.Body.Close()
			return nil, err
		}
		if resp.StatusCode/100 != 3 || resp.StatusCode == http.StatusNotModified {
			return a, nil
		}
		next, err := resp.Location()
		io.CopyN(io.Discard, resp.Body, 4<<10)
		resp.Body.Close()
		if err != nil {
			return nil, fatalf("%s redirects without an address", publicURL(u))
		}
		if next.Scheme != "https" && (next.Scheme != "http" || u.Scheme == "https") {
			return nil, fatalf("%s redirects to %s, which is less secure", publicURL(u), publicURL(next))
		}
		u = next
	}
	return nil, fatalf("%s redirects more than %d times", publicURL(u), maxRedirects)
}

// note keeps what the hub says about a file in the first answer that says it.
func (a *answer) note(h http.Header) error {
	if a.stored {
		return nil
	}
	a.commit = cmp.Or(a.commit, h.Get("X-Repo-Commit"))
	if a.etag == "" || a.linkedSize < 0 && h.Get("X-Linked-Etag") != "" {
		a.etag = cleanETag(cmp.Or(h.Get("X-Linked-Etag"), h.Get("ETag"), a.etag))
	}
	if s := h.Get("X-Linked-Size"); s != "" && a.linkedSize < 0 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return fatalf("hub states size %q", s)
		}
		a.linkedSize = n
	}
	return nil
}

// cleanETag drops the weak mark and the quotes.
func cleanETag(s string) string { return strings.Trim(strings.TrimPrefix(s, "W/"), `"`) }

// isHub says whether a URL has the hub's origin, which alone gets the token.
func (c *hubClient) isHub(u *url.URL) bool {
	return u.Scheme == c.endpoint.Scheme && strings.EqualFold(u.Host, c.endpoint.Host)
}

func (c *hubClient) send(ctx context.Context, u *url.URL, byteRange string) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, fatal(bareURLError(err))
	}
	req.Header.Set("User-Agent", "dchain")
	req.Header.Set("Accept-Encoding", "identity")
	if byteRange != "" {
		req.Header.Set("Range", byteRange)
	}
	if c.token != "" && c.isHub(u) {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	timer := time.AfterFunc(c.opts.HeaderTimeout, func() {
		cancel(fmt.Errorf("no answer within %s", c.opts.HeaderTimeout))
	})
	c.requests.Add(1)
	resp, err := c.http.Do(req)
	if !timer.Stop() && err == nil { // it fired between the answer and here
		resp.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, bareURLError(err)
	}
	resp.Body = newStallReader(ctx, resp.Body, c.opts.StallTimeout, cancel, &c.bytes)
	return resp, nil
}

// stallReader ends a body from which nothing arrives for a while.
type stallReader struct {
	io.ReadCloser
	ctx     context.Context
	timer   *time.Timer
	timeout time.Duration
	cancel  context.CancelCauseFunc
	count   *atomic.Int64
}

func newStallReader(ctx context.Context, body io.ReadCloser, timeout time.Duration, cancel context.CancelCauseFunc, count *atomic.Int64) *stallReader {
	timer := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("nothing arrived for %s", timeout)) })
	return &stallReader{body, ctx, timer, timeout, cancel, count}
}

func (r *stallReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.timeout)
	n, err := r.ReadCloser.Read(p)
	r.timer.Stop() // what the caller does with the bytes is no stall
	r.count.Add(int64(n))
	if err != nil && err != io.EOF {
		if cause := context.Cause(r.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (r *stallReader) Close() error {
	r.timer.Stop()
	r.cancel(nil)
	return r.ReadCloser.Close()
}

// retry calls attempt until it succeeds, fails for good, or brings no progress too often. attempt returns the number
// of bytes it brought.
func (c *hubClient) retry(ctx context.Context, attempt func() (int64, error)) error {
	for failures, came := 0, int64(0); ; {
		n, err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if isFatal(err) {
			return err
		}
		if n >= progressBytes {
			failures = 0
		}
		failures++
		if came += n; came == 0 && isDial(err) {
			failures += c.opts.Retries / 2 // a hub that was never reached is more likely away than busy
		}
		if failures > c.opts.Retries {
			return fmt.Errorf("giving up: %w", err)
		}
		wait := c.backoff(failures, err)
		if c.opts.OnRetry != nil {
			c.opts.OnRetry(Retry{err, wait})
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// isDial says whether no connection came about.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// backoff doubles with each failure and is spread by half, so that many stages do not come back together. The server's
// own wish comes first, up to the cap.
func (c *hubClient) backoff(failures int, err error) time.Duration {
	wait := c.opts.Backoff << min(failures-1, 20)
	if wait > c.opts.MaxBackoff || wait <= 0 {
		wait = c.opts.MaxBackoff
	}
	wait = wait/2 + rand.N(wait/2+1)
	var busy busyError
	if errors.As(err, &busy) && busy.wait > wait {
		wait = min(busy.wait, c.opts.MaxBackoff)
	}
	return wait
}

// commit asks which commit the revision is.
func (c *hubClient) commit(ctx context.Context) (string, error) {
	u := c.endpoint.JoinPath("api", "models", c.repo, "revision", url.PathEscape(c.revision))
	var doc struct {
		SHA string `json:"sha"`
	}
	err := c.retry(ctx, func() (int64, error) {
		data, _, err := c.readAll(ctx, u, "", maxAPI)
		if err == nil && json.Unmarshal(data, &doc) != nil {
			err = fatalf("%s answered no JSON", publicURL(u))
		}
		return 0, err
	})
	if err != nil {
		return "", err
	}
	if !commitHash.MatchString(doc.SHA) {
		return "", fmt.Errorf("%s gives no commit of revision %q", publicURL(u), c.revision)
	}
	return doc.SHA, nil
}

// readAll makes one attempt to read a whole answer of at most limit bytes. A cut one is an error.
func (c *hubClient) readAll(ctx context.Context, u *url.URL, what string, limit int64) ([]byte, *answer, error) {
	a, err := c.ask(ctx, u, "")
	if err != nil {
		return nil, nil, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return nil, nil, c.statusError(a, what)
	}
	if err := checkEncoding(a); err != nil {
		return nil, nil, err
	}
	if max(a.ContentLength, a.linkedSize) > limit {
		return nil, nil, fatalf("%s has more than %d bytes", publicURL(u), limit)
	}
	data, err := io.ReadAll(io.LimitReader(a.Body, limit+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: cut after %d bytes: %w", publicURL(u), len(data), err)
	}
	if int64(len(data)) > limit {
		return nil, nil, fatalf("%s has more than %d bytes", publicURL(u), limit)
	}
	if a.linkedSize >= 0 && a.linkedSize != int64(len(data)) {
		return nil, nil, fmt.Errorf("reading %s: cut: %d bytes of %d", publicURL(u), len(data), a.linkedSize)
	}
	return data, a, nil
}

// checkEncoding refuses a body that is not the file's own bytes.
func checkEncoding(a *answer) error {
	if e := a.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return fatalf("%s answered in encoding %q, though none was accepted", publicURL(a.Request.URL), e)
	}
	return nil
}

// statusError explains an answer that is not the wanted one. what is the file asked for, or "" for the repository.
func (c *hubClient) statusError(a *answer, what string) error {
	if !a.stored {
		return c.repoError(a.Response, what)
	}
	err := fmt.Errorf("%s answered %s", publicURL(a.Request.URL), statusText(a.Response))
	switch a.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusBadRequest:
		return fmt.Errorf("%w: %w", errExpired, err)
	}
	if a.StatusCode == http.StatusTooManyRequests || a.StatusCode >= 500 || a.StatusCode == http.StatusRequestTimeout {
		return busyError{err, retryAfter(a.Header.Get("Retry-After"), time.Now())}
	}
	return fatal(err)
}

var contentRange = regexp.MustCompile(`^bytes (\d{1,18})-(\d{1,18})/(\d{1,18})$`)

// parseContentRange returns the half-open range and the size of the whole file.
func parseContentRange(s string) (begin, end, size int64, err error) {
	m := contentRange.FindStringSubmatch(s)
	if m == nil {
		return 0, 0, 0, fatalf("Content-Range %q is not understood", s)
	}
	begin, _ = strconv.ParseInt(m[1], 10, 64)
	end, _ = strconv.ParseInt(m[2], 10, 64)
	size, _ = strconv.ParseInt(m[3], 10, 64)
	return begin, end + 1, size, nil
}
