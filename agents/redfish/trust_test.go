package redfish

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
)

// TestTrust: which certificates are accepted, by each way to say so. What is refused never
// sees a credential.
func TestTrust(t *testing.T) {
	const (
		byPin = iota
		byCA
		byName // CA, with server_name
		byHost // the host's CAs
		insecure
	)
	for _, c := range []struct {
		name        string
		way         int
		certificate redfishsim.Certificate
		ok          bool
	}{
		{"pin", byPin, redfishsim.Valid, true},
		{"pin, expired: a BMC has no clock", byPin, redfishsim.Expired, true},
		{"pin, not yet valid: nor a calendar", byPin, redfishsim.NotYetValid, true},
		{"pin, self-signed", byPin, redfishsim.SelfSigned, true},
		{"CA", byCA, redfishsim.Valid, true},
		{"CA, expired", byCA, redfishsim.Expired, false},
		{"CA, not yet valid", byCA, redfishsim.NotYetValid, false},
		{"CA, wrong name", byCA, redfishsim.WrongName, false},
		{"CA, wrong name expected", byName, redfishsim.WrongName, true},
		{"CA, self-signed", byCA, redfishsim.SelfSigned, false},
		{"host's CAs", byHost, redfishsim.Valid, false},
		{"insecure", insecure, redfishsim.SelfSigned, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bmc := startBMC(t, nil)
			if err := bmc.SetCertificate(c.certificate); err != nil {
				t.Fatal(err)
			}
			o := options(bmc)
			if c.way != byPin {
				o.PinSHA256 = ""
			}
			switch c.way {
			case byCA, byName:
				o.CAFile = filepath.Join(t.TempDir(), "ca.pem")
				if err := os.WriteFile(o.CAFile, bmc.CAPEM(), 0o600); err != nil {
					t.Fatal(err)
				}
				if c.way == byName {
					o.ServerName = "other.invalid"
				}
			case insecure:
				o.Insecure = true
			}
			_, err := open(t, o).Status(within(t, 5*time.Second), "")
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrCertificate) {
				t.Errorf("error %v", err)
			}
			if want := "pin_sha256, if it is the BMC that shows " + bmc.CertPin(); !c.ok && !strings.Contains(err.Error(), want) {
				t.Errorf("no cure in %v", err)
			}
			if !c.ok && len(bmc.Requests()) > 0 {
				t.Errorf("a BMC that is not trusted got %+v", bmc.Requests())
			}
		})
	}
}

// TestOldTLS: a BMC that ends at TLS 1.2 is driven; our own floor is there too.
func TestOldTLS(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { c.OldTLS = true })
	a := open(t, options(bmc))
	if _, err := a.Status(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
	if v := a.network.inner.TLSClientConfig.MinVersion; v != tls.VersionTLS12 {
		t.Errorf("accepts TLS from %x on", v)
	}
}

// TestPinSwapped: after a factory reset the BMC shows another certificate; the pin notices
// on the next connection.
func TestPinSwapped(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Mode.CloseEach = true })
	a := open(t, options(bmc))
	ctx := within(t, 5*time.Second)
	if _, err := a.Status(ctx, ""); err != nil {
		t.Fatal(err)
	}
	if err := bmc.SetCertificate(redfishsim.SelfSigned); err != nil {
		t.Fatal(err)
	}
	seen := len(bmc.Requests())
	_, err := a.Status(ctx, "")
	if !errors.Is(err, ErrCertificate) || !strings.Contains(err.Error(), bmc.CertPin()) {
		t.Errorf("error %v, want one that shows the new pin", err)
	}
	if len(bmc.Requests()) != seen {
		t.Error("requests went to a BMC with another certificate")
	}
}

// TestInsecureIsAlone: insecure holds for this device, not for the process.
// (gofish trap 1: its Insecure changes http.DefaultTransport.)
func TestInsecureIsAlone(t *testing.T) {
	bmc := startBMC(t, nil)
	o := options(bmc)
	o.PinSHA256, o.Insecure = "", true
	if _, err := open(t, o).Status(within(t, 5*time.Second), ""); err != nil {
		t.Fatal(err)
	}
	if c := http.DefaultTransport.(*http.Transport).TLSClientConfig; c != nil && c.InsecureSkipVerify {
		t.Error("certificate checks are off for the whole process")
	}
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get(bmc.URL() + "/redfish/v1/")
	if err == nil {
		resp.Body.Close()
	}
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Errorf("another client accepts the certificate: %v", err)
	}
}

// TestNoProxy: the environment's proxy is not for fence devices.
func TestNoProxy(t *testing.T) {
	bmc := startBMC(t, nil)
	a := open(t, options(bmc))
	if a.network.inner.Proxy != nil {
		t.Error("a proxy is asked for")
	}
}

// TestPlainHTTP: http only where the operator said insecure, and TLS never falls back to it.
func TestPlainHTTP(t *testing.T) {
	bmc := startBMC(t, func(c *redfishsim.Config) { c.Plain = true })
	o := options(bmc)
	o.PinSHA256 = ""
	if _, err := o.Open(nil); err == nil {
		t.Error("http was accepted without insecure")
	}
	o.Insecure = true
	if _, err := open(t, o).Status(within(t, 5*time.Second), ""); err != nil {
		t.Error(err)
	}
	seen := len(bmc.Requests())
	o.Address = "https://" + bmc.Addr()
	if _, err := open(t, o).Status(within(t, 5*time.Second), ""); !errors.Is(err, ErrNotRedfish) {
		t.Errorf("error %v", err)
	}
	if len(bmc.Requests()) != seen {
		t.Error("TLS fell back to plain text")
	}
}

// TestUnreachable: refused connections, and a BMC that lost its power during the operation.
func TestUnreachable(t *testing.T) {
	bmc := startBMC(t, nil)
	a := open(t, options(bmc))
	ctx := within(t, 5*time.Second)
	if _, err := a.Status(ctx, ""); err != nil {
		t.Fatal(err)
	}
	bmc.Down()
	if _, err := a.Status(ctx, ""); !errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v", err)
	}
	if err := a.Off(ctx, ""); !errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v", err)
	}
	if err := bmc.Up(); err != nil {
		t.Fatal(err)
	}
	if r, err := a.Status(ctx, ""); err != nil || r.State != agents.On {
		t.Errorf("back again: %v, %v", r, err)
	}
}

// TestNothingLeaves: no document can send the credentials to another host, whatever it
// links to. A listener plays that host.
func TestNothingLeaves(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	caught := make(chan struct{}, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			caught <- struct{}{}
			c.Close()
		}
	}()
	defer func() { other.Close(); <-done }()

	host := other.Addr().String()
	for _, to := range []string{"https://" + host + "/x", "//" + host + "/x", "@" + host + "/x", "https://user@" + host + "/x"} {
		documents := map[redfishsim.Where]string{
			redfishsim.AtRoot:    `{"RedfishVersion":"1.6.0","Systems":{"@odata.id":"` + to + `"},"Links":{"Sessions":{"@odata.id":"` + to + `"}}}`,
			redfishsim.AtSystems: `{"Members":[{"@odata.id":"` + to + `"}]}`,
			redfishsim.AtSystem: `{"@odata.type":"#ComputerSystem.v1_0_0.ComputerSystem","Actions":{"#ComputerSystem.Reset":{"target":"` +
				to + `","@Redfish.ActionInfo":"` + to + `"}}}`,
		}
		for where, doc := range documents {
			for _, auth := range []string{AuthBasic, AuthSession} {
				bmc := startBMC(t, nil)
				bmc.SetFault(where, redfishsim.Document("application/json", doc))
				o := options(bmc)
				o.Auth = auth
				a := open(t, o)
				if err := a.Off(within(t, 5*time.Second), ""); err == nil {
					t.Errorf("%s, place %d, %s: no error", to, where, auth)
				}
			}
		}
		for _, status := range []int{301, 302, 303, 307, 308} {
			bmc := startBMC(t, nil)
			bmc.SetFault(redfishsim.AtSystem, redfishsim.Redirect(status, to))
			bmc.SetFault(redfishsim.AtReset, redfishsim.Redirect(status, to))
			o := options(bmc)
			o.Auth = AuthSession
			if _, err := open(t, o).Status(within(t, 5*time.Second), ""); err == nil && !strings.HasPrefix(to, "@") {
				t.Errorf("%s, %d: no error", to, status)
			}
		}
	}
	if len(caught) > 0 {
		t.Errorf("%d connections to another host", len(caught))
	}
}
