package transport

import (
	"crypto"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// agentTimeout bounds one question to the agent. It is long because the agent may ask its user to confirm.
const agentTimeout = 30 * time.Second

// LoadAgentIdentity uses a key held by the ssh-agent that listens on socket (SSH_AUTH_SOCK): the one given, or with a nil
// key the first Ed25519 key it offers. The private key never leaves the agent.
func LoadAgentIdentity(socket string, key PublicKey) (*Identity, error) {
	s := &agentSigner{socket: socket}
	var keys []*agent.Key
	err := s.ask(func(a agent.ExtendedAgent) (err error) {
		keys, err = a.List()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing keys of ssh-agent %s: %w", socket, err)
	}
	for _, k := range keys {
		parsed, err := ssh.ParsePublicKey(k.Blob)
		if err != nil {
			continue // a type this library does not know
		}
		pub, ok := ed25519Key(parsed)
		if ok && (key == nil || pub.Equal(key)) {
			s.key, s.public = parsed, pub
			return NewIdentity(s)
		}
	}
	if key != nil {
		return nil, fmt.Errorf("ssh-agent %s does not hold key %s: add it with ssh-add", socket, Fingerprint(key))
	}
	return nil, fmt.Errorf("ssh-agent %s holds no ed25519 key (of %d keys): add one with ssh-add", socket, len(keys))
}

// agentSigner is a crypto.Signer that asks an ssh-agent, over a fresh connection each time: the agent may be restarted
// between two handshakes.
type agentSigner struct {
	socket string
	key    ssh.PublicKey
	public ed25519.PublicKey
}

func (s *agentSigner) Public() crypto.PublicKey { return s.public }

func (s *agentSigner) Sign(_ io.Reader, message []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts.HashFunc() != 0 {
		return nil, errors.New("signing with ssh-agent: only plain Ed25519 is possible")
	}
	var sig *ssh.Signature
	err := s.ask(func(a agent.ExtendedAgent) (err error) {
		sig, err = a.Sign(s.key, message)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("signing with ssh-agent %s: %w", s.socket, err)
	}
	if sig.Format != ssh.KeyAlgoED25519 || len(sig.Blob) != ed25519.SignatureSize {
		return nil, fmt.Errorf("signing with ssh-agent %s: it answered with a %s signature", s.socket, sig.Format)
	}
	return sig.Blob, nil
}

func (s *agentSigner) ask(question func(agent.ExtendedAgent) error) error {
	conn, err := net.DialTimeout("unix", s.socket, agentTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(agentTimeout)); err != nil {
		return err
	}
	return question(agent.NewClient(conn))
}
