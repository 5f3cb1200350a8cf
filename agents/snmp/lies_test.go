package snmp

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// isSet and isStatus tell what a request asks for.
func isSet(p *gosnmp.SnmpPacket) bool { return p.PDUType == gosnmp.SetRequest }

func off(answer *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
	forged := *answer
	forged.Variables = nil
	for _, v := range answer.Variables {
		if strings.HasPrefix(plain(v.Name), liarStatus) {
			v.Value = 1
		}
		forged.Variables = append(forged.Variables, v)
	}
	return &forged
}

// TestNoFalseOff: an outlet that is on is never read as off, whatever answers to something
// else say; and no forged answer keeps the true one from being read.
func TestNoFalseOff(t *testing.T) {
	t.Parallel()
	forge := map[string]func(request, answer *gosnmp.SnmpPacket) []*gosnmp.SnmpPacket{
		"an earlier request's": func(_, a *gosnmp.SnmpPacket) []*gosnmp.SnmpPacket {
			f := off(a)
			f.RequestID--
			f.MsgID--
			return []*gosnmp.SnmpPacket{f}
		},
		"request ID 0": func(_, a *gosnmp.SnmpPacket) []*gosnmp.SnmpPacket {
			f := off(a)
			f.RequestID = 0
			f.MsgID = 0
			return []*gosnmp.SnmpPacket{f}
		},
		"another community, or engine": func(_, a *gosnmp.SnmpPacket) []*gosnmp.SnmpPacket { return []*gosnmp.SnmpPacket{stranger(off(a))} },
		"another version": func(_, a *gosnmp.SnmpPacket) []*gosnmp.SnmpPacket {
			f := off(a)
			f.Version = gosnmp.Version1
			return []*gosnmp.SnmpPacket{f}
		},
		"a request": func(r, a *gosnmp.SnmpPacket) []*gosnmp.SnmpPacket {
			f := off(a)
			f.PDUType = r.PDUType
			return []*gosnmp.SnmpPacket{f}
		},
	}
	for name, f := range forge {
		for _, version := range []string{"2c", "3"} {
			t.Run(name+", version "+version, func(t *testing.T) {
				l := startLiar(t, func(r, a *gosnmp.SnmpPacket) [][]byte { return append(encode(f(r, a)...), encode(a)...) })
				o := with2c(l.address(), "private")
				if version == version3 {
					o = with3(l.address(), snmppeer.Fencer)
				}
				a := open(t, o)
				for range 3 {
					r, err := a.Status(within(t, 3*time.Second), "3")
					if r.State == agents.Off || err == nil && r.State != agents.On {
						t.Fatalf("read %v, %v", r, err)
					}
					// A signed answer that is wrong in itself is the device's own: that is an error.
					if err != nil && !(version == version3 && name == "a request") {
						t.Error(err)
					}
				}
			})
		}
	}
}

// stranger is the same answer of somebody else.
func stranger(p *gosnmp.SnmpPacket) *gosnmp.SnmpPacket {
	p.Community = "x" + p.Community
	if usm, ok := p.SecurityParameters.(*gosnmp.UsmSecurityParameters); ok {
		usm = usm.Copy().(*gosnmp.UsmSecurityParameters)
		usm.AuthoritativeEngineID = "other-engine"
		p.SecurityParameters = usm
	}
	return p
}

// TestOtherAddress: what comes from another address is not taken for the device's.
func TestOtherAddress(t *testing.T) {
	other := listen(t)
	l := startLiar(t, nil)
	a := open(t, with2c(l.address(), "private"))
	s, err := a.open(within(t, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	to := s.guard.LocalAddr()
	l.setTamper(func(_, a *gosnmp.SnmpPacket) [][]byte {
		other.WriteTo(encode(off(a))[0], to)
		return encode(a)
	})
	for range 20 {
		wantState(t, a, "3", agents.On)
	}
}

// TestWrongAnswers: an answer that is not exactly what was asked for is an error, never a state (B11).
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	change := func(f func(v *gosnmp.SnmpPDU)) func(a *gosnmp.SnmpPacket) {
		return func(a *gosnmp.SnmpPacket) {
			for i := range a.Variables {
				if strings.HasPrefix(plain(a.Variables[i].Name), liarStatus) {
					f(&a.Variables[i])
				}
			}
		}
	}
	for name, c := range map[string]struct {
		tamper  func(a *gosnmp.SnmpPacket)
		trouble error
		words   string
	}{
		"another outlet":       {change(func(v *gosnmp.SnmpPDU) { v.Name = liarStatus + "4"; v.Value = 1 }), agents.ErrProtocol, "answered " + liarStatus + "4"},
		"a string":             {change(func(v *gosnmp.SnmpPDU) { v.Type, v.Value = gosnmp.OctetString, "1" }), agents.ErrProtocol, "not INTEGER"},
		"a gauge":              {change(func(v *gosnmp.SnmpPDU) { v.Type, v.Value = gosnmp.Gauge32, uint32(1) }), agents.ErrProtocol, "not INTEGER"},
		"null":                 {change(func(v *gosnmp.SnmpPDU) { v.Type, v.Value = gosnmp.Null, nil }), agents.ErrPlug, "no outlet 3"},
		"no such object":       {change(func(v *gosnmp.SnmpPDU) { v.Type, v.Value = gosnmp.NoSuchObject, nil }), agents.ErrPlug, "no outlet 3"},
		"the end of the MIB":   {change(func(v *gosnmp.SnmpPDU) { v.Type, v.Value = gosnmp.EndOfMibView, nil }), agents.ErrPlug, "no outlet 3"},
		"nothing":              {func(a *gosnmp.SnmpPacket) { a.Variables = nil }, agents.ErrProtocol, "0 objects"},
		"too little":           {func(a *gosnmp.SnmpPacket) { a.Variables = a.Variables[:1] }, agents.ErrProtocol, "objects instead of"},
		"swapped":              {func(a *gosnmp.SnmpPacket) { a.Variables[0], a.Variables[1] = a.Variables[1], a.Variables[0] }, agents.ErrProtocol, "asked for"},
		"general error":        {func(a *gosnmp.SnmpPacket) { a.Error, a.ErrorIndex = gosnmp.GenErr, 2; off(a) }, nil, "genErr (5) for " + liarStatus + "3"},
		"an undefined error":   {func(a *gosnmp.SnmpPacket) { a.Error, a.ErrorIndex = 77, 9 }, nil, "undefined error (77)"},
		"no access":            {func(a *gosnmp.SnmpPacket) { a.Error, a.ErrorIndex = gosnmp.AuthorizationError, 0 }, agents.ErrPrivilege, "authorizationError"},
		"another family":       {func(a *gosnmp.SnmpPacket) { a.Variables[0].Value = enterprises + "318.1.3.4.5" }, agents.ErrProtocol, "sysObjectID was"},
		"an unknown family":    {func(a *gosnmp.SnmpPacket) { a.Variables[0].Value = enterprises + "9.1" }, agents.ErrProtocol, "sysObjectID was"},
		"a broken sysObjectID": {func(a *gosnmp.SnmpPacket) { a.Variables[0].Type = gosnmp.OctetString }, agents.ErrProtocol, "not OBJECT IDENTIFIER"},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLiar(t, func(r, a *gosnmp.SnmpPacket) [][]byte {
				if len(r.Variables) > 1 {
					c.tamper(a)
				}
				return encode(a)
			})
			a := open(t, with2c(l.address(), "private"))
			r, err := a.Status(within(t, 3*time.Second), "3")
			wantError(t, err, c.trouble, c.words)
			if r.State != agents.Unknown {
				t.Errorf("read %v", r)
			}
			if err := a.Off(within(t, 3*time.Second), "3"); err == nil || l.setCount() != 0 {
				t.Errorf("off: %v, %d SETs", err, l.setCount())
			}
		})
	}
}

// TestSetAnswers: whatever a SET is answered, it goes out once, the answer is told, and the
// outlet is read as it is (B11).
func TestSetAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tamper  func(a *gosnmp.SnmpPacket) [][]byte
		trouble error
		words   string
	}{
		"accepted":       {func(a *gosnmp.SnmpPacket) [][]byte { return encode(a) }, nil, ""},
		"general error":  {func(a *gosnmp.SnmpPacket) [][]byte { a.Error, a.ErrorIndex = gosnmp.GenErr, 1; return encode(a) }, nil, "genErr (5) for " + liarControl + "3"},
		"no access":      {func(a *gosnmp.SnmpPacket) [][]byte { a.Error, a.ErrorIndex = gosnmp.NoAccess, 1; return encode(a) }, agents.ErrPrivilege, "noAccess"},
		"not writable":   {func(a *gosnmp.SnmpPacket) [][]byte { a.Error = gosnmp.NotWritable; return encode(a) }, agents.ErrPrivilege, "notWritable"},
		"wrong value":    {func(a *gosnmp.SnmpPacket) [][]byte { a.Error = gosnmp.WrongValue; return encode(a) }, agents.ErrUnfit, "wrongValue"},
		"busy":           {func(a *gosnmp.SnmpPacket) [][]byte { a.Error = gosnmp.ResourceUnavailable; return encode(a) }, agents.ErrBusy, "resourceUnavailable"},
		"another object": {func(a *gosnmp.SnmpPacket) [][]byte { a.Variables[0].Name = liarControl + "4"; return encode(a) }, agents.ErrProtocol, "answered"},
		"a string": {func(a *gosnmp.SnmpPacket) [][]byte {
			a.Variables[0].Type, a.Variables[0].Value = gosnmp.OctetString, "2"
			return encode(a)
		}, agents.ErrProtocol, "INTEGER"},
		"nothing":        {func(a *gosnmp.SnmpPacket) [][]byte { a.Variables = nil; return encode(a) }, agents.ErrProtocol, "0 objects"},
		"silence":        {func(a *gosnmp.SnmpPacket) [][]byte { return nil }, agents.ErrUnreachable, "may have been carried out"},
		"something else": {func(a *gosnmp.SnmpPacket) [][]byte { return [][]byte{[]byte("<html>")} }, agents.ErrUnreachable, "may have been carried out"},
		"a broken answer": {func(a *gosnmp.SnmpPacket) [][]byte {
			a.Variables[0].Value = 1 << 20
			return [][]byte{breakValue(encode(a)[0])}
		}, agents.ErrProtocol, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLiar(t, func(r, a *gosnmp.SnmpPacket) [][]byte {
				if isSet(r) {
					return c.tamper(a)
				}
				return encode(a)
			})
			a := open(t, with2c(l.address(), "private"))
			err := a.Off(within(t, 5*time.Second), "3")
			if c.words == "" && c.trouble == nil {
				if err != nil {
					t.Error(err)
				}
			} else {
				wantError(t, err, c.trouble, c.words)
			}
			if n := l.setCount(); n != 1 {
				t.Errorf("%d SETs", n)
			}
			wantState(t, a, "3", agents.On) // the liar obeys nothing
		})
	}
}

// breakValue cuts the last object's OID off in its middle, deep inside an otherwise right answer.
func breakValue(b []byte) []byte {
	b[len(b)-4] = 0x84
	return b
}

// TestLower: version 3 answers below the configured level are refused, and named (B10).
func TestLower(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(a *gosnmp.SnmpPacket) [][]byte{
		"plain":          func(a *gosnmp.SnmpPacket) [][]byte { a.MsgFlags = gosnmp.NoAuthNoPriv; return encode(a) },
		"signed only":    func(a *gosnmp.SnmpPacket) [][]byte { a.MsgFlags = gosnmp.AuthNoPriv; return encode(a) },
		"flags that lie": func(a *gosnmp.SnmpPacket) [][]byte { return [][]byte{liftFlags(a)} },
		"plain and right": func(a *gosnmp.SnmpPacket) [][]byte {
			b := *a
			b.MsgFlags = gosnmp.NoAuthNoPriv
			return append(encode(off(&b)), encode(a)...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLiar(t, func(_, a *gosnmp.SnmpPacket) [][]byte { return f(a) })
			a := open(t, with3(l.address(), snmppeer.Fencer))
			if name == "plain and right" {
				wantState(t, a, "3", agents.On)
				return
			}
			_, err := a.Status(within(t, 700*time.Millisecond), "3")
			wantError(t, err, agents.ErrUntrusted, "below the configured security level")
		})
	}
}

// liftFlags is an answer in the clear that says it is encrypted.
func liftFlags(a *gosnmp.SnmpPacket) []byte {
	a.MsgFlags = gosnmp.AuthNoPriv
	b := encode(a)[0]
	flags := strings.Index(string(b), "\x04\x01\x01")
	b[flags+2] = byte(gosnmp.AuthPriv)
	return b
}

// TestReports: each Report has its own words (B10).
func TestReports(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for oid, want := range reports {
		l := startLiar(t, func(r, _ *gosnmp.SnmpPacket) [][]byte { return report(r.MsgID, "liar-engine", oid) })
		_, err := open(t, with3(l.address(), snmppeer.Fencer)).Status(within(t, 3*time.Second), "3")
		wantError(t, err, want.trouble, want.words)
		_, words, _ := strings.Cut(fmt.Sprint(err), "reading outlet")
		if other, ok := seen[words]; ok {
			t.Errorf("%s and %s read the same: %s", oid, other, words)
		}
		seen[words] = oid
	}
}

// TestBroken: a device whose answers break the decoder costs an error.
func TestBroken(t *testing.T) {
	l := startLiar(t, func(_, a *gosnmp.SnmpPacket) [][]byte {
		b := encode(a)
		if len(a.Variables) > 1 {
			breakValue(b[0])
		}
		return b
	})
	_, err := open(t, with2c(l.address(), "private")).Status(within(t, 3*time.Second), "3")
	wantError(t, err, agents.ErrProtocol, "")
	s, err := with2c(l.address(), "private").dial(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	_, err = s.exchange(context.Background(), time.Second, func(*gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) { panic("decoder") })
	wantError(t, err, agents.ErrProtocol, "the decoder gave up")
}

// TestTimeWindow: a device that does not even take its own clock's time is told apart, and
// does well again when its clock does (B10).
func TestTimeWindow(t *testing.T) {
	l := startLiar(t, nil)
	l.setTamper(func(_, a *gosnmp.SnmpPacket) [][]byte {
		a.PDUType, a.MsgFlags = gosnmp.Report, gosnmp.AuthNoPriv
		a.Variables = []gosnmp.SnmpPDU{{Name: notInTimeWindow, Type: gosnmp.Counter32, Value: uint32(1)}}
		return encode(a)
	})
	a := open(t, with3(l.address(), snmppeer.Fencer))
	for range 2 {
		_, err := a.Status(within(t, 3*time.Second), "3")
		wantError(t, err, agents.ErrUntrusted, "not in the device's time window")
	}
	l.setTamper(nil)
	wantState(t, a, "3", agents.On)
}

// TestNameless: an outlet without a name has none, and is not one that must bear one.
func TestNameless(t *testing.T) {
	l := startLiar(t, nil)
	for _, name := range []string{"3", "4"} {
		l.put(gosnmp.SnmpPDU{Name: liarName + name, Type: gosnmp.NoSuchInstance})
	}
	a, ctx := open(t, with2c(l.address(), "private")), within(t, 3*time.Second)
	if id, err := a.Identity(ctx, "3"); err != nil || id != (agents.Identity{}) {
		t.Errorf("identity %+v, %v", id, err)
	}
	wantState(t, a, "3", agents.On)
	wantError(t, a.Off(ctx, "3=outlet3"), agents.ErrPlug, "outlet 3 has no name")
	if n := l.setCount(); n != 0 {
		t.Errorf("%d SETs", n)
	}
}
