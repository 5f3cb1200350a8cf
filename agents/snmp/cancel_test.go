package snmp

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// TestCancelAnywhere stalls the device at each datagram of each call in turn, cancels, and
// wants the call back within 50 ms.
func TestCancelAnywhere(t *testing.T) {
	const plug = "name:outlet3"
	calls := map[string]func(a *agent, ctx context.Context) error{
		"status":   func(a *agent, ctx context.Context) error { _, err := a.Status(ctx, plug); return err },
		"off":      func(a *agent, ctx context.Context) error { return a.Off(ctx, plug) },
		"identity": func(a *agent, ctx context.Context) error { _, err := a.Identity(ctx, plug); return err },
		"check":    func(a *agent, ctx context.Context) error { return a.Check(ctx, plug) },
	}
	for _, version := range []string{"2c", "3"} {
		for name, call := range calls {
			points := 0
			for ; points < 20; points++ {
				l := startLiar(t, nil)
				l.stall(points + 1)
				o := with2c(l.address(), "private")
				if version == version3 {
					o = with3(l.address(), snmppeer.Fencer)
				}
				a := open(t, o)
				ctx, cancel := context.WithCancel(context.Background())
				returned := make(chan error, 1)
				go func() { returned <- call(a, ctx) }()
				select {
				case err := <-returned:
					cancel()
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				case <-l.stalled:
					cancel()
					began := time.Now()
					err := <-returned
					if took := time.Since(began); took > 50*time.Millisecond {
						t.Errorf("version %s, %s, datagram %d: back after %v", version, name, points+1, took)
					}
					if !errors.Is(err, context.Canceled) {
						t.Errorf("version %s, %s, datagram %d: %v", version, name, points+1, err)
					}
					l.stall(0)
					if err := call(a, within(t, 3*time.Second)); err != nil {
						t.Errorf("version %s, %s, datagram %d: the call after it: %v", version, name, points+1, err)
					}
					continue
				}
				break
			}
			if points < 3 || points == 20 {
				t.Errorf("version %s, %s: %d points", version, name, points)
			}
		}
	}
}

// TestLateAnswer: the answer to a cancelled reading is not taken for the next one's.
func TestLateAnswer(t *testing.T) {
	p := snmppeer.Start(t, "apc-rpdu2")
	a := open(t, with2c(p.Address(), "private"))
	p.SetOutlet(3, "off")
	wantState(t, a, "3", agents.Off)
	p.Freeze()
	for range 5 {
		if _, err := a.Status(within(t, 5*time.Millisecond), "3"); err == nil {
			t.Error("a frozen device answered")
		}
	}
	p.SetOutlet(3, "on")
	p.Thaw()
	wantState(t, a, "3", agents.On)
}
