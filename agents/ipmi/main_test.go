package ipmi

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
)

func TestMain(m *testing.M) {
	flag.Set("test.parallel", "12") // these tests wait rather than work
	goleak.VerifyTestMain(m)
}

// options are those of an agent for a peer with ipmipeer's defaults.
func options(addr string) *Options {
	o := Kind().Options().(*Options)
	o.Address = addr
	o.Username = ipmipeer.DefaultUsername
	o.Password = agents.NewSecret(ipmipeer.DefaultPassword)
	return o
}

// open makes a handle that is closed at the end of the test.
func open(t testing.TB, o *Options) *agent {
	t.Helper()
	h, err := o.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a := h.(*agent)
	t.Cleanup(func() { a.Close(context.Background()) })
	return a
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// reads demands that one status says want.
func reads(t testing.TB, a *agent, want agents.PowerState) {
	t.Helper()
	r, err := a.Status(within(t, 5*time.Second), "")
	if err != nil || r.State != want {
		t.Fatalf("status is %v (%q), %v; want %v", r.State, r.Detail, err, want)
	}
}

// eventually waits for a condition that another goroutine or process brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
	}
}

// logged collects what a handle logs.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}
