package snmp

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"unicode"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// Options are the keys of an snmp device.
type Options struct {
	Address        string        `toml:"address" doc:"host[:port] of the PDU; port 161 if not given"`
	Version        string        `toml:"version" doc:"SNMP version: 1, 2c or 3; default 3"`
	Community      agents.Secret `toml:"community" doc:"versions 1 and 2c: the community that may read, and write unless write_community is given"`
	WriteCommunity agents.Secret `toml:"write_community" doc:"versions 1 and 2c: the community that may write, where it is another one"`
	Username       string        `toml:"username" doc:"version 3: user with the right to switch the outlets"`
	Auth           string        `toml:"auth" doc:"version 3: SHA, SHA224, SHA256, SHA384 or SHA512; MD5 for devices that have nothing better"`
	AuthPassword   agents.Secret `toml:"auth_password" doc:"version 3: the user's authentication password, 8 bytes at least"`
	Priv           string        `toml:"priv" doc:"version 3: AES, AES192, AES256, AES192C or AES256C (C: the variant of Cisco and others); DES for devices that have nothing better; none to go without encryption"`
	PrivPassword   agents.Secret `toml:"priv_password" doc:"version 3: the user's privacy password, 8 bytes at least"`
	ContextName    string        `toml:"context_name" doc:"version 3: the context, for devices that have several"`
	Profile        string        `toml:"profile" doc:"the PDU's family; default: detected by sysObjectID"`
	SysObjectID    string        `toml:"sys_object_id" doc:"the sysObjectID that the device must have; needed where profile contradicts it"`
}

const version3 = "3"

var (
	versions = map[string]gosnmp.SnmpVersion{"1": gosnmp.Version1, "2c": gosnmp.Version2c, version3: gosnmp.Version3}
	// HMAC-SHA-2 is RFC 7860; MD5 and SHA are RFC 3414.
	auths = map[string]gosnmp.SnmpV3AuthProtocol{"MD5": gosnmp.MD5, "SHA": gosnmp.SHA, "SHA224": gosnmp.SHA224,
		"SHA256": gosnmp.SHA256, "SHA384": gosnmp.SHA384, "SHA512": gosnmp.SHA512}
	// AES is RFC 3826. Its longer keys are no standard: draft-blumenthal-aes-usm and, with a C,
	// draft-reeder-snmpv3-usm-3desede stretch the password differently.
	privs = map[string]gosnmp.SnmpV3PrivProtocol{"none": gosnmp.NoPriv, "DES": gosnmp.DES, "AES": gosnmp.AES,
		"AES192": gosnmp.AES192, "AES256": gosnmp.AES256, "AES192C": gosnmp.AES192C, "AES256C": gosnmp.AES256C}
)

const (
	shortestPassword = 8   // RFC 3414, section 11.2
	longestPassword  = 255 // ours
	longestUser      = 32  // RFC 3414, section 5: usmUserName
	longestCommunity = 127 // what fits gosnmp's length byte
)

// keyErrors gathers what is wrong with the keys.
type keyErrors []error

func (e *keyErrors) add(key, msg, cure string) {
	*e = append(*e, &agents.KeyError{Key: key, Msg: msg, Cure: cure})
}

// Validate checks the keys. It touches no network.
func (o *Options) Validate() error {
	var errs keyErrors
	if _, _, err := splitAddress(o.Address); err != nil {
		errs.add("address", err.Error(), `write a host name or an IP address, with ":port" if it is not 161`)
	}
	switch o.Version {
	case "1", "2c":
		o.checkCommunities(&errs)
	case version3:
		o.checkUser(&errs)
	default:
		errs.add("version", fmt.Sprintf("%q is not known", o.Version), `write "1", "2c" or "3"`)
	}
	if o.Profile != "" && profileNamed(o.Profile) == nil {
		errs.add("profile", fmt.Sprintf("%q is not known", o.Profile), "write one of "+profileNames()+", or leave it out to have it detected")
	}
	if o.SysObjectID != "" && !isOID(plain(o.SysObjectID)) {
		errs.add("sys_object_id", "is not an OID in digits", `write it like "1.3.6.1.4.1.318.1.3.4.6"`)
	}
	return errors.Join(errs...)
}

func (o *Options) checkCommunities(errs *keyErrors) {
	check := func(key string, s agents.Secret) {
		if len(s.Reveal()) > longestCommunity {
			errs.add(key, fmt.Sprintf("is longer than %d bytes", longestCommunity), "")
		}
		if hasControl(s.Reveal()) {
			errs.add(key, "holds a control character", "check the file for line ends and tabs")
		}
	}
	if o.Community.IsZero() {
		errs.add("community", "is missing", "set community_file, community_env or community_credential")
	}
	check("community", o.Community)
	check("write_community", o.WriteCommunity)
	for _, k := range []struct {
		key string
		set bool
	}{{"username", o.Username != ""}, {"auth", o.Auth != ""}, {"auth_password", !o.AuthPassword.IsZero()}, {"priv", o.Priv != ""},
		{"priv_password", !o.PrivPassword.IsZero()}, {"context_name", o.ContextName != ""}} {
		if k.set {
			errs.add(k.key, "has no meaning in version "+o.Version, `remove it, or write version = "3"`)
		}
	}
}

func (o *Options) checkUser(errs *keyErrors) {
	switch {
	case o.Username == "":
		errs.add("username", "is missing", "name a user of the device that may switch the outlets")
	case len(o.Username) > longestUser:
		errs.add("username", fmt.Sprintf("is longer than %d bytes", longestUser), "")
	case hasControl(o.Username):
		errs.add("username", "holds a control character", "")
	}
	if _, ok := auths[o.Auth]; !ok {
		msg := fmt.Sprintf("%q is not known", o.Auth)
		if o.Auth == "" {
			msg = "is missing: without it, anybody could answer \"off\""
		}
		errs.add("auth", msg, "write SHA, SHA224, SHA256, SHA384 or SHA512, as at the device")
	}
	checkPassword(errs, "auth_password", o.AuthPassword)
	switch _, ok := privs[o.Priv]; {
	case o.Priv == "":
		errs.add("priv", "is missing", "write AES, AES192, AES256, AES192C or AES256C, as at the device, or none")
	case !ok:
		errs.add("priv", fmt.Sprintf("%q is not known", o.Priv), "write AES, AES192, AES256, AES192C or AES256C, as at the device, or none")
	case o.Priv == "none" && !o.PrivPassword.IsZero():
		errs.add("priv_password", `has no meaning with priv = "none"`, "remove it")
	case o.Priv != "none":
		checkPassword(errs, "priv_password", o.PrivPassword)
	}
	if len(o.ContextName) > longestPassword || hasControl(o.ContextName) {
		errs.add("context_name", "is too long or holds a control character", "")
	}
	for _, k := range []struct {
		key    string
		secret agents.Secret
	}{{"community", o.Community}, {"write_community", o.WriteCommunity}} {
		if !k.secret.IsZero() {
			errs.add(k.key, "has no meaning in version 3", `remove it, or write version = "2c"`)
		}
	}
}

func checkPassword(errs *keyErrors, key string, s agents.Secret) {
	switch pw := s.Reveal(); {
	case pw == "":
		errs.add(key, "is missing", fmt.Sprintf("set %s_file, %[1]s_env or %[1]s_credential", key))
	case len(pw) < shortestPassword:
		errs.add(key, fmt.Sprintf("is shorter than %d bytes, which SNMP does not allow", shortestPassword), "choose a longer one")
	case len(pw) > longestPassword:
		errs.add(key, fmt.Sprintf("is longer than %d bytes", longestPassword), "")
	case hasControl(pw):
		errs.add(key, "holds a control character", "check the file for line ends and tabs")
	}
}

// Open makes a handle. Nothing is sent before the first call. log may be nil.
func (o *Options) Open(log *slog.Logger) (agents.Agent, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("snmp: %w", err)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &agent{opts: *o, named: profileNamed(o.Profile), log: log}
	a.opts.SysObjectID = plain(o.SysObjectID)
	return a, nil
}

// usm gives gosnmp what it needs to speak for the user at a security level. Each session
// has its own: gosnmp keeps the engine's state in it.
func (o *Options) usm(level gosnmp.SnmpV3MsgFlags) *gosnmp.UsmSecurityParameters {
	u := &gosnmp.UsmSecurityParameters{UserName: o.Username, AuthenticationProtocol: auths[o.Auth],
		AuthenticationPassphrase: o.AuthPassword.Reveal(), PrivacyProtocol: gosnmp.NoPriv}
	if level == gosnmp.AuthPriv {
		u.PrivacyProtocol, u.PrivacyPassphrase = privs[o.Priv], o.PrivPassword.Reveal()
	}
	return u
}

// level is the security level that is configured.
func (o *Options) level() gosnmp.SnmpV3MsgFlags {
	switch {
	case o.Version != version3:
		return gosnmp.NoAuthNoPriv
	case o.Priv == "none":
		return gosnmp.AuthNoPriv
	}
	return gosnmp.AuthPriv
}

func (o *Options) target() (host string, port uint16) {
	host, port, _ = splitAddress(o.Address)
	return host, port
}

// splitAddress takes host[:port] apart; IPv6 addresses with a port are in brackets.
func splitAddress(s string) (host string, port uint16, err error) {
	const snmpPort = 161
	host = strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
	if ip := net.ParseIP(host); ip != nil {
		return host, snmpPort, nil
	}
	host, digits, found := strings.Cut(s, ":")
	if strings.Contains(digits, ":") || strings.HasPrefix(s, "[") {
		if host, digits, err = net.SplitHostPort(s); err != nil {
			return "", 0, errors.New("is not host[:port]")
		}
	}
	n := uint64(snmpPort)
	if found {
		if n, err = strconv.ParseUint(digits, 10, 16); err != nil || n == 0 {
			return "", 0, fmt.Errorf("has port %q, which is none", digits)
		}
	}
	switch {
	case host == "":
		return "", 0, errors.New("is missing")
	case strings.ContainsFunc(host, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("/@[]", r)
	}):
		return "", 0, errors.New("is not host[:port]")
	}
	return host, uint16(n), nil
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
