package transport

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/quic-go/quic-go"
	"golang.org/x/crypto/ssh"
)

// PublicKey is a peer's Ed25519 key.
type PublicKey = ed25519.PublicKey

// Fingerprint names a key as ssh-keygen -l does: "SHA256:" and 43 characters.
func Fingerprint(k PublicKey) string {
	p, err := ssh.NewPublicKey(k)
	if err != nil {
		panic("transport: not an Ed25519 public key: " + err.Error())
	}
	return ssh.FingerprintSHA256(p)
}

// AuthorizedKeyLine is the line that lets k in when it stands in an authorized keys file.
func AuthorizedKeyLine(k PublicKey) string {
	p, err := ssh.NewPublicKey(k)
	if err != nil {
		panic("transport: not an Ed25519 public key: " + err.Error())
	}
	line := ssh.MarshalAuthorizedKey(p)
	return string(line[:len(line)-1])
}

// Identity is the Ed25519 key this side shows, held in memory or by an ssh-agent. It is safe for concurrent use.
type Identity struct {
	signer crypto.Signer
	public PublicKey

	once   sync.Once
	cert   tls.Certificate
	secret [32]byte
	err    error
}

// NewIdentity makes an identity of a signer whose public key is Ed25519. The signer must be safe for concurrent use.
func NewIdentity(signer crypto.Signer) (*Identity, error) {
	pub, ok := signer.Public().(ed25519.PublicKey)
	if !ok || len(pub) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("using key as identity: %T is not Ed25519", signer.Public())
	}
	return &Identity{signer: signer, public: pub}, nil
}

// PublicKey is the key peers see.
func (id *Identity) PublicKey() PublicKey { return id.public }

// Fingerprint names the key peers see.
func (id *Identity) Fingerprint() string { return Fingerprint(id.public) }

// resetLabel is what the identity signs to derive its stateless reset keys. Ed25519 signatures are deterministic, so the
// keys survive a restart, and an agent can make them as well.
const resetLabel = "dchain stateless reset key 1"

// material returns the certificate and the stateless reset key for each port, made on first use: with an agent this asks
// it twice. Ports have different keys, or one process could be made to reset the connections of another with the same
// identity.
func (id *Identity) material() (tls.Certificate, func(port int) quic.StatelessResetKey, error) {
	id.once.Do(func() {
		if id.cert, id.err = selfSigned(id.signer); id.err != nil {
			return
		}
		var sig []byte
		if sig, id.err = id.signer.Sign(rand.Reader, []byte(resetLabel), crypto.Hash(0)); id.err != nil {
			id.err = fmt.Errorf("signing with identity %s: %w", id.Fingerprint(), id.err)
			return
		}
		id.secret = sha256.Sum256(sig)
	})
	reset := func(port int) quic.StatelessResetKey {
		return sha256.Sum256(binary.LittleEndian.AppendUint16(id.secret[:len(id.secret):len(id.secret)], uint16(port)))
	}
	return id.cert, reset, id.err
}

// PassphraseError reports a private key file that is encrypted. PublicKey may be nil in old file formats.
type PassphraseError struct {
	Path      string
	PublicKey PublicKey
}

func (e *PassphraseError) Error() string {
	return fmt.Sprintf("identity %s is protected by a passphrase: add it to ssh-agent (ssh-add %s) and use the agent, "+
		"or choose another file", e.Path, e.Path)
}

// LoadIdentity reads an OpenSSH Ed25519 private key file. A file that is missing is made, with mode 0600, its folders with
// 0700, and the public key beside it in path.pub. A file that others can read, that holds another type of key or that is
// encrypted (*PassphraseError) is refused.
func LoadIdentity(path string) (*Identity, error) {
	data, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createIdentity(path); err == nil {
			data, err = readPrivate(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading identity %s: %w", path, err)
	}
	raw, err := ssh.ParseRawPrivateKey(data)
	if missing, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		e := &PassphraseError{Path: path}
		if missing.PublicKey != nil {
			e.PublicKey, _ = ed25519Key(missing.PublicKey)
		}
		return nil, e
	}
	if err != nil {
		return nil, fmt.Errorf("reading identity %s: %w", path, err)
	}
	switch key := raw.(type) {
	case *ed25519.PrivateKey:
		return NewIdentity(*key)
	case ed25519.PrivateKey:
		return NewIdentity(key)
	}
	return nil, fmt.Errorf("reading identity %s: it holds a %T, only Ed25519 keys serve (ssh-keygen -t ed25519)", path, raw)
}

// maxKeyFile bounds what is read of a key file; a real one has about 400 bytes.
const maxKeyFile = 1 << 16

func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	if info.Size() > maxKeyFile {
		return nil, fmt.Errorf("%d bytes is too long for a key file", info.Size())
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others can read it (mode %04o): chmod 600 %s", info.Mode().Perm(), path)
	}
	return os.ReadFile(path)
}

// createIdentity writes a fresh key. Of several processes that do so at once, one wins and the others use its key.
func createIdentity(path string) error {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "dchain")
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// CreateTemp makes the file with mode 0600. Link, unlike Rename, never replaces a key that is already there.
	tmp, err := os.CreateTemp(dir, ".identity-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(pem.EncodeToMemory(block))
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	line := AuthorizedKeyLine(key.Public().(ed25519.PublicKey)) + " dchain\n"
	return os.WriteFile(path+".pub", []byte(line), 0o644)
}

// ed25519Key takes the key out of its SSH form; ok is false for any other type.
func ed25519Key(k ssh.PublicKey) (PublicKey, bool) {
	if k.Type() != ssh.KeyAlgoED25519 {
		return nil, false
	}
	c, ok := k.(ssh.CryptoPublicKey)
	if !ok {
		return nil, false
	}
	pub, ok := c.CryptoPublicKey().(ed25519.PublicKey)
	return pub, ok && len(pub) == ed25519.PublicKeySize
}
