package redfish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
)

const (
	// bodyLimit is far above any document that is read here (about 10 KiB).
	bodyLimit     = 4 << 20
	dialTimeout   = 5 * time.Second
	tlsTimeout    = 5 * time.Second
	headerTimeout = 20 * time.Second
	idleTimeout   = 5 * time.Second
)

// tlsConfig says which certificate is accepted. It belongs to this handle alone.
// gofish's own Insecure would switch the check off for the whole process, through
// http.DefaultTransport (its issue 567).
func (o *Options) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	switch {
	case o.PinSHA256 != "":
		pin, err := parsePin(o.PinSHA256)
		if err != nil {
			return nil, fmt.Errorf("pin_sha256: %w", err)
		}
		// The pin replaces name, chain and dates: BMCs ship with self-signed
		// certificates and without a clock. It is checked on resumption too.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error { return checkPin(pin, s.PeerCertificates) }
	case o.CAFile != "":
		pool, err := readCAs(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		c.RootCAs = pool
	case o.Insecure:
		c.InsecureSkipVerify = true
	}
	return c, nil
}

func checkPin(pin [sha256.Size]byte, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return fmt.Errorf("%w: none was shown", ErrCertificate)
	}
	if got := sha256.Sum256(chain[0].Raw); got != pin {
		return fmt.Errorf("%w: pin_sha256 does not match, the BMC shows %x", ErrCertificate, got)
	}
	return nil
}

// cure says what would have a refused certificate accepted. Most BMCs show one that they signed themselves.
func cure(refused *tls.CertificateVerificationError) string {
	if len(refused.UnverifiedCertificates) == 0 {
		return ""
	}
	way := ""
	var (
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
	)
	switch {
	case errors.As(refused, &name):
		way = "server_name or "
	case errors.As(refused, &unknown):
		way = "ca_file or "
	}
	return fmt.Sprintf("; give %spin_sha256, if it is the BMC that shows %x", way, sha256.Sum256(refused.UnverifiedCertificates[0].Raw))
}

// network carries the requests of one handle. It hands out only complete answers of
// bounded size that are JSON objects; everything else is an error before gofish sees it
// (which would take an HTML page for success). close ends every connection, also
// one that a cancelled request was still opening.
type network struct {
	base  address
	inner *http.Transport

	mu     sync.Mutex
	closed bool
	conns  map[*trackedConn]struct{}
}

func newNetwork(base address, conf *tls.Config) *network {
	n := &network{base: base, conns: map[*trackedConn]struct{}{}}
	n.inner = &http.Transport{
		Proxy:                  nil, // a fence device is never behind a proxy from the environment
		DialContext:            n.dial,
		TLSClientConfig:        conf,
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      false,
	}
	return n
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	// gofish joins the endpoint and a link of a document as text: with the link
	// "@other/" the password would go to the host other.
	if req.URL.Scheme != n.base.scheme || !sameHost(n.base.scheme, req.URL.Host, n.base.host) {
		return nil, fmt.Errorf("%w: a link leads to another host, %s", ErrNotRedfish, word(req.URL.Host))
	}
	if req.Context().Value(repeatable{}) != nil {
		req = req.Clone(req.Context())
		req.Header["Idempotency-Key"] = []string{} // see http.Transport; it is not sent
	}
	resp, err := n.inner.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, bodyLimit+1))
	resp.Body.Close()
	switch {
	case req.Context().Err() != nil:
		// Breaking the connection off may itself have brought an answer about: a server
		// whose handler ends because the client is leaving says 200.
		return nil, req.Context().Err()
	case err != nil:
		return nil, fmt.Errorf("in the middle of the answer: %w", err)
	case len(body) > bodyLimit:
		return nil, fmt.Errorf("%w: %s is longer than %d bytes", ErrNotRedfish, agents.Clip(req.URL.Path, 120), bodyLimit)
	case isRedirect(resp): // checkRedirect decides
	case !isSuccess(resp):
		return nil, newStatusError(resp, body)
	case !isObject(body) && (len(body) > 0 || req.Method == http.MethodGet):
		return nil, fmt.Errorf("%w: %s is %s instead of JSON (HTTP %d)", ErrNotRedfish, agents.Clip(req.URL.Path, 120), mediaType(resp), resp.StatusCode)
	}
	if resp.StatusCode == http.StatusCreated && resp.Header.Get("Location") == "" {
		// A login without Location would leave its session behind; the body names it too.
		if m, err := fields(body); err == nil && text(m, "@odata.id") != "" {
			resp.Header.Set("Location", text(m, "@odata.id"))
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// repeatable marks the context of a command that may be sent again on a new connection
// where the BMC closed the old one just then. Off and On may, a login may not.
type repeatable struct{}

// mediaType names what came instead of JSON, where it is a name: a BMC may quote anything.
func mediaType(resp *http.Response) string {
	switch t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t {
	case "text/html", "text/plain", "application/xml", "text/xml":
		return t
	default:
		return "something else"
	}
}

// isSuccess knows the same statuses as gofish, whose error for any other shows the whole body.
func isSuccess(resp *http.Response) bool {
	return resp.StatusCode == 200 || resp.StatusCode == 201 || resp.StatusCode == 202 || resp.StatusCode == 204
}

func isRedirect(resp *http.Response) bool {
	return resp.Header.Get("Location") != "" && (resp.StatusCode == 301 || resp.StatusCode == 302 ||
		resp.StatusCode == 303 || resp.StatusCode == 307 || resp.StatusCode == 308)
}

func isObject(body []byte) bool {
	t := bytes.TrimLeft(body, " \t\r\n")
	return len(t) > 0 && t[0] == '{' && json.Valid(t)
}

func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: c, of: n}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.Close()
		return nil, fmt.Errorf("dial %s: %w", addr, ErrClosed)
	}
	n.conns[t] = struct{}{}
	return t, nil
}

// close ends all connections and refuses new ones.
func (n *network) close() error {
	n.mu.Lock()
	n.closed = true
	var open []*trackedConn
	for c := range n.conns {
		open = append(open, c)
	}
	n.mu.Unlock()
	var errs []error
	for _, c := range open {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	n.inner.CloseIdleConnections()
	return errors.Join(errs...)
}

type trackedConn struct {
	net.Conn
	of *network
}

func (c *trackedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
