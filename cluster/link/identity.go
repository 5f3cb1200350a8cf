package link

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
	"slices"
	"time"
)

// Certificates never expire and are judged at a fixed instant: a node whose clock is
// years off still belongs to the cluster. The key decides, not time.
var (
	notBefore = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	judgedAt  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// identity makes the TLS configurations of one node, for accepting and for dialing.
// The authority exists only in memory and is the same on all nodes, because it follows
// from the key; the node's own certificate is made anew by each process.
func identity(k Key, cluster, node string) (server, client *tls.Config, err error) {
	ca, signer, err := authority(k, cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate authority: %w", err)
	}
	leaf, err := certificate(ca, signer, node)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate of node %s: %w", node, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	base := &tls.Config{
		Certificates:           []tls.Certificate{leaf},
		RootCAs:                pool,
		ClientCAs:              pool,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		MinVersion:             tls.VersionTLS13,
		MaxVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true, // each conn proves its name anew
		Time:                   func() time.Time { return judgedAt },
	}
	return base, base.Clone(), nil
}

// authority derives the CA. Nothing in it is random: Ed25519 signs deterministically.
func authority(k Key, cluster string) (*x509.Certificate, crypto.Signer, error) {
	seed, err := k.derive(cluster, "tls ca")
	if err != nil {
		return nil, nil, err
	}
	signer := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "hamgr cluster authority"},
		NotBefore:             notBefore,
		NotAfter:              notAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // no authority below this one
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	ca, err := x509.ParseCertificate(der)
	return ca, signer, err
}

// certificate makes one node's certificate; its only name is the node's.
func certificate(ca *x509.Certificate, signer crypto.Signer, node string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: node},
		DNSNames:     []string{node},
		NotBefore:    notBefore,
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, public, signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, nil
}

// Refusals of a peer whose certificate was signed with the cluster key.
var (
	errName     = errors.New("certificate does not name one node")
	errOwnName  = errors.New("peer uses this node's own name")
	errStranger = errors.New("peer is no node of the configuration")
	errWrong    = errors.New("peer is another node than the one dialed")
	errProtocol = errors.New("protocol is not served here")
)

// certified is the one node name of a verified certificate.
func certified(state tls.ConnectionState) (string, error) {
	if len(state.VerifiedChains) == 0 || len(state.PeerCertificates) == 0 {
		return "", errName
	}
	leaf := state.PeerCertificates[0]
	if len(leaf.DNSNames) != 1 {
		return "", errName
	}
	return leaf.DNSNames[0], nil
}

// serverConfig is for one accepted conn. It serves the protocols that have a
// listener, and only nodes of the configuration but this one. unserved is set
// when the handshake failed because of the protocol.
func (l *Link) serverConfig(unserved *bool) *tls.Config {
	cfg := l.server.Clone()
	open := l.served()
	cfg.NextProtos = open
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		*unserved = !slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { return slices.Contains(open, p) })
		return nil, nil // go on, so that the peer gets the alert that says why
	}
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		name, err := certified(state)
		switch {
		case err != nil:
			return err
		case name == l.cfg.Self:
			return errOwnName
		case l.peers[name] == nil:
			return fmt.Errorf("%w: %q", errStranger, name)
		case state.NegotiatedProtocol == "":
			return errProtocol
		}
		return nil
	}
	return cfg
}

// clientConfig is for one dialed conn; it accepts exactly that node and protocol.
func (l *Link) clientConfig(node string, p Protocol) *tls.Config {
	cfg := l.client.Clone()
	cfg.ServerName = node
	cfg.NextProtos = []string{string(p)}
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		name, err := certified(state)
		switch {
		case err != nil:
			return err
		case name != node: // exact, where the standard check ignores case
			return fmt.Errorf("%w: it is %q", errWrong, name)
		case state.NegotiatedProtocol != string(p):
			return errProtocol
		}
		return nil
	}
	return cfg
}
