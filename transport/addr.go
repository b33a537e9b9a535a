package transport

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
)

// DefaultPort is the UDP port of a stage whose address names none.
const DefaultPort = 7433

// PeerAddr is where a stage is reached and, when the operator knows it, which key it must show.
type PeerAddr struct {
	Host        string // host:port
	Fingerprint string // as Fingerprint prints it; "" = pinned on first use
}

// String gives the form that ParsePeerAddr reads.
func (a PeerAddr) String() string {
	if a.Fingerprint == "" {
		return a.Host
	}
	return a.Fingerprint + "@" + a.Host
}

// ParsePeerAddr reads "SHA256:FINGERPRINT@host:port" or "host:port". Without a port it is DefaultPort; an IPv6 address may
// stand without brackets when it has no port.
func ParsePeerAddr(s string) (PeerAddr, error) {
	a, err := parsePeerAddr(s)
	if err != nil {
		return PeerAddr{}, fmt.Errorf("parsing peer address %q: %w", s, err)
	}
	return a, nil
}

func parsePeerAddr(s string) (PeerAddr, error) {
	var a PeerAddr
	if before, after, ok := strings.Cut(s, "@"); ok {
		if err := checkFingerprint(before); err != nil {
			return a, err
		}
		a.Fingerprint, s = before, after
	}
	host, port, err := splitHost(s)
	if err != nil {
		return a, err
	}
	if host == "" {
		return a, errors.New("no host")
	}
	if len(host) > 253 {
		return a, errors.New("host name too long")
	}
	for _, r := range host {
		if !unicode.IsPrint(r) || strings.ContainsRune(" /\\@[],\"'", r) {
			return a, fmt.Errorf("%q has no place in a host name", r)
		}
	}
	if strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return a, errors.New("want host:port, and an IPv6 address in brackets: [::1]:7433")
		}
	}
	a.Host = net.JoinHostPort(host, strconv.Itoa(port))
	return a, nil
}

func splitHost(s string) (host string, port int, err error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, DefaultPort, nil
	}
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]"), DefaultPort, nil
	}
	if !strings.Contains(s, ":") {
		return s, DefaultPort, nil
	}
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, errors.New("want host:port, and an IPv6 address in brackets: [::1]:7433")
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", p)
	}
	return host, int(n), nil
}

// checkFingerprint accepts exactly what Fingerprint prints.
func checkFingerprint(s string) error {
	sum, ok := strings.CutPrefix(s, "SHA256:")
	if !ok {
		return fmt.Errorf("before @ goes the fingerprint of the stage's key, SHA256:..., not %q", s)
	}
	raw, err := base64.RawStdEncoding.Strict().DecodeString(sum)
	if err != nil || len(raw) != 32 {
		return fmt.Errorf("%q is not a SHA256 key fingerprint (SHA256: and 43 characters)", s)
	}
	return nil
}
