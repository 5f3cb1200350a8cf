package snmp

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// TestSentences: what can be wrong with version 3 is told apart in words, by snmpd's own
// answers (B10). What a liar must make up is in TestReports and TestLower.
func TestSentences(t *testing.T) {
	t.Parallel()
	may := snmppeer.Fencer
	may.MayPlain = true
	p := snmppeer.Start(t, "apc-rpdu2", func(c *snmppeer.Config) { c.Users = []snmppeer.User{may} })
	stalled := snmppeer.Start(t, "apc-rpdu2")
	stalled.Freeze()
	change := func(f func(o *Options)) *Options {
		o := with3(p.Address(), may)
		f(o)
		return o
	}
	var (
		wait      sync.WaitGroup
		mu        sync.Mutex
		sentences = map[string]string{}
	)
	for name, c := range map[string]struct {
		options *Options
		trouble error
		words   string
		patient bool
	}{
		"user":      {change(func(o *Options) { o.Username = "nobody" }), agents.ErrCredentials, "does not know the user name", false},
		"auth key":  {change(func(o *Options) { o.AuthPassword = agents.NewSecret("wrong password") }), agents.ErrCredentials, "the authentication password or protocol is wrong", false},
		"priv key":  {change(func(o *Options) { o.PrivPassword = agents.NewSecret("wrong password") }), agents.ErrCredentials, "the privacy password or protocol is wrong: what is only signed", true},
		"context":   {change(func(o *Options) { o.ContextName = "elsewhere" }), agents.ErrUnreachable, "privacy protocol or context looks the same", false},
		"nobody":    {change(func(o *Options) { o.Address = nobody(t) }), agents.ErrUnreachable, "connection refused", false},
		"silence":   {change(func(o *Options) { o.Address = stalled.Address() }), agents.ErrUnreachable, "no answer to the engine discovery", false},
		"community": {with2c(p.Address(), "wrong"), agents.ErrUnreachable, "a wrong community, a wrong version", false},
		"family":    {change(func(o *Options) { o.Profile = "sentry3" }), agents.ErrUnfit, "is that of apc-rpdu2, and the file names profile sentry3", false},
	} {
		limit := 600 * time.Millisecond
		if c.patient {
			limit = 3 * time.Second
		}
		a, ctx := open(t, c.options), within(t, limit)
		wait.Go(func() {
			err := a.Check(ctx, "3")
			wantError(t, err, c.trouble, c.words)
			mu.Lock()
			defer mu.Unlock()
			for other, sentence := range sentences {
				if sentence == fmt.Sprint(err) {
					t.Errorf("%s and %s read the same: %v", name, other, err)
				}
			}
			sentences[name] = fmt.Sprint(err)
		})
	}
	wait.Wait()
	if calls := p.Calls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

// TestAnotherEngine: a device that was exchanged, or reset, or restarted, is asked anew, and
// nothing is switched there before the outlet was seen again.
func TestAnotherEngine(t *testing.T) {
	t.Parallel()
	p := snmppeer.Start(t, "apc-rpdu2")
	a, ctx := open(t, with3(p.Address(), snmppeer.Fencer)), within(t, 20*time.Second)
	if err := a.Off(ctx, "3=outlet3"); err != nil {
		t.Fatal(err)
	}
	p.Restart("")
	wantState(t, a, "3=outlet3", agents.Off)
	p.Restart("another-engine")
	wantState(t, a, "3=outlet3", agents.Off)
	if err := a.On(ctx, "3=outlet3"); err != nil {
		t.Fatal(err)
	}
	p.Rename(3, "web")
	p.Restart("third-engine")
	wantError(t, a.Off(ctx, "3=outlet3"), nil, "")
	wantError(t, a.Off(ctx, "3=outlet3"), agents.ErrPlug, `bears the name "web"`)
	if p.Outlet(3) != "on" {
		t.Error("switched without having been seen")
	}
}

// TestShifted: an outlet that is not the one that was meant is not switched (B13).
func TestShifted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plug   string
		damage func(p *snmppeer.PDU)
		words  string
	}{
		"shifted by two":          {"3=outlet3", func(p *snmppeer.PDU) { p.Fault("shift 2") }, `bears the name "outlet1"`},
		"shifted, the first":      {"1=outlet1", func(p *snmppeer.PDU) { p.Fault("shift 2") }, "no outlet 1"},
		"renamed":                 {"3=outlet3", func(p *snmppeer.PDU) { p.Rename(3, "web") }, `bears the name "web"`},
		"renamed, by name":        {"outlet3", func(p *snmppeer.PDU) { p.Rename(3, "web") }, `no outlet is called "outlet3"`},
		"two of the name":         {"name:outlet3", func(p *snmppeer.PDU) { p.Rename(5, "outlet3") }, "2 outlets are called"},
		"no such outlet":          {"9", func(*snmppeer.PDU) {}, "no outlet 9"},
		"the table is gone":       {"3", func(p *snmppeer.PDU) { p.Fault("noindex") }, "no outlet 3"},
		"the table is gone, name": {"outlet3", func(p *snmppeer.PDU) { p.Fault("noindex") }, "no outlet is called"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := snmppeer.Start(t, "apc-rpdu2")
			c.damage(p)
			a, ctx := open(t, with2c(p.Address(), "private")), within(t, 10*time.Second)
			for _, err := range []error{a.Check(ctx, c.plug), a.Off(ctx, c.plug), a.On(ctx, c.plug)} {
				wantError(t, err, agents.ErrPlug, c.words)
			}
			_, err := a.Status(ctx, c.plug)
			wantError(t, err, agents.ErrPlug, c.words)
			if calls := p.Calls(); len(calls) > 0 {
				t.Errorf("calls %q", calls)
			}
		})
	}
}

// TestRenamedInBetween: an outlet that is renamed within an operation is no longer read as the
// one that was meant.
func TestRenamedInBetween(t *testing.T) {
	p := snmppeer.Start(t, "apc-rpdu2")
	a := open(t, with2c(p.Address(), "private"))
	wantState(t, a, "outlet3", agents.On)
	p.Rename(3, "web")
	p.SetOutlet(3, "off")
	_, err := a.Status(within(t, 3*time.Second), "outlet3")
	wantError(t, err, agents.ErrPlug, `bears the name "web"`)
}

// TestCount: an outlet beyond those that the device counts is not switched, even if something
// answers there.
func TestCount(t *testing.T) {
	l := startLiar(t, nil)
	for _, object := range []string{"12.3.5.1.1.4.5", "12.3.3.1.1.4.5"} {
		l.put(integerObject("318.1.1."+object, 1))
	}
	l.put(integerObject("318.1.1.12.1.8.0", 4))
	o := with2c(l.address(), "private")
	o.Profile = "apc-rpdu"
	a, ctx := open(t, o), within(t, 3*time.Second)
	wantError(t, a.Off(ctx, "5"), agents.ErrPlug, "beyond the device's 4 outlets")
	wantError(t, a.Check(ctx, "5"), agents.ErrPlug, "beyond the device's 4 outlets")
	l.put(integerObject("318.1.1.12.1.8.0", 8))
	if err := a.Off(ctx, "5"); err != nil || l.setCount() != 1 {
		t.Errorf("off: %v, %d SETs", err, l.setCount())
	}
}

// TestUndefinedStatus: nothing is switched where the status is none of the family's.
func TestUndefinedStatus(t *testing.T) {
	l := startLiar(t, nil)
	l.put(integerObject("318.1.1.26.9.2.3.1.5.3", 99))
	a, ctx := open(t, with2c(l.address(), "private")), within(t, 3*time.Second)
	if r, err := a.Status(ctx, "3"); err != nil || r.State != agents.Unknown || r.Detail != "undefined (99)" {
		t.Errorf("read %+v, %v", r, err)
	}
	wantError(t, a.Off(ctx, "3"), agents.ErrUnfit, "which apc-rpdu2 does not have")
	if n := l.setCount(); n != 0 {
		t.Errorf("%d SETs", n)
	}
}

// TestNoControl: a PDU that only measures is found out before it is needed.
func TestNoControl(t *testing.T) {
	l := startLiar(t, nil)
	l.put(integerObject("318.1.1.12.3.5.1.1.4.3", 1))
	o := with2c(l.address(), "private")
	o.Profile = "apc-rpdu"
	wantError(t, open(t, o).Check(within(t, 3*time.Second), "3"), agents.ErrUnfit, "cannot be switched")
}

// TestSilentSet: the caller's time is not used up by a SET that nobody answers.
func TestSilentSet(t *testing.T) {
	t.Parallel()
	p := snmppeer.Start(t, "apc-rpdu2")
	a := open(t, with2c(p.Address(), "private"))
	wantState(t, a, "3", agents.On)
	p.Fault("slow 2")
	began := time.Now()
	err := a.Off(context.Background(), "3")
	wantError(t, err, agents.ErrUnreachable, "may have been carried out")
	if took := time.Since(began); took > setWait+time.Second {
		t.Errorf("took %v", took)
	}
	if r, err := a.Status(within(t, 6*time.Second), "3"); err != nil || r.State != agents.Off {
		t.Errorf("read %v, %v", r, err)
	}
	if calls := p.Calls(); len(calls) != 1 {
		t.Errorf("calls %q", calls)
	}
}
