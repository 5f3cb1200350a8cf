package snmp

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// FuzzPlug: a plug that is taken names exactly one outlet, or a word to look up.
func FuzzPlug(f *testing.F) {
	for _, s := range []string{"3", "1.1.3", "AA1", "db-psu1", "name:3", "name:a=b", "3=db-psu1", "0", "03", "1..2", "-1", "=", "", "99999999999999999999", "3=", "+3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePlug(s)
		if err != nil {
			return
		}
		if (p.number == nil) == (p.word == "") {
			t.Fatalf("%q is %+v", s, p)
		}
		for i := range profiles {
			if p.number == nil {
				break
			}
			o, err := p.outlet(&profiles[i])
			if err != nil {
				continue
			}
			number := o.number(&profiles[i])
			if which, _, _ := strings.Cut(s, "="); number != tidy(which) && !strings.HasSuffix(number, "."+tidy(which)) {
				t.Errorf("%q became outlet %s of %s", s, number, profiles[i].name)
			}
			for _, c := range []column{profiles[i].status, profiles[i].off.object, profiles[i].on.object} {
				back, ok := c.match(c.at(o))
				if !ok || back.number(&profiles[i]) != number || !isOID(c.at(o)) {
					t.Errorf("%q: %s is outlet %v", s, c.at(o), back)
				}
			}
		}
	})
}

// FuzzMessage: whatever comes, the guard passes only what answers the last request at the
// configured level, and what it passes harms nobody.
func FuzzMessage(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		m, err := parseMessage(datagram)
		if err != nil {
			return
		}
		if m.version == wireV3 && m.sealed && m.pdu != 0 || m.pdu == tagReport && !isOID(m.reason) && len(m.reason) > 2*len(datagram) {
			t.Errorf("message %+v", m)
		}
		g := &gosnmp.GoSNMP{Version: gosnmp.Version2c}
		if m.version == wireV3 {
			g = &gosnmp.GoSNMP{Version: gosnmp.Version3, SecurityModel: gosnmp.UserSecurityModel, MsgFlags: gosnmp.AuthPriv,
				SecurityParameters: &gosnmp.UsmSecurityParameters{UserName: "u", AuthenticationProtocol: gosnmp.SHA, AuthenticationPassphrase: "password",
					PrivacyProtocol: gosnmp.AES, PrivacyPassphrase: "password", AuthoritativeEngineID: m.engine,
					SecretKey: bytes.Repeat([]byte{1}, 20), PrivacyKey: bytes.Repeat([]byte{1}, 16)}}
		}
		decode(t, g, m, datagram)
	})
}

// decode holds gosnmp's reading of a datagram against the guard's. gosnmp may panic, as long
// as exchange catches it.
func decode(t *testing.T, g *gosnmp.GoSNMP, m message, datagram []byte) {
	defer func() { recover() }()
	p, err := g.SnmpDecodePacket(bytes.Clone(datagram))
	if err != nil || m.sealed {
		return
	}
	id := int64(int32(p.RequestID))
	if m.version == wireV3 {
		id = int64(int32(p.MsgID))
	}
	if int64(int32(m.id)) != id || int64(p.Version) != m.version || byte(p.PDUType) != m.pdu || m.version != wireV3 && p.Community != m.community {
		t.Errorf("gosnmp reads %+v, the guard %+v", p, m)
	}
	checkAnswer(p, false, sysObjectID, liarStatus+"3")
}

// seeds are messages of each kind, as gosnmp sends them.
func seeds(t testing.TB) (all [][]byte) {
	vars := []gosnmp.SnmpPDU{{Name: sysObjectID, Type: gosnmp.ObjectIdentifier, Value: enterprises + "318.1.3.4.6"}, {Name: liarStatus + "3", Type: gosnmp.Integer, Value: 1}}
	usm := with3("", snmppeer.Fencer).usm(gosnmp.AuthPriv)
	usm.AuthoritativeEngineID = "liar-engine"
	if err := usm.InitSecurityKeys(); err != nil {
		t.Fatal(err)
	}
	usm.PrivacyParameters = make([]byte, 8)
	for _, p := range []*gosnmp.SnmpPacket{
		{Version: gosnmp.Version1, Community: "public", PDUType: gosnmp.GetResponse, RequestID: 1, Variables: vars},
		{Version: gosnmp.Version2c, Community: "public", PDUType: gosnmp.GetResponse, RequestID: 1 << 30, Variables: vars},
		{Version: gosnmp.Version3, MsgFlags: gosnmp.AuthPriv, SecurityModel: gosnmp.UserSecurityModel, SecurityParameters: usm, PDUType: gosnmp.GetResponse, RequestID: 5, MsgID: 5, Variables: vars},
		{Version: gosnmp.Version3, MsgFlags: gosnmp.AuthNoPriv, SecurityModel: gosnmp.UserSecurityModel, SecurityParameters: usm, PDUType: gosnmp.GetResponse, RequestID: 5, MsgID: 5, Variables: vars},
	} {
		all = append(all, encode(p)...)
	}
	return append(all, report(5, "liar-engine", unknownUser)...)
}

// FuzzAddress: what is taken can be dialled.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"10.9.0.50", "10.9.0.50:1161", "pdu-a", "pdu-a:161", "::1", "[::1]", "[::1]:161", "fe80::1%eth0", "", ":", "a:b", "a:0", "[", "]", "a b", "udp://x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, port, err := splitAddress(s)
		if err == nil && (host == "" || port == 0 || strings.ContainsAny(host, " /[]")) {
			t.Errorf("%q is %q and %d", s, host, port)
		}
	})
}

// TestFlood: 120 000 broken datagrams come while the device is asked (B12). Those of somebody
// who does not see the requests keep no reading from being right. Somebody who sees them can
// disturb each reading; a false off he gets only where nothing is signed.
func TestFlood(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2c", "3"} {
		for _, seeing := range []bool{false, true} {
			t.Run(fmt.Sprintf("version %s, seeing %v", version, seeing), func(t *testing.T) {
				t.Parallel()
				flood(t, version, seeing, 30_000)
			})
		}
	}
}

func flood(t *testing.T, version string, seeing bool, datagrams int) {
	sent := 0
	l := startLiar(t, nil)
	l.setTamper(func(_, a *gosnmp.SnmpPacket) [][]byte {
		forged := off(a)
		if !seeing {
			forged.RequestID, forged.MsgID = rand.Uint32N(1<<31), rand.Uint32N(1<<31)
		}
		b := encode(forged)[0]
		var all [][]byte
		for range 60 {
			all = append(all, spoil(b))
		}
		sent += len(all)
		return append(all, encode(a)...)
	})
	o := with2c(l.address(), "private")
	if version == version3 {
		o = with3(l.address(), snmppeer.Fencer)
	}
	enough := func() bool { l.mu.Lock(); defer l.mu.Unlock(); return sent >= datagrams }
	came := 0
	for !enough() {
		a := open(t, o)
		for range 10 {
			r, err := a.Status(within(t, 5*time.Second), "3")
			if r.State == agents.Off && (version == version3 || !seeing) {
				t.Fatal("a false off")
			}
			if !seeing && (err != nil || r.State != agents.On) {
				t.Fatalf("read %+v, %v", r, err)
			}
		}
		if a.s != nil {
			came += a.s.guard.stray
		}
	}
	if !seeing && came < datagrams/10 {
		t.Errorf("only %d broken datagrams came", came)
	}
	l.setTamper(nil)
	wantState(t, open(t, o), "3", agents.On)
}

// spoil breaks a datagram: cut short, bytes changed, or a wrong length deep inside. What is
// left may by no means be the whole forgery.
func spoil(b []byte) []byte {
	d := bytes.Clone(b)
	switch rand.IntN(3) {
	case 0:
		d = d[:rand.IntN(len(d))]
	case 1:
		d[rand.IntN(min(len(d), 60))] ^= byte(1 + rand.IntN(255))
	default:
		for range 1 + rand.IntN(8) {
			d[rand.IntN(len(d))] = byte(rand.IntN(256))
		}
	}
	if bytes.Equal(b, d) {
		return nil
	}
	return d
}

// TestStrangers: a flood of well-formed messages of other engines costs neither keys nor time.
func TestStrangers(t *testing.T) {
	l := startLiar(t, func(_, a *gosnmp.SnmpPacket) [][]byte {
		var flood [][]byte
		for range 200 {
			f := stranger(off(a))
			usm := f.SecurityParameters.(*gosnmp.UsmSecurityParameters)
			usm.AuthoritativeEngineID = string([]byte{1, 2, 3, 4, byte(rand.IntN(256)), byte(rand.IntN(256)), byte(rand.IntN(256))})
			flood = append(flood, encode(f)...)
		}
		return append(flood, encode(a)...)
	})
	a := open(t, with3(l.address(), snmppeer.Fencer))
	if _, err := a.Status(context.Background(), "3"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wantState(t, a, "3", agents.On)
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Errorf("took %v: a key was derived for each stranger", took)
	}
}
