package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// streamBuf is the buffer between network and cache.
const streamBuf = 256 << 10

var streamPool = sync.Pool{New: func() any { b := make([]byte, streamBuf); return &b }}

// fetchRange brings bytes [begin, end) of a file into the cache, resuming a cut stream from where it stopped. An end
// beyond the file means the file's end. progress is told of every chunk.
func (c *hubClient) fetchRange(ctx context.Context, commit, file string, pf *partFile, begin, end int64, progress func(int64)) error {
	w := pf.writer(begin)
	err := c.retry(ctx, func() (int64, error) {
		from := w.pos
		err := c.stream(ctx, commit, file, pf, w, end, progress)
		return w.pos - from, err
	})
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	return err
}

// stream makes one attempt to bring the rest of a range, from w.pos to end.
func (c *hubClient) stream(ctx context.Context, commit, file string, pf *partFile, w *partWriter, end int64, progress func(int64)) error {
	size, known := pf.size()
	if known {
		end = min(end, size)
		if w.pos >= end {
			return nil
		}
	}
	a, err := c.openRange(ctx, commit, file, w.pos, end)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if err := c.checkRange(a, commit, pf, w.pos, &end); err != nil {
		return err
	}
	body := io.LimitReader(a.Body, end-w.pos)
	buf := streamPool.Get().(*[]byte)
	defer streamPool.Put(buf)
	for w.pos < end {
		n, err := body.Read(*buf)
		if n > 0 {
			if _, werr := w.Write((*buf)[:n]); werr != nil {
				return werr
			}
			progress(int64(n))
		}
		if ctx.Err() != nil { // what has come already would be read on
			return context.Cause(ctx)
		}
		if err == io.EOF && w.pos < end {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && w.pos < end {
			return fmt.Errorf("reading %s: cut at byte %d of %d: %w", publicURL(a.Request.URL), w.pos, end, err)
		}
	}
	return nil
}

// openRange asks for bytes [begin, end): of the storage host when its address is known and still good, else of the hub.
func (c *hubClient) openRange(ctx context.Context, commit, file string, begin, end int64) (*answer, error) {
	byteRange := fmt.Sprintf("bytes=%d-%d", begin, end-1)
	if u := c.storageURL(file); u != nil {
		a, err := c.ask(ctx, u, byteRange)
		if err == nil && a.StatusCode != http.StatusPartialContent {
			err = c.statusError(a, file)
			a.Body.Close()
		}
		if err == nil {
			return a, nil
		}
		if !errors.Is(err, errExpired) {
			return nil, err
		}
		c.setStorageURL(file, nil)
	}
	a, err := c.ask(ctx, c.resolveURL(commit, file), byteRange)
	if err != nil {
		return nil, err
	}
	switch a.StatusCode {
	case http.StatusPartialContent:
		if a.stored {
			c.setStorageURL(file, a.Request.URL)
		}
		return a, nil
	case http.StatusOK:
		err = fatalf("%s sends the whole file though bytes %d-%d were asked for", publicURL(a.Request.URL), begin, end-1)
	case http.StatusRequestedRangeNotSatisfiable:
		err = fatalf("%s has no bytes %d-%d (%s)", publicURL(a.Request.URL), begin, end-1, a.Header.Get("Content-Range"))
	default:
		err = c.statusError(a, file)
	}
	a.Body.Close()
	return nil, err
}

// checkRange compares what the answer says it holds with what was asked, and with earlier answers. end is lowered to
// the end of the file.
func (c *hubClient) checkRange(a *answer, commit string, pf *partFile, begin int64, end *int64) error {
	if err := checkEncoding(a); err != nil {
		return err
	}
	gotBegin, gotEnd, size, err := parseContentRange(a.Header.Get("Content-Range"))
	if err != nil {
		return err
	}
	if a.linkedSize >= 0 && a.linkedSize != size {
		return fatalf("hub says the file has %d bytes, its storage says %d", a.linkedSize, size)
	}
	if a.commit != "" && a.commit != commit {
		return fatalf("hub answered for commit %s, asked for %s", a.commit, commit)
	}
	want := min(*end, size)
	if gotBegin != begin || gotEnd != want {
		return fatalf("%s sends bytes %d-%d, asked for %d-%d", publicURL(a.Request.URL), gotBegin, gotEnd-1, begin, want-1)
	}
	if a.ContentLength >= 0 && a.ContentLength != want-begin {
		return fatalf("%s sends %d bytes for range %d-%d", publicURL(a.Request.URL), a.ContentLength, begin, want-1)
	}
	if err := c.checkStorageETag(a); err != nil {
		return err
	}
	*end = want
	return pf.setMeta(fileMeta{Size: size, ETag: a.etag})
}

// checkStorageETag notices a file replaced under the same storage address.
func (c *hubClient) checkStorageETag(a *answer) error {
	etag := a.Header.Get("ETag")
	if !a.stored || etag == "" || strings.HasPrefix(etag, "W/") {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := publicURL(a.Request.URL)
	if old, ok := c.etags[key]; ok && old != etag {
		return fatalf("file changed between requests: %s had ETag %s, now %s", key, old, etag)
	}
	c.etags[key] = etag
	return nil
}

func (c *hubClient) resolveURL(commit, file string) *url.URL {
	parts := append([]string{c.repo, "resolve", commit}, strings.Split(file, "/")...)
	for i := 3; i < len(parts); i++ {
		parts[i] = url.PathEscape(parts[i])
	}
	return c.endpoint.JoinPath(parts...)
}

func (c *hubClient) storageURL(file string) *url.URL {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.storage[file]
}

func (c *hubClient) setStorageURL(file string, u *url.URL) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u == nil {
		delete(c.storage, file)
		return
	}
	c.storage[file] = u
}
