package transport_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"dchain/transport"
	"dchain/transport/transporttest"
)

func TestIdentityIsMadeWhenMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "identity")
	// Several processes may start at once; all must end up with one key.
	ids := make([]*transport.Identity, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			id, err := transport.LoadIdentity(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = id
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, id := range ids {
		if id.Fingerprint() != ids[0].Fingerprint() {
			t.Fatal("two keys were made")
		}
	}
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
	public, err := os.ReadFile(path + ".pub")
	if err != nil || !strings.HasPrefix(string(public), transport.AuthorizedKeyLine(ids[0].PublicKey())+" ") {
		t.Errorf("public key file: %q, %v", public, err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".identity-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// fixedKey is a key whose fingerprint ssh-keygen -l printed once.
func fixedKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte("dchain test vector, 32 bytes, ok"))
}

func TestFingerprintIsThatOfSSH(t *testing.T) {
	k := fixedKey().Public().(ed25519.PublicKey)
	const line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPJVAfRTusWeEXDmM6FQ95aBl+bGcJb6GfGDCB2d3RM"
	const fingerprint = "SHA256:v4vjGg7aeYsbtLEMnepF5AUipOLXmy46tMwSRHKgIiM"
	if got := transport.AuthorizedKeyLine(k); got != line {
		t.Errorf("line %s, want %s", got, line)
	}
	if got := transport.Fingerprint(k); got != fingerprint {
		t.Errorf("fingerprint %s, want %s", got, fingerprint)
	}
}

func writeKey(t *testing.T, key any, passphrase string, mode fs.FileMode) string {
	t.Helper()
	var block *pem.Block
	var err error
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "test")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "test", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return writeFile(t, "key", pem.EncodeToMemory(block), mode)
}

func writeFile(t *testing.T, name string, data []byte, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestIdentityFiles(t *testing.T) {
	key := fixedKey()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	id, err := transport.LoadIdentity(writeKey(t, key, "", 0o600))
	if err != nil || !id.PublicKey().Equal(key.Public()) {
		t.Errorf("plain key: %v", err)
	}
	if _, err := transport.LoadIdentity(writeKey(t, key, "", 0o400)); err != nil {
		t.Errorf("read-only key: %v", err)
	}
	for name, c := range map[string]struct{ path, text string }{
		"rsa":           {writeKey(t, rsaKey, "", 0o600), "only Ed25519 keys serve"},
		"not a key":     {writeFile(t, "key", []byte("hello\n"), 0o600), "no key found"},
		"public key":    {writeFile(t, "key", []byte(transport.AuthorizedKeyLine(key.Public().(ed25519.PublicKey))), 0o600), "no key found"},
		"endless":       {writeFile(t, "key", bytes.Repeat([]byte("x"), 1<<17), 0o600), "too long"},
		"folder":        {t.TempDir(), "not a regular file"},
		"in no folder":  {"/dev/null/key", "not a directory"},
		"readable":      {writeKey(t, key, "", 0o644), "chmod 600"},
		"group can too": {writeKey(t, key, "", 0o640), "chmod 600"},
	} {
		if runtime.GOOS == "windows" && strings.HasPrefix(c.text, "chmod") {
			continue
		}
		_, err := transport.LoadIdentity(c.path)
		if err == nil || !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), c.path) {
			t.Errorf("%s: got %v, want %q", name, err, c.text)
		}
	}
	path := writeKey(t, key, "secret", 0o600)
	_, err = transport.LoadIdentity(path)
	var locked *transport.PassphraseError
	if !errors.As(err, &locked) || !locked.PublicKey.Equal(key.Public()) || !strings.Contains(err.Error(), "ssh-add "+path) {
		t.Errorf("encrypted key: %v", err)
	}
}

// startAgent serves a keyring as ssh-agent does.
func startAgent(t *testing.T, keys ...any) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, k := range keys {
		if err := ring.Add(agent.AddedKey{PrivateKey: k}); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(t.TempDir(), "a")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				agent.ServeAgent(ring, conn)
				conn.Close()
			}()
		}
	}()
	return socket
}

// A key in an agent serves on both sides of a handshake.
func TestAgentIdentity(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, second, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	first := fixedKey()
	socket := startAgent(t, rsaKey, first, second)
	head, err := transport.LoadAgentIdentity(socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !head.PublicKey().Equal(first.Public()) {
		t.Error("not the first Ed25519 key")
	}
	stage, err := transport.LoadAgentIdentity(socket, second.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	l, addr := transporttest.Listen(t, stage, transporttest.Allow(head))
	dialled, accepted := transporttest.Connect(t, l, addr, head)
	if !dialled.Peer().Equal(second.Public()) || !accepted.Peer().Equal(first.Public()) {
		t.Error("wrong keys")
	}

	if _, err := transport.LoadAgentIdentity(socket, transporttest.Identity(t).PublicKey()); err == nil || !strings.Contains(err.Error(), "does not hold key") {
		t.Errorf("key that is not there: %v", err)
	}
	if _, err := transport.LoadAgentIdentity(startAgent(t, rsaKey), nil); err == nil || !strings.Contains(err.Error(), "holds no ed25519 key") {
		t.Errorf("no Ed25519 key: %v", err)
	}
	if _, err := transport.LoadAgentIdentity(filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("no agent: no error")
	}
}

func TestAuthorizedKeys(t *testing.T) {
	line := func(id *transport.Identity) string { return transport.AuthorizedKeyLine(id.PublicKey()) }
	plain, last, limited, authority, absent := transporttest.Identity(t), transporttest.Identity(t), transporttest.Identity(t),
		transporttest.Identity(t), transporttest.Identity(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaPublic, err := ssh.NewPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text := "# heads\n\n" + line(plain) + " alice@laptop\nbroken line\nssh-ed25519 AAAA\n" + string(ssh.MarshalAuthorizedKey(rsaPublic)) +
		`from="10.0.0.1",command="/bin/false" ` + line(limited) + " limited\ncert-authority " + line(authority) + "\n" + line(last)
	path := writeFile(t, "authorized_keys", []byte(text), 0o644)
	keys, err := transport.LoadAuthorizedKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id   *transport.Identity
		want bool
	}{"plain": {plain, true}, "last, without a line's end": {last, true}, "limited": {limited, false},
		"authority": {authority, false}, "absent": {absent, false}} {
		if got := keys.Allows(c.id.PublicKey()); got != c.want {
			t.Errorf("%s: allowed is %v", name, got)
		}
	}
	allowed, ignored, err := keys.Keys()
	if err != nil || len(allowed) != 2 || len(ignored) != 2 || ignored[0].Line != 7 || !strings.Contains(ignored[0].Reason, "10.0.0.1") {
		t.Errorf("%d keys, ignored %+v, %v", len(allowed), ignored, err)
	}

	// The file counts as it is now.
	if err := os.WriteFile(path, []byte(line(absent)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if keys.Allows(plain.PublicKey()) || !keys.Allows(absent.PublicKey()) {
		t.Error("a change of the file goes unnoticed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if keys.Allows(absent.PublicKey()) {
		t.Error("a file that is gone still authorises")
	}

	_, err = transport.LoadAuthorizedKeys(path)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "id_ed25519.pub") {
		t.Errorf("missing file: %v", err)
	}
	for name, text := range map[string]string{"nothing": "", "comments": "# heads\n\n", "rsa": string(ssh.MarshalAuthorizedKey(rsaPublic)),
		"limited": "restrict " + line(limited)} {
		path := writeFile(t, "authorized_keys", []byte(text), 0o644)
		_, err := transport.LoadAuthorizedKeys(path)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "id_ed25519.pub") ||
			strings.Contains(err.Error(), `line 1 does not count: the entry is limited by "restrict"`) != (name == "limited") {
			t.Errorf("file with %s: %v", name, err)
		}
	}
	open := writeFile(t, "authorized_keys", []byte(text), 0o666)
	if _, err := transport.LoadAuthorizedKeys(open); runtime.GOOS != "windows" && (err == nil || !strings.Contains(err.Error(), "chmod go-w")) {
		t.Errorf("file that others can write: %v", err)
	}
}

// A key that is taken out of the file while a stage runs is refused at its next handshake.
func TestAuthorizedKeysDuringListening(t *testing.T) {
	head, stage := transporttest.Identity(t), transporttest.Identity(t)
	path := writeFile(t, "authorized_keys", []byte(transport.AuthorizedKeyLine(head.PublicKey())), 0o600)
	keys, err := transport.LoadAuthorizedKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	l, addr := transporttest.Listen(t, stage, keys.Allows)
	transporttest.Connect(t, l, addr, head)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := transport.Dial(context.Background(), addr, transport.DialOptions{Identity: head}); !errors.Is(err, transport.ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
}

func TestKnownHostsFiles(t *testing.T) {
	id := transporttest.Identity(t)
	if _, err := transport.OpenKnownHosts(writeFile(t, "known", nil, 0o666), nil); runtime.GOOS != "windows" && err == nil {
		t.Error("a file that others can write is taken")
	}
	l, addr := transporttest.Listen(t, id, transporttest.Allow(id))
	accepting(t, l)
	dial := func(content string) (string, error) {
		path := writeFile(t, "known", []byte(content), 0o600)
		k, _ := known(t, path)
		link, err := transport.Dial(context.Background(), transport.PeerAddr{Host: addr.Host}, transport.DialOptions{Identity: id, Known: k})
		if err == nil {
			go link.Close(nil)
		}
		data, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		return string(data), err
	}
	host, port, _ := net.SplitHostPort(addr.Host)
	entry := fmt.Sprintf("[%s]:%s %s\n", host, port, transport.AuthorizedKeyLine(id.PublicKey()))
	if got, err := dial("# no newline at the end"); err != nil || got != "# no newline at the end\n"+entry {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := dial("[127.0.0.1]:1 ssh-ed25519 rubbish\n"); err != nil || !strings.HasSuffix(got, entry) {
		t.Errorf("another host's broken line: %q, %v", got, err)
	}
	if _, err := dial(fmt.Sprintf("[%s]:%s ssh-ed25519 rubbish\n", host, port)); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("this host's broken line: %v", err)
	}
}

func TestParsePeerAddr(t *testing.T) {
	fp := transport.Fingerprint(fixedKey().Public().(ed25519.PublicKey))
	for in, want := range map[string]transport.PeerAddr{
		"gpu1":                      {Host: "gpu1:7433"},
		"gpu1:9":                    {Host: "gpu1:9"},
		"10.0.0.7":                  {Host: "10.0.0.7:7433"},
		"10.0.0.7:65535":            {Host: "10.0.0.7:65535"},
		"::1":                       {Host: "[::1]:7433"},
		"[::1]":                     {Host: "[::1]:7433"},
		"[fe80::1%eth0]:80":         {Host: "[fe80::1%eth0]:80"},
		fp + "@gpu1.example.org:80": {Host: "gpu1.example.org:80", Fingerprint: fp},
		fp + "@[::1]:80":            {Host: "[::1]:80", Fingerprint: fp},
		"rechner-ü":                 {Host: "rechner-ü:7433"},
	} {
		got, err := transport.ParsePeerAddr(in)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
		if again, err := transport.ParsePeerAddr(got.String()); err != nil || again != got {
			t.Errorf("%q: its text %q reads as %+v, %v", in, got.String(), again, err)
		}
	}
	for in, text := range map[string]string{
		"":                              "no host",
		":80":                           "no host",
		"host:":                         "port",
		"host:0":                        "port",
		"host:65536":                    "port",
		"host:-1":                       "port",
		"host:http":                     "port",
		"alice@host":                    "fingerprint",
		"SHA256:short@host":             "43 characters",
		fp[:len(fp)-1] + "!@host":       "43 characters",
		fp + "=@host":                   "43 characters",
		fp + "@":                        "no host",
		"a b:1":                         "no place",
		"http://host:80":                "want host:port",
		"quic/host":                     "no place",
		"1:2:3":                         "want host:port",
		"[::1":                          "want host:port",
		"host\n:80":                     "no place",
		strings.Repeat("x", 300) + ":1": "too long",
		fp + "@" + fp + "@host":         "port",
	} {
		if got, err := transport.ParsePeerAddr(in); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %+v, %v, want an error with %q", in, got, err, text)
		}
	}
}
