package ipmi

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"unicode"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
)

const (
	defaultPort = 623 // RMCP primary port (IPMI 2.0, 13.1.2)

	longestUsername = 16 // IPMI 2.0, 22.29
	longestPassword = 20 // IPMI 2.0, 22.30
	longestBMCKey   = 20 // IPMI 2.0, 22.25
)

// The privilege levels that may send Chassis Control (IPMI 2.0, appendix G).
const (
	operator      = "operator"
	administrator = "administrator"
)

// Options are the keys of an ipmi device.
type Options struct {
	Address     string        `toml:"address" doc:"host, or host:port, of the BMC"`
	Port        int           `toml:"port" doc:"UDP port, where address names none; default 623"`
	Username    string        `toml:"username" doc:"account with the privilege level operator; 16 bytes at most"`
	Password    agents.Secret `toml:"password" doc:"its password; 20 bytes at most, used byte by byte"`
	BMCKey      agents.Secret `toml:"bmc_key" doc:"the BMC's own key (Kg), where one is set: 20 bytes at most, or 0x and their hex digits"`
	CipherSuite int           `toml:"cipher_suite" doc:"17 or 3; default: 17, or 3 if the BMC says that it lacks 17"`
	Privilege   string        `toml:"privilege" doc:"level of the session, operator or administrator; default operator"`
}

// Sees says that a BMC reads the machine itself.
func (o *Options) Sees() agents.Sees { return agents.SeesMachine }

// Plug says that there are none: a BMC powers one machine.
func (o *Options) Plug(plug string) (string, error) {
	if plug != "" {
		return "", errAlone
	}
	return "", nil
}

// Validate checks the keys. It touches no network.
func (o *Options) Validate() error {
	_, errs := o.endpoint()
	errs = append(errs, o.checkAccount()...)
	bad := func(key, msg, cure string) { errs = append(errs, &agents.KeyError{Key: key, Msg: msg, Cure: cure}) }
	if _, err := parseBMCKey(o.BMCKey.Reveal()); err != nil {
		bad("bmc_key", err.Error(), "write at most 20 bytes, or 0x and at most 40 hex digits")
	}
	if o.suites() == nil {
		bad("cipher_suite", fmt.Sprintf("%d is not supported", o.CipherSuite), "write 17 or 3, or leave it out")
	}
	switch o.Privilege {
	case operator, administrator:
	case "user", "callback":
		bad("privilege", fmt.Sprintf("%q may not switch the power", o.Privilege), `write "operator" or "administrator"`)
	default:
		bad("privilege", fmt.Sprintf("%q is not known", o.Privilege), `write "operator" or "administrator"`)
	}
	return errors.Join(errs...)
}

func (o *Options) checkAccount() (errs []error) {
	bad := func(key, msg, cure string) { errs = append(errs, &agents.KeyError{Key: key, Msg: msg, Cure: cure}) }
	switch n := len(o.Username); {
	case n == 0:
		bad("username", "is missing", "name a BMC account with the privilege level operator")
	case n > longestUsername:
		bad("username", fmt.Sprintf("has %d bytes, IPMI allows %d", n, longestUsername), "")
	case strings.ContainsFunc(o.Username, unicode.IsControl):
		bad("username", "holds a control character", "")
	}
	switch n := len(o.Password.Reveal()); {
	case n == 0:
		bad("password", "is missing", "set password_file, password_env or password_credential")
	case n > longestPassword:
		// Cutting it would be worse: the BMC may have refused it, or cut it elsewhere.
		bad("password", fmt.Sprintf("has %d bytes, IPMI allows %d", n, longestPassword), "set a shorter one at the BMC")
	}
	return errs
}

// endpoint gives host:port.
func (o *Options) endpoint() (string, []error) {
	bad := func(key, msg, cure string) []error { return []error{&agents.KeyError{Key: key, Msg: msg, Cure: cure}} }
	if o.Address == "" {
		return "", bad("address", "is missing", "write the BMC's host or host:port")
	}
	host, port := strings.Trim(o.Address, "[]"), o.Port
	if net.ParseIP(host) == nil && strings.Contains(o.Address, ":") {
		h, p, err := net.SplitHostPort(o.Address)
		if err != nil {
			return "", bad("address", "is neither host nor host:port", `write it like "10.9.0.11" or "[fd00::11]:623"`)
		}
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 65535 {
			return "", bad("address", fmt.Sprintf("%q is not a port", p), "write a number from 1 to 65535")
		}
		if o.Port != defaultPort && o.Port != n {
			return "", bad("port", "contradicts the port in address", "remove one of them")
		}
		host, port = h, n
	}
	odd := func(r rune) bool { return !unicode.IsPrint(r) || strings.ContainsRune(" /@?#[]\"'\\", r) }
	if host == "" || strings.ContainsFunc(host, odd) {
		return "", bad("address", "is not a host", `write it like "10.9.0.11" or "bmc1.example.org:623"`)
	}
	if port < 1 || port > 65535 {
		return "", bad("port", fmt.Sprintf("%d is not a port", port), "write a number from 1 to 65535")
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// parseBMCKey reads Kg: as it is, or in hex for keys that no file would carry. nil is none.
func parseBMCKey(s string) ([]byte, error) {
	key := []byte(s)
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		var err error
		if key, err = hex.DecodeString(digits); err != nil {
			return nil, errors.New("is not hex after 0x") // never the decoder's words: they quote the key
		}
	}
	if len(key) > longestBMCKey {
		return nil, fmt.Errorf("has %d bytes, IPMI allows %d", len(key), longestBMCKey)
	}
	if s != "" && len(bytes.Trim(key, "\x00")) == 0 {
		return nil, errors.New("is all zeros, which stands for none")
	}
	if len(key) == 0 {
		return nil, nil
	}
	return key, nil
}

// suite is a cipher suite: how both sides authenticate, sign and encrypt (IPMI 2.0, table 22-20).
type suite struct {
	id    int
	auth  types.AuthAlg
	sign  types.IntegrityAlg
	crypt types.CryptAlg
}

// Both encrypt by AES-CBC-128. Others either do not sign or encrypt, or use MD5 or RC4.
var (
	suite17 = suite{17, types.AuthAlg_HMAC_SHA256, types.IntegrityAlg_HMAC_SHA256_128, types.CryptAlg_AES_CBC_128}
	suite3  = suite{3, types.AuthAlg_HMAC_SHA1, types.IntegrityAlg_HMAC_SHA1_96, types.CryptAlg_AES_CBC_128}
)

func (o *Options) suites() []suite {
	switch o.CipherSuite {
	case 0:
		return []suite{suite17, suite3}
	case 17:
		return []suite{suite17}
	case 3:
		return []suite{suite3}
	}
	return nil
}

// target is whom a session is made with, and as whom.
type target struct {
	address  string
	username string
	password []byte // Kuid, padded
	key      []byte // what the session keys are derived from: Kg, or Kuid
	keyed    bool   // key is Kg
	level    types.PrivilegeLevel
}

// Open makes a handle. Nothing is sent before the first call. log may be nil.
func (o *Options) Open(log *slog.Logger) (agents.Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("ipmi: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := target{username: o.Username, level: types.PrivilegeLevelOperator}
	t.address, _ = o.endpoint()
	t.password = crypto.PadPassword20([]byte(o.Password.Reveal()))
	t.key, _ = parseBMCKey(o.BMCKey.Reveal())
	if t.keyed = t.key != nil; !t.keyed {
		t.key = t.password // one-key login (IPMI 2.0, 13.33)
	}
	if o.Privilege == administrator {
		t.level = types.PrivilegeLevelAdministrator
	}
	return &agent{target: t, log: log, suites: o.suites(), wait: shortestWait}, nil
}
