package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/crypto/ssh"
)

// maxKeysFile bounds what is read of an authorized keys or known hosts file.
const maxKeysFile = 4 << 20

// AuthorizedKeys is a file of keys in OpenSSH's authorized_keys format. Only plain ed25519 entries count: an entry with
// options (from=, command=, restrict, cert-authority, ...) lets its key do less than everything, which cannot be kept
// here, so such an entry authorises nothing. It is safe for concurrent use.
type AuthorizedKeys struct {
	path string
}

// IgnoredKey is an ed25519 entry that authorises nothing, and why.
type IgnoredKey struct {
	Line   int
	Reason string
}

// addKeys says what to do about a file that lets nobody in.
const addKeys = "put the public key of each head into it, one a line (on the head's machine: cat ~/.ssh/id_ed25519.pub)"

// LoadAuthorizedKeys opens a file of authorized keys, at least one of which must authorise. The file is read again at every
// question, so a key that is added or removed counts from the next handshake on.
func LoadAuthorizedKeys(path string) (*AuthorizedKeys, error) {
	a := &AuthorizedKeys{path: path}
	keys, ignored, err := a.read()
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		why := ""
		for _, k := range ignored {
			why += fmt.Sprintf("; line %d does not count: %s", k.Line, k.Reason)
		}
		return nil, fmt.Errorf("reading authorized keys: no ed25519 key of %s may connect: %s%s", path, addKeys, why)
	}
	return a, nil
}

// Allows reports whether k is in the file now. A file that can no longer be read allows nobody.
func (a *AuthorizedKeys) Allows(k PublicKey) bool {
	keys, _, err := a.read()
	if err != nil {
		return false
	}
	for _, have := range keys {
		if have.Equal(k) {
			return true
		}
	}
	return false
}

// Keys lists the keys the file allows now, and the ed25519 entries that do not count.
func (a *AuthorizedKeys) Keys() ([]PublicKey, []IgnoredKey, error) { return a.read() }

func (a *AuthorizedKeys) read() ([]PublicKey, []IgnoredKey, error) {
	data, err := readKeysFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading authorized keys: %w: %s", err, addKeys)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading authorized keys %s: %w", a.path, err)
	}
	var keys []PublicKey
	var ignored []IgnoredKey
	scan := bufio.NewScanner(bytes.NewReader(data))
	scan.Buffer(nil, maxKeysFile+1)
	for line := 1; scan.Scan(); line++ {
		key, _, options, _, err := ssh.ParseAuthorizedKey(scan.Bytes())
		if err != nil {
			continue // blank, comment, or broken: as sshd does
		}
		pub, ok := ed25519Key(key)
		switch {
		case !ok:
		case len(options) > 0:
			ignored = append(ignored, IgnoredKey{line, fmt.Sprintf("the entry is limited by %q", printable(options[0]))})
		default:
			keys = append(keys, pub)
		}
	}
	return keys, ignored, scan.Err()
}

// readKeysFile reads a file that decides whom to trust, and refuses one that others could write.
func readKeysFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Size() > maxKeysFile {
		return nil, fmt.Errorf("%d bytes is too long", info.Size())
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others can write it (mode %04o): chmod go-w %s", info.Mode().Perm(), path)
	}
	return os.ReadFile(path)
}
