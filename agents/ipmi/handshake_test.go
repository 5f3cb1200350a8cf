package ipmi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/rmcpplus"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// TestHandshakeForged: what stands between us and the BMC may send anything before the BMC's own
// messages. It opens no session, gets no weaker one, and does not keep ours from being opened.
func TestHandshakeForged(t *testing.T) {
	t.Parallel()
	each := func(change func(b []byte) []byte) func([]byte) [][]byte {
		return func(b []byte) [][]byte {
			if b[5]&0xc0 != 0 {
				return [][]byte{b}
			}
			return [][]byte{change(bytes.Clone(b)), b}
		}
	}
	only := func(kind byte, change func(b []byte)) func([]byte) [][]byte {
		return each(func(b []byte) []byte {
			if b[5] == kind {
				change(b)
			}
			return b
		})
	}
	for name, forge := range map[string]func([]byte) [][]byte{
		"cut everywhere": func(b []byte) (all [][]byte) {
			for i := range b {
				all = append(all, b[:i])
			}
			return append(all, b)
		},
		"payload cut, and its length too": func(b []byte) (all [][]byte) {
			for n := range len(b) - headerLength {
				c := bytes.Clone(b[:headerLength+n])
				binary.LittleEndian.PutUint16(c[14:], uint16(n))
				all = append(all, c)
			}
			return append(all, b)
		},
		"of IPMI 1.5":             each(func(b []byte) []byte { b[4] = 0; return b }),
		"of the next step":        each(func(b []byte) []byte { b[5] += 2; return b }),
		"to another console":      each(func(b []byte) []byte { b[20] ^= 1; b[min(24, len(b)-1)] ^= 1; return b }),
		"signed by somebody else": only(kindRAKP2, func(b []byte) { b[len(b)-1] ^= 1 }),
		"without signature":       only(kindRAKP2, func(b []byte) { clear(b[56:]) }),
		"with another random":     only(kindRAKP2, func(b []byte) { b[24] ^= 1 }),
		"with another GUID":       only(kindRAKP2, func(b []byte) { b[40] ^= 1 }),
		"with other session keys": only(kindRAKP4, func(b []byte) { b[len(b)-1] ^= 1 }),
		"RAKP 4 without keys":     only(kindRAKP4, func(b []byte) { clear(b[24:]) }),
		"no session ID":           only(kindOpenResponse, func(b []byte) { clear(b[24:28]) }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
			proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
			proxy.Forge(forge)
			reads(t, open(t, options(proxy.Addr())), agents.On)
		})
	}
}

// TestHandshakeNeverWeaker: where only forged messages arrive, there is no session.
func TestHandshakeNeverWeaker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   byte
		change func(b []byte)
		want   error
	}{
		"no authentication": {kindOpenResponse, func(b []byte) { b[32] = 0 }, agents.ErrUnfit},
		"no signatures":     {kindOpenResponse, func(b []byte) { b[40] = 0 }, agents.ErrUnfit},
		"no encryption":     {kindOpenResponse, func(b []byte) { b[48] = 0 }, agents.ErrUnfit},
		"other password":    {kindRAKP2, func(b []byte) { b[len(b)-1] ^= 1 }, agents.ErrCredentials},
		"other keys":        {kindRAKP4, func(b []byte) { b[len(b)-1] ^= 1 }, agents.ErrCredentials},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
			proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
			proxy.Forge(func(b []byte) [][]byte {
				if b[5] == c.kind {
					c.change(b)
				}
				return [][]byte{b}
			})
			reading, err := open(t, options(proxy.Addr())).Status(within(t, 3*time.Second), "")
			if reading.State != agents.Unknown || !errors.Is(err, c.want) {
				t.Errorf("%v, %v; want %v", reading.State, err, c.want)
			}
		})
	}
}

// TestRefusals: each refusal of the handshake has its word.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for status, want := range map[types.RmcpStatusCode]agents.Trouble{
		types.RmcpStatusCodeNoResToCreateSess:          agents.Busy,
		types.RmcpStatusCodeNoResToCreateSessAtRole:    agents.Busy,
		types.RmcpStatusCodeInvalidRole:                agents.Privilege,
		types.RmcpStatusCodeUnauthorizedRoleOfPriLevel: agents.Privilege,
		types.RmcpStatusCodeUnauthorizedName:           agents.Credentials,
		types.RmcpStatusCodeInvalidNameLength:          agents.Credentials,
		types.RmcpStatusCodeInvalidIntegrityCheckValue: agents.Protocol,
		types.RmcpStatusCodeIllegalParameter:           agents.Protocol,
		0xee:                                           agents.Protocol,
	} {
		if got := agents.TroubleOf(&setupError{nameMessage, status}); got != want {
			t.Errorf("%02Xh is %q, want %q", uint8(status), got, want)
		}
	}
	if got := agents.TroubleOf(&setupError{keyMessage, types.RmcpStatusCodeUnauthorizedName}); got != agents.Protocol {
		t.Errorf("0Dh after a proven password is %q", got)
	}
	for message, want := range map[string]agents.Trouble{openMessage: agents.Unfit, keyMessage: agents.Protocol} {
		if got := agents.TroubleOf(&setupError{message, types.RmcpStatusCodeNoCipherSuiteMatch}); got != want {
			t.Errorf("11h to %s is %q, want %q", message, got, want)
		}
	}
	for code, want := range map[types.CompletionCode]agents.Trouble{
		types.CodeInsufficientPrivilege:              agents.Privilege,
		types.CodeNodeBusy:                           agents.Busy,
		types.CodeCannotProvideResponseBMCInitialize: agents.Busy,
		types.CodeInvalidCommand:                     agents.Unfit,
		types.CodeSubFnDisabled:                      agents.Unfit,
		types.CodeNotSupported:                       agents.Other,
		types.CodeUnspecifiedError:                   agents.Other,
		0x81:                                         agents.Other,
	} {
		if got := agents.TroubleOf(&completionError{types.CommandChassisControl, code}); got != want {
			t.Errorf("%02Xh is %q, want %q", uint8(code), got, want)
		}
	}
	if got := agents.TroubleOf(&completionError{types.CommandSetSessionPrivilegeLevel, 0x81}); got != agents.Privilege {
		t.Errorf("81h to Set Session Privilege Level is %q", got)
	}
}

// TestAccounts: who may not in, or may not switch, is told why.
func TestAccounts(t *testing.T) {
	t.Parallel()
	sim := ipmipeer.Start(t, ipmipeer.Config{})
	reference := ipmipeer.StartReference(t, ipmipeer.Config{}, 20)
	for name, c := range map[string]struct {
		addr   string
		change func(*Options)
		want   agents.Trouble
	}{
		"password, sim":   {sim.Addr(), func(o *Options) { o.Password = agents.NewSecret("wrong") }, agents.Credentials},
		"password":        {reference.Addr(), func(o *Options) { o.Password = agents.NewSecret("wrong") }, agents.Credentials},
		"user, sim":       {sim.Addr(), func(o *Options) { o.Username = "nobody" }, agents.Credentials},
		"user":            {reference.Addr(), func(o *Options) { o.Username = "nobody" }, agents.Credentials},
		"BMC key, sim":    {sim.Addr(), func(o *Options) { o.BMCKey = agents.NewSecret("key") }, agents.Credentials},
		"BMC key":         {reference.Addr(), func(o *Options) { o.BMCKey = agents.NewSecret("key") }, agents.Credentials},
		"suite 17, sim":   {sim.Addr(), func(o *Options) { o.CipherSuite = 17 }, agents.Unfit},
		"privilege":       {reference.Addr(), func(o *Options) { o.Username = ipmipeer.UserOnly }, agents.Privilege},
		"privilege admin": {reference.Addr(), func(o *Options) { o.Username, o.Privilege = ipmipeer.UserOnly, administrator }, agents.Privilege},
		"suite 3":         {reference.Addr(), func(o *Options) { o.CipherSuite = 3 }, agents.NoTrouble},
		"administrator":   {reference.Addr(), func(o *Options) { o.Privilege = administrator }, agents.NoTrouble},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(c.addr)
			c.change(o)
			if err := open(t, o).Check(within(t, 3*time.Second), ""); agents.TroubleOf(err) != c.want {
				t.Errorf("check says %v, want %q", err, c.want)
			}
		})
	}
}

// TestSuiteNotBySilence: a weaker suite is tried when the BMC refuses the stronger one, never
// because nothing came.
func TestSuiteNotBySilence(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4, types.CipherSuiteID3)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
	proxy.Forge(func(b []byte) [][]byte {
		if b[5] == kindOpenResponse && b[17] != 0 {
			return nil // the refusal is lost
		}
		return [][]byte{b}
	})
	a := open(t, options(proxy.Addr()))
	// Longer than all the tries of suite 17 take.
	if reading, err := a.Status(within(t, 3*time.Second), ""); reading.State != agents.Unknown || !errors.Is(err, agents.ErrUnreachable) {
		t.Errorf("%v, %v", reading, err)
	}
	proxy.Forge(nil)
	reads(t, a, agents.On)
	if len(a.suites) != 1 || a.suites[0].id != 3 {
		t.Errorf("the handle does not remember the suite: %v", a.suites)
	}
}

// TestPasswords: any bytes, at their full length (B07).
func TestPasswords(t *testing.T) {
	t.Parallel()
	var all []byte
	for b := range 256 {
		if b != 0 { // a zero at the end is the padding's
			all = append(all, byte(b))
		}
	}
	sim := []string{"$`'#!;\\%&|<>*?~", "é漢ß", "1234567890123456"} // ipmi_sim reads 16 bytes of its file
	for n := 0; n < len(all); n += longestPassword {
		try(t, ipmipeer.StartReference(t, ipmipeer.Config{Password: string(all[n:min(n+longestPassword, len(all))])}, 4))
	}
	for _, password := range append(sim, "12345678901234567890", "a\x00b", " blank ", "\"quoted\"", "new\nline") {
		try(t, ipmipeer.StartReference(t, ipmipeer.Config{Password: password}, 4))
	}
	for _, password := range sim {
		b := ipmipeer.Start(t, ipmipeer.Config{Password: password})
		tryPassword(t, b.Addr(), password)
	}
}

func try(t *testing.T, r *ipmipeer.Reference) {
	t.Helper()
	tryPassword(t, r.Addr(), r.Password)
}

func tryPassword(t *testing.T, addr, password string) {
	t.Helper()
	o := options(addr)
	o.Password = agents.NewSecret(password)
	a := open(t, o)
	defer a.Close(context.Background())
	if r, err := a.Status(within(t, 3*time.Second), ""); err != nil || r.State != agents.On {
		t.Errorf("password %q: %v, %v", password, r, err)
	}
}

// FuzzHandshake: no message of the BMC panics or passes without the password's HMAC.
func FuzzHandshake(f *testing.F) {
	target := target{username: "fencer", password: crypto.PadPassword20([]byte("secret")), level: types.PrivilegeLevelOperator}
	target.key = target.password
	h := handshake{target: target, suite: suite17, ours: ourSession, bmc: 0x55667788, role: 0x13, sik: make([]byte, 32)}
	auth, sign, crypt := rmcpplus.NewAlgorithmPayloads(suite17.auth, suite17.sign, suite17.crypt)
	f.Add((&rmcpplus.OpenSessionResponse{RemoteConsoleSessionID: ourSession, ManagedSystemSessionID: 1, AuthenticationPayload: auth, IntegrityPayload: sign, ConfidentialityPayload: crypt}).Pack())
	f.Add((&rmcpplus.RAKPMessage2{RemoteConsoleSessionID: ourSession, KeyExchangeAuthenticationCode: make([]byte, 32)}).Pack())
	f.Add([]byte{0, 1})
	f.Add([]byte{0, 0x11, 0, 0, 0x44, 0x33, 0x22, 0x11})
	f.Add(append([]byte{0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11}, make([]byte, 16)...))
	f.Fuzz(func(t *testing.T, p []byte) {
		h := h
		status := h.status("fuzz", p)
		if h.opened(p) == nil && len(p) < 36 {
			t.Errorf("Open Session Response: %x", p)
		}
		if status == nil && (h.rakp2(p) == nil || h.rakp4(p) == nil) {
			t.Errorf("passed without the password: %x", p)
		}
	})
}
