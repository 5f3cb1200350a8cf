//go:build systemdhost

package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// failover is what is common to all ways in which a host falls out: the service comes up elsewhere by a proof, nobody wrote
// twice, clients find it, and the host comes back with nothing.
type failover struct {
	l      *lab
	t      *testing.T
	holder *host
	token  uint64
	boot   string
	began  time.Duration
	probe  *prober
	now    api.GroupStatus // at the end
}

func (l *lab) newFailover(t *testing.T) *failover {
	t.Helper()
	g := group(l.settled(t, "before the fault", allNodes(l)...), groupData)
	h := l.host(g.Node)
	f := &failover{l: l, t: t, holder: h, token: g.Token, boot: h.bootID(), probe: l.probe(t, addressData.String())}
	l.neighbourIs(t, addressData.String(), h)
	until(t, patience, "something is written", func(context.Context) error {
		ledger, err := os.ReadFile(l.watched() + "/ledger")
		if err == nil && !strings.Contains(string(ledger), fmt.Sprintf("did %d ", f.token)) {
			err = errors.New("nothing is")
		}
		return err
	})
	f.began = monotonic()
	return f
}

// takenOver waits for the service elsewhere, and looks at what a client sees.
func (f *failover) takenOver() {
	f.t.Helper()
	g := f.l.moved(f.t, f.l.other(f.holder.name), groupData, f.holder.name)
	if g.Token <= f.token {
		f.t.Errorf("token %d after %d", g.Token, f.token)
	}
	f.l.neighbourIs(f.t, addressData.String(), f.l.host(g.Node))
	lost, found := f.probe.gap(f.t, f.began)
	f.probe.end()
	f.t.Logf("the service went from %s to %s: no answer for %v", f.holder.name, g.Node, (found - lost).Round(time.Millisecond))
}

// fenced checks that the holder was proven off in that boot, by a device.
func (f *failover) fenced(device string) {
	f.t.Helper()
	s, err := f.l.other(f.holder.name).status(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range s.Operations {
		if o.Node == f.holder.name && o.Boot == f.boot && o.Proof != "" {
			f.t.Logf("fenced in %d ms: %s", o.TookMS, o.Proof)
			if !strings.Contains(o.Proof, device) {
				f.t.Errorf("proven by %q, not by %s", o.Proof, device)
			}
			return
		}
	}
	f.t.Errorf("%s was not proven off in boot %s: %+v", f.holder.name, f.boot, s.Operations)
}

// back waits until the host is a member again, in another boot; it has nothing, and the ledger is in order.
func (f *failover) back() {
	f.t.Helper()
	until(f.t, patience, f.holder.name+" boots", func(context.Context) error {
		if f.holder.bootID() == f.boot {
			return errors.New("it has not")
		}
		return nil
	})
	s := f.l.settled(f.t, f.holder.name+" is a member again", allNodes(f.l)...)
	if boot := f.holder.bootID(); boot == f.boot {
		f.t.Errorf("%s is still in boot %s", f.holder.name, boot)
	}
	f.l.inPlace(f.t, s)
	tokens, pauses := f.l.judgeLedger(f.t, group(s, groupData).Node)
	f.t.Logf("tokens that wrote: %v; nothing was written for %v", tokens, pauses)
	f.now = group(s, groupData)
	if f.now.Token <= f.token {
		f.t.Errorf("what was granted before %s left is still held: %+v", f.holder.name, f.now)
	}
}

// backEmpty is back, after a takeover: what went away stays where it is.
func (f *failover) backEmpty() {
	f.t.Helper()
	f.back()
	if f.now.Node == f.holder.name {
		f.t.Errorf("%s came back and holds %+v", f.holder.name, f.now)
	}
}

func TestCrash(t *testing.T) {
	l := newCluster(t)
	t.Run("power lost", func(t *testing.T) {
		f := l.newFailover(t)
		f.holder.press(false)
		f.takenOver()
		f.fenced(f.holder.name + "-bmc")
		f.backEmpty() // powered on by the cluster
	})
	t.Run("plug pulled", func(t *testing.T) { // and the BMC dead with it
		f := l.newFailover(t)
		f.holder.pull()
		f.takenOver()
		f.fenced("pdu")
		until(t, patience, "the outlet is on again", func(context.Context) error {
			f.holder.mu.Lock()
			defer f.holder.mu.Unlock()
			if !f.holder.power.outlet {
				return errors.New("it is off")
			}
			return nil
		})
		f.holder.push()
		f.backEmpty()
	})
}

// TestFreeze: a host that stands still is fenced, and does not wake. While no device can be reached, nothing is
// taken over, however long it stands; and when it wakes then, it has not lost what it holds to anybody.
func TestFreeze(t *testing.T) {
	l := newCluster(t)
	t.Run("fenced", func(t *testing.T) {
		f := l.newFailover(t)
		if err := f.holder.freeze(); err != nil {
			t.Fatal(err)
		}
		f.takenOver()
		f.fenced(f.holder.name + "-bmc")
		if woke, err := f.holder.thaw(); woke || err != nil {
			t.Errorf("what stood still was there to be woken: %v", err)
		}
		f.backEmpty()
	})
	t.Run("not to be fenced", func(t *testing.T) {
		f := l.newFailover(t)
		l.unreachable.Store(true)
		if err := f.holder.freeze(); err != nil {
			t.Fatal(err)
		}
		other := l.other(f.holder.name)
		until(t, patience, "a fencing that fails", func(ctx context.Context) error {
			s, err := other.status(ctx)
			failed := slices.ContainsFunc(s.Operations, func(o api.Operation) bool { return o.Node == f.holder.name && o.Boot == f.boot && o.Error != "" })
			if g := group(s, groupData); !failed && g.Token <= f.token {
				return errors.Join(err, errors.New("none yet"))
			}
			return nil
		})
		s, err := other.status(t.Context())
		if g := group(s, groupData); err != nil || g.Token != f.token {
			t.Errorf("granted without a proof: %+v, %v", g, err)
		}
		if woke, err := f.holder.thaw(); !woke || err != nil {
			t.Errorf("it did not wake: %v", err)
		}
		l.unreachable.Store(false)
		// What was ordered is carried through, or called off: either way it ends, and all is well.
		s = l.settled(t, "the end of it", allNodes(l)...)
		l.inPlace(t, s)
		tokens, pauses := l.judgeLedger(t, group(s, groupData).Node)
		t.Logf("tokens that wrote: %v; nothing was written for %v; %s is in the same boot: %v", tokens, pauses, f.holder.name, f.holder.bootID() == f.boot)
	})
}

// TestReset: what a host held is void when its kernel is no more, though it is back before anybody misses it.
func TestReset(t *testing.T) {
	l := newCluster(t)
	f := l.newFailover(t)
	f.holder.must(t, "systemctl reboot --force --force")
	f.back()
}
