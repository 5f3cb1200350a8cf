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
	"strings"
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
	errKey      = errors.New("peer names no cluster key that is accepted here")
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

// keyProtocol begins the one more protocol that a dialer offers: it names the cluster key
// by which it wants to be known, as both sides must use the same. Nobody serves it.
const keyProtocol = "hamgr-key/"

// offeredKey finds the key that a dialer names.
func offeredKey(protocols []string) (id keyID, ok bool) {
	for _, p := range protocols {
		if text, found := strings.CutPrefix(p, keyProtocol); found {
			return parseKeyID(text)
		}
	}
	return keyID{}, false
}

// reception is what became of one handshake.
type reception struct {
	key      *heldKey // that the dialer named; nil: none that is accepted here
	unserved bool     // no protocol that the dialer wants has a listener
}

// serverConfig is for one accepted conn. It serves the protocols that have a
// listener, and only nodes of the configuration but this one; others of the same key
// are let in for Join alone, to learn that they do not belong.
func (l *Link) serverConfig(r *reception) *tls.Config {
	keys, open := l.keys.Load(), l.served()
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if id, named := offeredKey(hello.SupportedProtos); named {
				r.key = keys.held[id]
			}
			if r.key == nil {
				return nil, errKey
			}
			r.unserved = !slices.ContainsFunc(hello.SupportedProtos, func(p string) bool { return slices.Contains(open, p) })
			cfg := r.key.server.Clone()
			cfg.NextProtos = open
			cfg.VerifyConnection = l.judge
			return cfg, nil // also where unserved, so that the peer gets the alert that says why
		},
	}
}

// judge decides about the dialer of an accepted conn.
func (l *Link) judge(state tls.ConnectionState) error {
	name, err := certified(state)
	switch {
	case err != nil:
		return err
	case name == l.cfg.Self:
		return errOwnName
	case state.NegotiatedProtocol == "":
		return errProtocol
	case l.peers[name] != nil:
		return nil
	case Protocol(state.NegotiatedProtocol) != Join || checkName(name) != nil:
		return fmt.Errorf("%w: %q", errStranger, name)
	}
	return nil
}

// clientConfig is for one dialed conn; it accepts exactly that node and protocol.
func (k *heldKey) clientConfig(node string, p Protocol) *tls.Config {
	cfg := k.client.Clone()
	cfg.ServerName = node
	cfg.NextProtos = []string{string(p), keyProtocol + k.id.String()}
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
