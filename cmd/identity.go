package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dchain/transport"
)

// configFile is a file of dchain's own, such as ~/.config/dchain/NAME.
func configFile(name string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("finding the folder for %s: %w", name, err)
	}
	return filepath.Join(dir, "dchain", name), nil
}

// ownIdentity is the key a stage shows, and a head without an SSH key: the file given, else one of dchain's own, made
// when missing.
func ownIdentity(file string) (*transport.Identity, error) {
	if file == "" {
		var err error
		if file, err = configFile("id_ed25519"); err != nil {
			return nil, err
		}
	}
	return transport.LoadIdentity(file)
}

// headIdentity is the key a head shows: the file given; else ~/.ssh/id_ed25519, through the agent when it has a
// passphrase; else a key of the agent; else one of dchain's own, made when missing.
func headIdentity(file string) (*transport.Identity, error) {
	agent := os.Getenv("SSH_AUTH_SOCK")
	given := file != ""
	if !given {
		file = sshFile("id_ed25519")
	}
	if _, err := os.Stat(file); given || err == nil {
		id, err := transport.LoadIdentity(file)
		var locked *transport.PassphraseError
		if errors.As(err, &locked) && agent != "" && locked.PublicKey != nil {
			return transport.LoadAgentIdentity(agent, locked.PublicKey)
		}
		return id, err
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading identity: %w", err)
	}
	if agent != "" {
		if id, err := transport.LoadAgentIdentity(agent, nil); err == nil {
			return id, nil
		}
	}
	return ownIdentity("")
}

// sshFile is a file of the user's ~/.ssh, or "" without a home.
func sshFile(name string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".ssh", name)
}

// knownHosts opens the file that pins the keys of stages whose address has no fingerprint.
func (a *app) knownHosts(file string) (*transport.KnownHosts, error) {
	if file == "" {
		var err error
		if file, err = configFile("known_hosts"); err != nil {
			return nil, err
		}
	}
	return transport.OpenKnownHosts(file, func(host, fingerprint string) {
		a.ui.note("the key of %s is %s: trusted from now on (%s)", host, fingerprint, file)
	})
}
