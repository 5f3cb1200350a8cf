package redfish

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hamgr/hamgr/agents"
)

// How to authenticate (Options.Auth).
const (
	// AuthBasic sends the credentials with each request. It needs no session slot
	// at the BMC and leaves none behind, so it is the default.
	AuthBasic = "basic"
	// AuthSession logs in, and out again on Close. For BMCs that refuse basic.
	AuthSession = "session"
)

// Options are the keys of a redfish device.
type Options struct {
	Address    string        `toml:"address" doc:"https URL, or host[:port], of the BMC"`
	Username   string        `toml:"username" doc:"account with the right to reset the system (role Operator)"`
	Password   agents.Secret `toml:"password" doc:"its password"`
	System     string        `toml:"system" doc:"URI, ID, UUID or serial number of the system, or URI of a chassis; needed where the BMC has several"`
	CAFile     string        `toml:"ca_file" doc:"PEM file with the CA that signed the BMC's certificate; default: the host's CAs"`
	ServerName string        `toml:"server_name" doc:"name in the BMC's certificate, where it is not the address"`
	PinSHA256  string        `toml:"pin_sha256" doc:"SHA-256 of the BMC's certificate in hex, instead of a CA"`
	Insecure   bool          `toml:"insecure" doc:"do not check this BMC's certificate, and allow http"`
	Auth       string        `toml:"auth" oneof:"basic|session" doc:"how to log in: with each request, or once"`
}

// Sees says that a BMC sees the machine itself, not a mere feed.
func (*Options) Sees() agents.Sees { return agents.SeesMachine }

// Validate checks the keys. It reads ca_file, and touches no network.
func (o *Options) Validate() error {
	_, errs := parseAddress(o.Address, o.Insecure)
	errs = append(errs, o.checkCredentials()...)
	errs = append(errs, o.checkTrust()...)
	if strings.HasPrefix(o.System, "/") {
		if _, err := (address{scheme: "https", host: "bmc"}).reference(o.System); err != nil {
			errs = append(errs, &agents.KeyError{Key: "system", Msg: "not a URI of the BMC", Cure: `write it like "/redfish/v1/Systems/1"`})
		}
	} else if hasControl(o.System) || strings.Contains(o.System, "/") {
		errs = append(errs, &agents.KeyError{Key: "system", Msg: "neither a URI nor an ID",
			Cure: `write a path like "/redfish/v1/Systems/1" or the system's ID, UUID or serial number`})
	}
	return errors.Join(errs...)
}

func (o *Options) checkCredentials() (errs []error) {
	bad := func(key, msg, cure string) { errs = append(errs, &agents.KeyError{Key: key, Msg: msg, Cure: cure}) }
	switch o.Auth {
	case AuthBasic, AuthSession:
	default:
		bad("auth", fmt.Sprintf("%q is not known", o.Auth), `write "basic" or "session"`)
	}
	switch {
	case o.Username == "":
		bad("username", "is missing", "name a BMC account with the role Operator")
	case hasControl(o.Username) || !utf8.ValidString(o.Username):
		bad("username", "holds a control character or is not UTF-8", "")
	case o.Auth == AuthBasic && strings.Contains(o.Username, ":"):
		// RFC 7617, section 2: everything after the first colon is the password.
		bad("username", "holds a colon, which basic authentication cannot send", `set auth = "session"`)
	}
	switch pw := o.Password.Reveal(); {
	case pw == "":
		bad("password", "is missing", "set password_file, password_env or password_credential")
	case hasControl(pw):
		bad("password", "holds a control character", "check the file for line ends and tabs")
	case o.Auth == AuthSession && !utf8.ValidString(pw):
		bad("password", "is not UTF-8, which a session login cannot send", `set auth = "basic" or change it`)
	}
	return errs
}

func (o *Options) checkTrust() (errs []error) {
	bad := func(key, msg, cure string) { errs = append(errs, &agents.KeyError{Key: key, Msg: msg, Cure: cure}) }
	if o.PinSHA256 != "" {
		if _, err := parsePin(o.PinSHA256); err != nil {
			bad("pin_sha256", err.Error(), "print it with: openssl x509 -noout -fingerprint -sha256")
		}
		if o.CAFile != "" {
			bad("pin_sha256", "excludes ca_file", "keep one of them")
		}
		if o.ServerName != "" {
			bad("server_name", "has no meaning with pin_sha256", "remove it")
		}
	}
	if o.CAFile != "" {
		if _, err := readCAs(o.CAFile); err != nil {
			bad("ca_file", err.Error(), "name a readable file with PEM certificates")
		}
	}
	if o.Insecure && (o.PinSHA256 != "" || o.CAFile != "" || o.ServerName != "") {
		bad("insecure", "excludes pin_sha256, ca_file and server_name", "remove insecure")
	}
	return errs
}

// Open makes a handle. Nothing is sent before the first call. log may be nil.
func (o *Options) Open(log *slog.Logger) (agents.Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("redfish: %w", err)
	}
	base, _ := parseAddress(o.Address, o.Insecure)
	conf, err := o.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("redfish: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	n := newNetwork(base, conf)
	a := &agent{base: base, opts: *o, log: log, network: n, resolved: map[string]string{}}
	a.http = &http.Client{Transport: n, CheckRedirect: base.checkRedirect, Timeout: requestLimit}
	return a, nil
}

// requestLimit bounds one request whose context has no deadline of its own.
const requestLimit = 30 * time.Second

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

// parsePin reads a SHA-256 in hex, with or without the colons of openssl.
func parsePin(s string) (pin [sha256.Size]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(b) != sha256.Size {
		return pin, errors.New("is not a SHA-256 in hex (64 digits)")
	}
	return [sha256.Size]byte(b), nil
}

func readCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return pool, nil
}
