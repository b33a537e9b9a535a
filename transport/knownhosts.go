package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// ErrHostKey is what every error about the key of a dialled stage matches with errors.Is.
var ErrHostKey = errors.New("host key not accepted")

// HostKeyChangedError reports a stage that shows another key than the one pinned for its address.
type HostKeyChangedError struct {
	Host     string // host:port
	Old, New string // fingerprints
	File     string // known hosts file
	Line     int    // of the old entry
}

func (e *HostKeyChangedError) Error() string {
	return fmt.Sprintf("the key of %s has changed: it was %s and is now %s; if the stage was set up anew, remove line %d of %s, "+
		"otherwise someone may be answering in its place", e.Host, e.Old, e.New, e.Line, e.File)
}

func (e *HostKeyChangedError) Is(target error) bool { return target == ErrHostKey }

// HostKeyMismatchError reports a stage whose key is not the one its address asked for.
type HostKeyMismatchError struct {
	Host      string
	Want, Got string // fingerprints
}

func (e *HostKeyMismatchError) Error() string {
	return fmt.Sprintf("%s shows key %s, its address asks for %s", e.Host, e.Got, e.Want)
}

func (e *HostKeyMismatchError) Is(target error) bool { return target == ErrHostKey }

// HostKeyUnknownError reports a stage whose key nothing vouches for: no fingerprint in its address, no known hosts file.
type HostKeyUnknownError struct {
	Host string
	Got  string // fingerprint
}

func (e *HostKeyUnknownError) Error() string {
	return fmt.Sprintf("nothing is known about the key of %s, which is %s: if that is right, use the address %s@%s",
		e.Host, e.Got, e.Got, e.Host)
}

func (e *HostKeyUnknownError) Is(target error) bool { return target == ErrHostKey }

// KnownHosts is a file that pins the keys of stages by address, one "[host]:port ssh-ed25519 KEY" a line. An address seen
// for the first time is trusted and written down. It is safe for concurrent use.
type KnownHosts struct {
	path   string
	pinned func(host, fingerprint string)
	mu     sync.Mutex
}

// OpenKnownHosts uses the file at path, which is made when the first key is pinned. pinned, which may be nil, is called
// for each key that is trusted on first use, after it was written.
func OpenKnownHosts(path string, pinned func(host, fingerprint string)) (*KnownHosts, error) {
	k := &KnownHosts{path: path, pinned: pinned}
	if _, err := k.lookup("", nil); err != nil {
		return nil, err
	}
	return k, nil
}

// lookup reports whether key is pinned for host. Another key pinned for it is a *HostKeyChangedError.
func (k *KnownHosts) lookup(host string, key PublicKey) (known bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, err := readKeysFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading known hosts %s: %w", k.path, err)
	}
	var changed *HostKeyChangedError
	scan := bufio.NewScanner(bytes.NewReader(data))
	scan.Buffer(nil, maxKeysFile+1)
	for line := 1; scan.Scan(); line++ {
		name, rest, _ := strings.Cut(strings.TrimSpace(scan.Text()), " ")
		if host == "" || name != hostEntry(host) {
			continue
		}
		parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(rest))
		if err != nil {
			return false, fmt.Errorf("reading known hosts %s line %d: %w", k.path, line, err)
		}
		pub, ok := ed25519Key(parsed)
		if ok && pub.Equal(key) {
			return true, nil
		}
		if changed == nil {
			changed = &HostKeyChangedError{Host: host, Old: ssh.FingerprintSHA256(parsed), New: Fingerprint(key), File: k.path, Line: line}
		}
	}
	if err := scan.Err(); err != nil {
		return false, fmt.Errorf("reading known hosts %s: %w", k.path, err)
	}
	if changed != nil {
		return false, changed
	}
	return false, nil
}

// pin writes key down as the one of host.
func (k *KnownHosts) pin(host string, key PublicKey) error {
	if err := k.append(hostEntry(host) + " " + AuthorizedKeyLine(key) + "\n"); err != nil {
		return fmt.Errorf("pinning the key of %s in known hosts %s: %w", host, k.path, err)
	}
	if k.pinned != nil {
		k.pinned(host, Fingerprint(key))
	}
	return nil
}

func (k *KnownHosts) append(line string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(k.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	// A last line that an editor left without its end must not swallow this one.
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			line = "\n" + line
		}
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// hostEntry is the first word of host's line.
func hostEntry(host string) string {
	i := strings.LastIndexByte(host, ':')
	if strings.HasPrefix(host, "[") {
		return host
	}
	return "[" + host[:i] + "]" + host[i:]
}
