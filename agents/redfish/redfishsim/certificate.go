package redfishsim

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

// Certificate is which certificate a BMC shows.
type Certificate int

// The certificates of a BMC.
const (
	Valid       Certificate = iota
	Expired                 // by the BMC's CA, out of date
	NotYetValid             // by the BMC's CA, made when its clock was years ahead
	WrongName               // by the BMC's CA, for another host
	SelfSigned              // by itself, as after a factory reset
)

// authority is the BMC's CA with the certificate that is shown now.
type authority struct {
	host  string
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	caPEM []byte

	mu    sync.Mutex
	shown *tls.Certificate
}

func newAuthority(address string) (*authority, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := leaf(host, time.Now())
	template.Subject.CommonName = "redfishsim CA"
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	template.IPAddresses, template.DNSNames = nil, nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{host: host, ca: ca, key: key}
	a.caPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a, a.use(Valid)
}

func leaf(host string, from time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	c := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: host},
		NotBefore:    from.Add(-time.Hour),
		NotAfter:     from.Add(30 * 24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		c.IPAddresses = []net.IP{ip}
	} else {
		c.DNSNames = []string{host}
	}
	return c
}

// use makes a new certificate and shows it.
func (a *authority) use(kind Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := leaf(a.host, time.Now())
	parent, signer := a.ca, a.key
	switch kind {
	case Expired:
		template = leaf(a.host, time.Now().AddDate(-20, 0, 0))
	case NotYetValid:
		template = leaf(a.host, time.Now().AddDate(20, 0, 0))
	case WrongName:
		template = leaf("other.invalid", time.Now())
	case SelfSigned:
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("redfishsim: making a certificate: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shown = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return nil
}

func (a *authority) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.shown, nil
}

func (a *authority) pin() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := sha256.Sum256(a.shown.Certificate[0])
	return hex.EncodeToString(sum[:])
}
