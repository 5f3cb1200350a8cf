// Package independent holds the redfish agent against the mock BMC of IronCore's metal-operator, which
// was written by others from the same standards: what the agent and our own simulator
// misread alike shows here. It has basic authentication, one system, answers 202, and obeys a
// moment later.
package independent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/ironcore-dev/metal-operator/bmc/mock/server"
	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// direct is how the mock itself is asked: no connection stays open.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

const (
	user     = "admin"
	password = "adminpass"
	uri      = "/redfish/v1/Systems/437XR1138R2"
)

// mock is the foreign BMC, with a proxy of ours before it that counts what passes, may hold it
// up, and speaks TLS where the mock cannot.
type mock struct {
	t       testing.TB
	address string // of the mock itself
	proxy   *httptest.Server

	end     context.CancelFunc
	ended   chan error
	resets  atomic.Int64
	mu      sync.Mutex
	thawed  chan struct{} // not nil while frozen
	stopped chan struct{}
}

func start(t testing.TB, tls bool) *mock {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mock{t: t, address: l.Addr().String(), stopped: make(chan struct{})}
	l.Close()
	m.up()
	t.Cleanup(m.down)

	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: m.address})
	transport := &http.Transport{}
	to.Transport, to.ErrorLog = transport, log.New(io.Discard, "", 0)
	m.proxy = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.pass(w, r, to) }))
	m.proxy.Config.ErrorLog = to.ErrorLog
	if tls {
		m.proxy.StartTLS()
	} else {
		m.proxy.Start()
	}
	t.Cleanup(func() {
		close(m.stopped)
		m.proxy.CloseClientConnections()
		m.proxy.Close()
		transport.CloseIdleConnections()
	})
	return m
}

// up starts the mock, as it is after a restart: on, and with its first password.
func (m *mock) up() {
	ctx, cancel := context.WithCancel(context.Background())
	m.end, m.ended = cancel, make(chan error, 1)
	go func() { m.ended <- server.NewMockServer(logr.Discard(), m.address, server.WithAuth()).Start(ctx) }()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("tcp", m.address); err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			m.t.Fatal("the mock does not listen")
		}
	}
}

func (m *mock) down() {
	m.end()
	if err := <-m.ended; err != nil {
		m.t.Error(err)
	}
}

func (m *mock) pass(w http.ResponseWriter, r *http.Request, to http.Handler) {
	body, _ := io.ReadAll(r.Body) // so that net/http notices a client that goes away
	r.Body = io.NopCloser(bytes.NewReader(body))
	m.mu.Lock()
	thawed := m.thawed
	m.mu.Unlock()
	if thawed != nil {
		select {
		case <-thawed:
		case <-m.stopped:
			panic(http.ErrAbortHandler)
		}
	}
	if strings.HasSuffix(r.URL.Path, "/Actions/ComputerSystem.Reset") {
		m.resets.Add(1)
	}
	to.ServeHTTP(w, r)
}

func (m *mock) freeze() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.thawed = make(chan struct{})
}

func (m *mock) thaw() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.thawed)
	m.thawed = nil
}

// options are those of an agent that trusts the proxy by its pin.
func (m *mock) options() *redfish.Options {
	o := redfish.Kind().Options().(*redfish.Options)
	o.Address, o.Username, o.Password = m.proxy.URL, user, agents.NewSecret(password)
	if cert := m.proxy.Certificate(); cert != nil {
		sum := sha256.Sum256(cert.Raw)
		o.PinSHA256 = hex.EncodeToString(sum[:])
	} else {
		o.Insecure = true
	}
	return o
}

func (m *mock) open(change func(*redfish.Options)) func(*slog.Logger) (agents.Agent, error) {
	return func(log *slog.Logger) (agents.Agent, error) {
		o := m.options()
		if change != nil {
			change(o)
		}
		return o.Open(log)
	}
}

// request asks the mock itself, past the agent and the proxy.
func (m *mock) request(method, path, body string) (doc map[string]any) {
	req, err := http.NewRequest(method, "http://"+m.address+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	req.SetBasicAuth(user, password)
	resp, err := direct.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		m.t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil {
			m.t.Fatal(err)
		}
	}
	return doc
}

// power is the mock's own view.
func (m *mock) power() agents.PowerState {
	switch m.request("GET", uri, "")["PowerState"] {
	case "On":
		return agents.On
	case "Off":
		return agents.Off
	}
	return agents.Unknown
}

// setPower changes it behind the agent's back, after what was ordered before.
func (m *mock) setPower(s agents.PowerState) {
	for end := time.Now().Add(5 * time.Second); m.request("GET", uri, "")["resourceLock"] != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatal("the mock is busy for ever")
		}
	}
	m.request("PATCH", uri, `{"PowerState":"`+map[agents.PowerState]string{agents.On: "On", agents.Off: "Off"}[s]+`"}`)
}
