package snmp

import (
	"encoding/asn1"
	"testing"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// TestStatusBits: an error status whose last eight bits are 0, which gosnmp takes for "no
// error", is no answer.
func TestStatusBits(t *testing.T) {
	type pdu struct {
		ID, Status, Index int
		Bindings          []struct {
			Object asn1.ObjectIdentifier
			Value  int
		}
	}
	for status, good := range map[int]bool{0: true, 5: true, 255: true, 256: false, 1 << 32: false, -256: false} {
		contents, err := asn1.Marshal(pdu{ID: 7, Status: status})
		if err != nil {
			t.Fatal(err)
		}
		contents[0] = tagResponse
		b, err := asn1.Marshal(struct {
			Version   int
			Community []byte
			PDU       asn1.RawValue
		}{wireV2c, []byte("public"), asn1.RawValue{FullBytes: contents}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := parseMessage(b)
		if (err == nil) != good || good && (m.id != 7 || m.community != "public" || m.pdu != tagResponse) {
			t.Errorf("status %d: %+v, %v", status, m, err)
		}
	}
}

// TestAskedAgain: what is lost is asked for again, in one call.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	lost := 0
	l := startLiar(t, func(_, a *gosnmp.SnmpPacket) [][]byte {
		if lost++; lost%3 != 0 {
			return nil
		}
		return encode(a)
	})
	wantState(t, open(t, with2c(l.address(), "private")), "3", agents.On)
}

// TestPatience: a call without a deadline ends too.
func TestPatience(t *testing.T) {
	t.Parallel()
	a := open(t, with2c(mute(t), "private"))
	began := time.Now()
	_, err := a.Status(t.Context(), "3")
	wantError(t, err, agents.ErrUnreachable, "a wrong community")
	if took := time.Since(began); took > patience+time.Second {
		t.Errorf("took %v", took)
	}
}

// TestHalfOutlet: an outlet without a number is no object at all, least of all number 0.
func TestHalfOutlet(t *testing.T) {
	for i := range profiles {
		if oid := profiles[i].off.object.at(nil); isOID(oid) {
			t.Errorf("%s: %s", profiles[i].name, oid)
		}
	}
	l := startLiar(t, nil)
	a := open(t, with2c(l.address(), "private"))
	s, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.set(t.Context(), s, profileNamed("eaton-pulizzi").off, nil); err == nil || l.setCount() != 0 {
		t.Errorf("%v, %d SETs", err, l.setCount())
	}
}

// TestRenewed: what was seen through one connection says nothing about the next one's device.
func TestRenewed(t *testing.T) {
	l := startLiar(t, nil)
	a, ctx := open(t, with2c(l.address(), "private")), within(t, 3*time.Second)
	if err := a.Off(ctx, "3=outlet3"); err != nil {
		t.Fatal(err)
	}
	seen, err := a.read(ctx, "3=outlet3", false)
	if err != nil {
		t.Fatal(err)
	}
	a.s.dead = true
	l.put(gosnmp.SnmpPDU{Name: liarName + "3", Type: gosnmp.OctetString, Value: "web"})
	wantError(t, a.Off(ctx, "3=outlet3"), agents.ErrPlug, `bears the name "web"`)
	wantError(t, seen.stillIn(a), agents.ErrBusy, "renewed")
	if n := l.setCount(); n != 1 {
		t.Errorf("%d SETs", n)
	}
}
