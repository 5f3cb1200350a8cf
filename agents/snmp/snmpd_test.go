package snmp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// plugOf is outlet 3 of a model of the peer.
func plugOf(model string) string {
	f := profileNamed(model)
	o := outlet{}
	for _, letter := range []byte(f.status.parts()) {
		o[letter] = 1
		if n, ok := f.lone[letter]; ok {
			o[letter] = n
		}
	}
	o['N'] = 3
	return o.number(f)
}

// TestModels goes through all that an agent does, on each family that the peer has.
func TestModels(t *testing.T) {
	t.Parallel()
	for _, model := range snmppeer.Models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			p := snmppeer.Start(t, model)
			o := with2c(p.Address(), "private")
			if profileOf("1.3.6.1.4.1.476.1.42") == nil && len(profileNamed(model).detect) == 0 {
				o.Profile = model
			}
			a, ctx, plug := open(t, o), within(t, 20*time.Second), plugOf(model)
			if err := a.Check(ctx, plug); err != nil {
				t.Error(err)
			}
			if got := a.s.family.name; got != model {
				t.Fatalf("detected as %s", got)
			}
			if err := a.Off(ctx, plug); err != nil {
				t.Error(err)
			}
			wantState(t, a, plug, agents.Off)
			for n := 1; n <= 8; n++ {
				if got := p.Outlet(n); (got == "off") != (n == 3) {
					t.Errorf("outlet %d is %s", n, got)
				}
			}
			if err := a.On(ctx, plug); err != nil {
				t.Error(err)
			}
			wantState(t, a, plug, agents.On)
			if got := p.Calls(); len(got) != 2 || got[0] != "3 off" || got[1] != "3 on" {
				t.Errorf("calls %q", got)
			}
			id, err := a.Identity(ctx, plug)
			if want := "outlet3"; a.s.family.names == "" {
				want = ""
			} else if err != nil || id.Name != want {
				t.Errorf("identity %+v, %v", id, err)
			}
			_, err = a.Status(ctx, strings.TrimSuffix(plug, "3")+"9")
			wantError(t, err, agents.ErrPlug, "no outlet")
		})
	}
	if got := len(snmppeer.Models()); got < len(profiles)-1 {
		t.Errorf("only %d models for %d families", got, len(profiles))
	}
}

// TestVersion1: what is not there has other words in version 1.
func TestVersion1(t *testing.T) {
	t.Parallel()
	p := snmppeer.Start(t, "sentry3")
	o := with2c(p.Address(), "private")
	o.Version = "1"
	a, ctx := open(t, o), within(t, 10*time.Second)
	for _, plug := range []string{"1.1.3", "AA3", "outlet3", "name:outlet3", "AA3=outlet3", "1.1.3=outlet3"} {
		if err := a.Check(ctx, plug); err != nil {
			t.Error(err)
		}
		if err := a.Off(ctx, plug); err != nil {
			t.Error(err)
		}
		wantState(t, a, plug, agents.Off)
		p.SetOutlet(3, "on")
		wantState(t, a, plug, agents.On)
	}
	_, err := a.Status(ctx, "1.1.9")
	wantError(t, err, agents.ErrPlug, "no outlet 1.1.9 in the table of sentry3")
	_, err = a.Status(ctx, "name:outlet9")
	wantError(t, err, agents.ErrPlug, `no outlet is called "outlet9"`)
	o.Community = agents.NewSecret("public")
	wantError(t, open(t, o).Off(ctx, "1.1.3"), agents.ErrPrivilege, "noSuchName")
}

// TestWords: no other status than off is off.
func TestWords(t *testing.T) {
	t.Parallel()
	for model, words := range map[string][]string{
		"sentry3":    {"offWait", "onWait", "offError", "onError", "noComm", "reading", "offFuse", "onFuse"},
		"eaton-epdu": {"pendingOff", "pendingOn"},
		"vertiv-v5":  {"on2off", "rebootOff", "unavailable"},
		"baytech":    {"lockOff"},
	} {
		p := snmppeer.Start(t, model)
		a := open(t, with2c(p.Address(), "private"))
		for _, word := range words {
			p.SetOutlet(3, word)
			r, err := a.Status(within(t, 5*time.Second), plugOf(model))
			if err != nil || r.State != agents.Unknown || !strings.HasPrefix(r.Detail, word+" (") {
				t.Errorf("%s %s: read %+v, %v", model, word, r, err)
			}
		}
	}
	p := snmppeer.Start(t, "eaton-pulizzi")
	p.SetOutlet(3, "absent")
	a := open(t, with2c(p.Address(), "private"))
	wantError(t, a.Off(within(t, 5*time.Second), "3"), agents.ErrPlug, "has no outlet 3")
	if calls := p.Calls(); len(calls) > 0 {
		t.Errorf("calls %q", calls)
	}
}

// TestVersion3 tries each authentication with each encryption that snmpd has.
func TestVersion3(t *testing.T) {
	t.Parallel()
	var users []snmppeer.User
	for _, auth := range []string{"MD5", "SHA", "SHA224", "SHA256", "SHA384", "SHA512"} {
		for _, priv := range []string{"DES", "AES", "AES192", "AES256", "AES192C", "AES256C"} {
			users = append(users, snmppeer.User{Name: auth + "-" + priv, Auth: auth, Priv: priv,
				AuthPassword: "auth of " + auth + priv, PrivPassword: "priv of " + auth + priv, MayPlain: true})
		}
	}
	p := snmppeer.Start(t, "apc-rpdu2", func(c *snmppeer.Config) { c.Users = users })
	ctx := within(t, 60*time.Second)
	for i, u := range users {
		a, plug := open(t, with3(p.Address(), u)), fmt.Sprint(1+i%8)
		if err := a.Off(ctx, plug); err != nil {
			t.Errorf("%s: %v", u.Name, err)
		}
		wantState(t, a, plug, agents.Off)
		p.SetOutlet(1+i%8, "on")
		wantState(t, a, plug, agents.On)
		if !a.s.answered || a.s.guard.lower > 0 {
			t.Errorf("%s: guard %+v", u.Name, a.s.guard)
		}
	}
	plain := with3(p.Address(), users[9])
	plain.Priv, plain.PrivPassword = "none", agents.Secret{}
	wantState(t, open(t, plain), "3", agents.On)
}

// TestOddSecrets: passwords and communities are used byte for byte (B07).
func TestOddSecrets(t *testing.T) {
	t.Parallel()
	u := snmppeer.User{Name: "od d", Auth: "SHA512", Priv: "AES256", AuthPassword: odd, PrivPassword: odd + odd}
	p := snmppeer.Start(t, "apc-rpdu", func(c *snmppeer.Config) {
		c.Users, c.Community, c.ReadCommunity = []snmppeer.User{u}, odd, odd+"2"
	})
	ctx := within(t, 10*time.Second)
	two := with2c(p.Address(), odd+"2")
	two.WriteCommunity = agents.NewSecret(odd)
	for _, o := range []*Options{with3(p.Address(), u), with2c(p.Address(), odd), two} {
		a := open(t, o)
		if err := a.Check(ctx, "3=outlet3"); err != nil {
			t.Error(err)
		}
		if err := a.Off(ctx, "3=outlet3"); err != nil {
			t.Error(err)
		}
		wantState(t, a, "3=outlet3", agents.Off)
		if err := a.On(ctx, "3"); err != nil {
			t.Error(err)
		}
	}
	wrong := with3(p.Address(), u)
	wrong.AuthPassword = agents.NewSecret(odd + "x")
	_, err := open(t, wrong).Status(ctx, "3")
	wantError(t, err, agents.ErrCredentials, "authentication password or protocol")
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v", wrong, wrong)} {
		if strings.Contains(text, odd) || strings.Contains(text, `p\"a`) {
			t.Errorf("secret in %q", text)
		}
	}
}

// TestMayNotWrite: who may only read is told so, and Check finds out what can be found out.
func TestMayNotWrite(t *testing.T) {
	t.Parallel()
	p := snmppeer.Start(t, "apc-rpdu2")
	ctx := within(t, 20*time.Second)
	wantError(t, open(t, with3(p.Address(), snmppeer.Reader)).Off(ctx, "3"), agents.ErrPrivilege, "oAccess")
	wantError(t, open(t, with2c(p.Address(), "public")).Off(ctx, "3"), agents.ErrPrivilege, "oAccess")
	o := with2c(p.Address(), "public")
	o.WriteCommunity = agents.NewSecret("wrong")
	wantError(t, open(t, o).Check(within(t, time.Second), "3"), agents.ErrCredentials, "write community")
	if calls := p.Calls(); len(calls) > 0 || p.Outlet(3) != "on" {
		t.Errorf("calls %q", calls)
	}
}
