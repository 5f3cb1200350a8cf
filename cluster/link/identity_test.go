package link

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"testing"
	"time"
)

// certificate2 signs a certificate with several names, as no node does.
func certificate2(ca *x509.Certificate, signer crypto.Signer, names ...string) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		DNSNames:     names,
		NotBefore:    notBefore,
		NotAfter:     notAfter,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, public, signer)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}

// TestAuthorityFollowsFromTheKey: all nodes make the same authority, byte for byte; another
// key or cluster makes another.
func TestAuthorityFollowsFromTheKey(t *testing.T) {
	make := func(k Key, cluster string) []byte {
		t.Helper()
		ca, _, err := authority(k, cluster)
		if err != nil {
			t.Fatal(err)
		}
		return ca.Raw
	}
	one := make(testKey(1), "test")
	if !bytes.Equal(one, make(testKey(1), "test")) {
		t.Error("two nodes make different authorities of one key")
	}
	if bytes.Equal(one, make(testKey(2), "test")) || bytes.Equal(one, make(testKey(1), "other")) {
		t.Error("another key or cluster makes the same authority")
	}
}

// TestClocksDoNotMatter: certificates are valid as long as X.509 can say, and judged at
// a constant instant, whatever the host's clock says.
func TestClocksDoNotMatter(t *testing.T) {
	server, client, err := identity(testKey(1), "test", "alpha")
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := authority(testKey(1), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*x509.Certificate{ca, server.Certificates[0].Leaf} {
		if c.NotBefore.Year() != 1970 || c.NotAfter.Year() != 9999 {
			t.Errorf("%s is valid from %s to %s", c.Subject, c.NotBefore, c.NotAfter)
		}
	}
	for name, cfg := range map[string]*tls.Config{"accepting": server, "dialing": client} {
		if cfg.Time == nil || !cfg.Time().Equal(judgedAt) || time.Since(judgedAt) == 0 {
			t.Errorf("%s judges certificates by the host's clock", name)
		}
	}
}

func TestEachProcessHasItsOwnCertificate(t *testing.T) {
	one, _, err := identity(testKey(1), "test", "alpha")
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := identity(testKey(1), "test", "alpha")
	if err != nil {
		t.Fatal(err)
	}
	if one.Certificates[0].Leaf.Equal(two.Certificates[0].Leaf) {
		t.Error("two processes share a private key")
	}
}
