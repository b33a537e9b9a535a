package transport

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// alpn is the application protocol of the handshake: the wire version is compared before anything else.
var alpn = fmt.Sprintf("dchain/%d", WireVersion)

// selfSigned makes the certificate that carries the signer's key. Nothing in it but the key is ever looked at.
func selfSigned(signer crypto.Signer) (tls.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "dchain"},
		NotBefore:    time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280 4.1.2.5: no expiry
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: signer}, nil
}

// tlsConfig is the handshake of both sides. accept judges the peer's key; it runs on every handshake, since there are no
// resumed sessions, and before the peer has proven that it holds the key, so it must have no effect. TLS checks that proof
// right afterwards, before the handshake completes.
func tlsConfig(cert tls.Certificate, accept func(PublicKey) error) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{cert},
		NextProtos:             []string{alpn},
		ServerName:             "dchain",
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // there are no certificate authorities: accept below decides by the key itself
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			key, err := peerKey(state)
			if err != nil {
				return err
			}
			return accept(key)
		},
	}
}

var errNotEd25519 = errors.New("the peer's certificate does not carry an Ed25519 key")

func peerKey(state tls.ConnectionState) (PublicKey, error) {
	if len(state.PeerCertificates) != 1 {
		return nil, fmt.Errorf("the peer sent %d certificates, not one", len(state.PeerCertificates))
	}
	key, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(key) != ed25519.PublicKeySize {
		return nil, errNotEd25519
	}
	return key, nil
}
