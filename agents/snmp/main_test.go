package snmp

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "12") // the tests wait for devices, and use little of a processor
	goleak.VerifyTestMain(m)
}

// odd holds what shells, configuration files and printf trip over.
const odd = `p"a's$s%s#w\o;r d:` + "`é漢!"

// with2c are the options of a device in version 2c.
func with2c(address, community string) *Options {
	o := Kind().Options().(*Options)
	o.Address, o.Version, o.Community = address, "2c", agents.NewSecret(community)
	return o
}

// with3 are those of a device in version 3.
func with3(address string, u snmppeer.User) *Options {
	o := Kind().Options().(*Options)
	o.Address, o.Username, o.Auth, o.Priv = address, u.Name, u.Auth, u.Priv
	o.AuthPassword, o.PrivPassword = agents.NewSecret(u.AuthPassword), agents.NewSecret(u.PrivPassword)
	return o
}

// open makes a handle that is closed at the end of the test.
func open(t testing.TB, o *Options) *agent {
	t.Helper()
	h, err := o.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return h.(*agent)
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// wantState reads an outlet.
func wantState(t testing.TB, a *agent, plug string, want agents.PowerState) {
	t.Helper()
	r, err := a.Status(within(t, 5*time.Second), plug)
	if err != nil || r.State != want {
		t.Errorf("outlet %s reads %v (%s), %v; want %v", plug, r.State, r.Detail, err, want)
	}
}

// wantError holds an error against its trouble and a part of its words.
func wantError(t testing.TB, err, trouble error, words string) {
	t.Helper()
	if err == nil || trouble != nil && !errors.Is(err, trouble) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want %v with %q", err, trouble, words)
	}
}
