package ipmi

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

// TestReadings: bit 0 of the current power state decides, and nothing else; an answer without
// it is none.
func TestReadings(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	a := open(t, options(r.Addr()))
	ok := types.CodeOK
	for name, c := range map[string]struct {
		data   []byte
		code   types.CompletionCode
		state  agents.PowerState
		detail string
		err    error // wrapped; nil: none
	}{
		"on":               {[]byte{0x01, 0, 0}, ok, agents.On, "chassis power is on", nil},
		"off":              {[]byte{0x00, 0, 0}, ok, agents.Off, "chassis power is off", nil},
		"four bytes":       {[]byte{0x21, 0x10, 0x40, 0}, ok, agents.On, "chassis power is on", nil},
		"more to come":     {[]byte{0x20, 0, 0, 0, 1, 1}, ok, agents.Off, "chassis power is off", nil},
		"off with faults":  {[]byte{0x1e, 0, 0}, ok, agents.Off, "chassis power is off (the last power command failed, power fault, power overload, interlock open)", nil},
		"on with a fault":  {[]byte{0x09, 0, 0}, ok, agents.On, "chassis power is on (power fault)", nil},
		"reserved bits":    {[]byte{0xe0, 0xff, 0xff}, ok, agents.Off, "chassis power is off", nil},
		"nothing":          {nil, ok, agents.Unknown, "", agents.ErrProtocol},
		"one byte":         {[]byte{0x00}, ok, agents.Unknown, "", agents.ErrProtocol},
		"two bytes":        {[]byte{0x00, 0}, ok, agents.Unknown, "", agents.ErrProtocol},
		"error with a off": {[]byte{0x00, 0, 0}, 0xff, agents.Unknown, "", errAny},
		"not possible":     {nil, types.CodeNotSupported, agents.Unknown, "", errAny},
		"no such command":  {nil, types.CodeInvalidCommand, agents.Unknown, "", agents.ErrUnfit},
		"no privilege":     {nil, types.CodeInsufficientPrivilege, agents.Unknown, "", agents.ErrPrivilege},
	} {
		r.SetStatus(func() ([]byte, types.CompletionCode) { return c.data, c.code })
		got, err := a.Status(within(t, time.Second), "")
		if got.State != c.state || got.Detail != c.detail {
			t.Errorf("%s: %v, %q", name, got.State, got.Detail)
		}
		if (err == nil) != (c.err == nil) || c.err != errAny && !errors.Is(err, c.err) {
			t.Errorf("%s: error is %v, want %v", name, err, c.err)
		}
	}
}

var errAny = errors.New("any")

// TestBusyRead: a BMC that is busy is asked again while the call has time.
func TestBusyRead(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	a := open(t, options(r.Addr()))
	busy := 2
	r.SetStatus(func() ([]byte, types.CompletionCode) {
		if busy--; busy >= 0 {
			return nil, types.CodeNodeBusy
		}
		return []byte{1, 0, 0}, types.CodeOK
	})
	reads(t, a, agents.On)
	r.SetStatus(func() ([]byte, types.CompletionCode) { return nil, types.CodeNodeBusy })
	if _, err := a.Status(within(t, 200*time.Millisecond), ""); !errors.Is(err, agents.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("busy for good: %v", err)
	}
}

// TestNotPossibleNow (B01): a BMC answers D5h to off while the machine is off. That is said, as
// no kind of trouble; the state is there to be read, and no other command was sent.
func TestNotPossibleNow(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{Off: true}, 4)
	r.SetControl(types.CodeNotSupported, true)
	a := open(t, options(r.Addr()))
	reads(t, a, agents.Off)
	err := a.Off(within(t, time.Second), "")
	if err == nil || agents.TroubleOf(err) != agents.Other || agents.Lasting(err) {
		t.Errorf("%q, lasting %v: %v", agents.TroubleOf(err), agents.Lasting(err), err)
	}
	reads(t, a, agents.Off)
	if got := r.Calls(); !slices.Equal(got, []string{"off"}) {
		t.Errorf("commands that arrived: %v", got)
	}
}

// TestLag (B02): between the answer to off and the power's end, the state is on.
func TestLag(t *testing.T) {
	t.Parallel()
	b := ipmipeer.Start(t, ipmipeer.Config{})
	b.SetMode(ipmipeer.Lag(700 * time.Millisecond))
	a := open(t, options(b.Addr()))
	if err := a.Off(within(t, time.Second), ""); err != nil {
		t.Fatal(err)
	}
	seen := 0
	eventually(t, "off", func() bool {
		before := b.Power()
		r, err := a.Status(within(t, time.Second), "")
		if err != nil {
			t.Fatal(err)
		}
		if r.State == agents.Off && b.Power() != agents.Off {
			t.Fatal("off, and the machine is on")
		}
		if before == agents.On && r.State == agents.On {
			seen++
		}
		return r.State == agents.Off
	})
	if seen == 0 {
		t.Error("on was never read: there was no lag")
	}
	if got := b.Calls(); !slices.Equal(got, []string{"off"}) {
		t.Errorf("commands that arrived: %v", got)
	}
}

// TestLostAnswer: the answer to a command is lost. The command is not sent again: three lost
// answers must not be three resets of a machine that is being started.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
	a := open(t, options(proxy.Addr()))
	if err := a.Check(within(t, time.Second), ""); err != nil {
		t.Fatal(err)
	}
	proxy.Forge(func([]byte) [][]byte { return nil })
	start := time.Now()
	err := a.Off(within(t, 5*time.Second), "")
	if !errors.Is(err, agents.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v, while the state could have been read", took)
	}
	proxy.Forge(nil)
	reads(t, a, agents.Off)
	if got := r.Calls(); !slices.Equal(got, []string{"off"}) {
		t.Errorf("commands that arrived: %v", got)
	}
}

// TestSlowBMC: a BMC that takes longer for an answer than the first try waits for it.
func TestSlowBMC(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 8)
	proxy := ipmipeer.StartProxy(t, r.Addr(), 1, ipmipeer.Faults{})
	proxy.Forge(func(b []byte) [][]byte { time.Sleep(350 * time.Millisecond); return [][]byte{b} })
	a := open(t, options(proxy.Addr()))
	if got, err := a.Status(within(t, 8*time.Second), ""); err != nil || got.State != agents.On {
		t.Errorf("%v, %v", got, err)
	}
}

// TestRaise: with level user one may read at most BMCs; where not, the session is raised first.
// To switch it always is.
func TestRaise(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	a := open(t, options(r.Addr()))
	var asked atomic.Int32
	r.SetStatus(func() ([]byte, types.CompletionCode) {
		if asked.Add(1) == 1 {
			return nil, types.CodeInsufficientPrivilege
		}
		return []byte{1, 0, 0}, types.CodeOK
	})
	reads(t, a, agents.On)
	if !a.session.isRaised || asked.Load() != 2 {
		t.Errorf("raised %v, asked %d times", a.session.isRaised, asked.Load())
	}
}

// TestLowered: a BMC that puts the session back to its first level, as some do on a repeated message of the handshake, is asked
// once more; one that does not want to obey is not asked for ever.
func TestLowered(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	a := open(t, options(r.Addr()))
	r.Lower(1)
	if err := a.Off(within(t, 5*time.Second), ""); err != nil || r.Power() != agents.Off || len(r.Calls()) != 2 {
		t.Errorf("%v, power %v after %v", err, r.Power(), r.Calls())
	}
	r.Lower(9)
	if err := a.On(within(t, 5*time.Second), ""); !errors.Is(err, agents.ErrPrivilege) || r.Power() != agents.Off || len(r.Calls()) != 4 {
		t.Errorf("%v, power %v after %v", err, r.Power(), r.Calls())
	}
}

// TestPlug: a BMC has one machine, and refuses to guess which other one was meant.
func TestPlug(t *testing.T) {
	t.Parallel()
	r := ipmipeer.StartReference(t, ipmipeer.Config{}, 4)
	a := open(t, options(r.Addr()))
	if err := a.Off(within(t, time.Second), "1"); !errors.Is(err, agents.ErrPlug) || len(r.Calls()) != 0 {
		t.Errorf("%v, %v", err, r.Calls())
	}
}

// TestUUID: the byte orders in use, and what stands for none.
func TestUUID(t *testing.T) {
	const uuid = "6ad39b6a-1b52-4f28-86fc-e66df7d737e3"
	for name, c := range map[string]struct{ guid, want string }{
		"SMBIOS":             {"\x6a\x9b\xd3\x6a\x52\x1b\x28\x4f\x86\xfc\xe6\x6d\xf7\xd7\x37\xe3", uuid},
		"RFC 9562":           {"\x6a\xd3\x9b\x6a\x1b\x52\x4f\x28\x86\xfc\xe6\x6d\xf7\xd7\x37\xe3", "6a9bd36a-521b-284f-86fc-e66df7d737e3"},
		"IPMI":               {"\xe3\x37\xd7\xf7\x6d\xe6\xfc\x86\x28\x4f\x52\x1b\x6a\x9b\xd3\x6a", uuid},
		"iDRAC, service tag": {"DELL\x51\x00\x35\x10\x80\x51\xb4\xc0\x4f\x4a\x37\x32", "4c4c4544-0051-1035-8051-b4c04f4a3732"},
		"no version":         {"\x01\x02\x03\x04\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x08", "04030201-0605-0807-0102-030405060708"},
		"zeros":              {string(make([]byte, 16)), ""},
		"ones":               {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ""},
	} {
		if got := uuidOf([16]byte([]byte(c.guid))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
