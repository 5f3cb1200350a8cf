//go:build systemdhost

package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// stillTime is the longest time without an answer that a client may see while nothing is the matter: on a machine that
// is busy with three hosts. A group that was stopped and started again would be away for longer, and write with another token.
const stillTime = time.Second

// calm watches a cluster of which nothing is to be seen.
type calm struct {
	l      *lab
	t      *testing.T
	before api.Status
	boots  map[string]string
	probes map[string]*prober
	began  time.Duration
}

func (l *lab) newCalm(t *testing.T) *calm {
	t.Helper()
	c := &calm{l: l, t: t, before: l.settled(t, "before", allNodes(l)...), boots: map[string]string{}, probes: map[string]*prober{}}
	for _, h := range l.hosts {
		c.boots[h.name] = h.bootID()
	}
	for _, address := range []string{addressIP.String(), addressData.String()} {
		c.probes[address] = l.probe(t, address)
	}
	c.began = monotonic()
	return c
}

// kept checks that all groups are where they were, under the same grant, that their clients noticed nothing, and that nobody
// was shot.
func (c *calm) kept() {
	c.t.Helper()
	now := c.l.settled(c.t, "afterwards", allNodes(c.l)...)
	for _, name := range []string{groupIP, groupData} {
		if a, b := group(c.before, name), group(now, name); a.Node != b.Node || a.Token != b.Token {
			c.t.Errorf("%s was on %s (token %d) and is on %s (token %d)", name, a.Node, a.Token, b.Node, b.Token)
		}
	}
	for address, p := range c.probes {
		lost, found := p.gap(c.t, c.began)
		p.end()
		c.t.Logf("%s did not answer for %v at most", address, found-lost)
		if found-lost > stillTime {
			c.t.Errorf("%s did not answer for %v", address, found-lost)
		}
	}
	for _, h := range c.l.hosts {
		if boot := h.bootID(); boot != c.boots[h.name] {
			c.t.Errorf("%s is in boot %s and was in %s", h.name, boot, c.boots[h.name])
		}
	}
	c.l.inPlace(c.t, now)
	c.l.judgeLedger(c.t, group(now, groupData).Node)
	c.l.unshot(c.t)
}

// unshot checks that nobody was ever shot.
func (l *lab) unshot(t *testing.T) {
	t.Helper()
	s, err := l.hosts[0].status(t.Context())
	if err != nil || len(s.Operations) > 0 {
		t.Errorf("somebody was shot: %+v, %v", s.Operations, err)
	}
}

// TestDaemonRestarts: a daemon that goes away for a moment takes nothing with it, on purpose or not, and is not missed.
func TestDaemonRestarts(t *testing.T) {
	l := newCluster(t)
	t.Run("rolling", func(t *testing.T) {
		for _, h := range l.hosts[:2] { // as many as the machine has processors, for most
			h.must(t, "systemd-run -q --unit=load nice sh -c 'while :; do :; done'")
			defer h.must(t, "systemctl stop load")
		}
		c := l.newCalm(t)
		for range 10 {
			for _, h := range l.hosts {
				h.must(t, "systemctl restart hamgr")
				l.settled(t, h.name+" is back", allNodes(l)...)
			}
		}
		c.kept()
	})
	t.Run("killed", func(t *testing.T) {
		c := l.newCalm(t)
		for _, h := range l.hosts {
			daemon := h.must(t, "systemctl show -P MainPID hamgr")
			h.must(t, "kill -9 "+daemon)
			until(t, patience, "another daemon", func(ctx context.Context) error {
				now, err := h.exec(ctx, "systemctl is-active -q hamgr && systemctl show -P MainPID hamgr")
				if err == nil && (now == daemon || now == "0") {
					err = errors.New("there is none")
				}
				return err
			})
			l.settled(t, h.name+" is back", allNodes(l)...)
		}
		c.kept()
	})
}

// TestSlowRestart: a daemon that is away for longer than the detection time, and has said so, is not missed; but for no longer
// than it has said.
func TestSlowRestart(t *testing.T) {
	l := newClusterOf(t, time.Second)
	slow := func(h *host, seconds int) {
		h.must(t, fmt.Sprintf("mkdir -p /etc/systemd/system/hamgr.service.d && printf '[Service]\\nExecStartPre=/bin/sleep %d\\n' > /etc/systemd/system/hamgr.service.d/slow.conf && systemctl daemon-reload", seconds))
	}
	t.Run("comes back", func(t *testing.T) {
		c := l.newCalm(t)
		for _, h := range l.hosts {
			slow(h, 3)
			h.must(t, "systemctl restart hamgr")
			l.settled(t, h.name+" is back", allNodes(l)...)
		}
		c.kept()
	})
	t.Run("dies", func(t *testing.T) {
		f := l.newFailover(t)
		slow(f.holder, 60)
		f.holder.must(t, "systemctl --no-block restart hamgr; while ! systemctl show -P SubState hamgr | grep -q start-pre; do sleep 0.02; done")
		if err := os.RemoveAll(f.holder.dir + "/upper/etc/systemd/system/hamgr.service.d"); err != nil {
			t.Fatal(err)
		}
		f.holder.press(false)
		f.takenOver()
		f.fenced(f.holder.name + "-bmc")
		const announced = 15 * time.Second
		for _, s := range l.steps(groupData, f.began) {
			if s.line.Msg == "group granted" {
				t.Logf("granted after %v", s.at-f.began)
				if took := s.at - f.began; took > announced+10*time.Second {
					t.Errorf("taken over after %v, when it had said %v", took, announced)
				}
			}
		}
		f.backEmpty()
	})
}

// TestStops: what is stopped on purpose hands its groups over first, and nobody is shot.
func TestStops(t *testing.T) {
	l := newCluster(t)
	t.Run("stop", func(t *testing.T) {
		f := l.newFailover(t)
		f.holder.must(t, "systemctl stop hamgr")
		f.takenOver()
		if _, err := f.holder.exec(t.Context(), "ip -br addr | grep -wF -e "+addressData.String()+" -e "+addressIP.String()+" || mountpoint -q /srv/data"); err == nil {
			t.Errorf("something was left on %s", f.holder.name)
		}
		f.holder.must(t, "systemctl start hamgr")
		f.returns(false)
	})
	t.Run("reboot", func(t *testing.T) {
		f := l.newFailover(t)
		f.holder.must(t, "systemctl reboot")
		f.takenOver()
		f.returns(true)
		f.inOrder()
	})
	t.Run("poweroff", func(t *testing.T) {
		f := l.newFailover(t)
		f.holder.must(t, "systemctl poweroff")
		f.takenOver()
		f.holder.goesOff(t)
		f.holder.press(true)
		f.returns(true)
		f.inOrder()
	})
	t.Run("all", func(t *testing.T) {
		before := l.settled(t, "before", allNodes(l)...)
		began := monotonic()
		for _, h := range l.hosts {
			h.must(t, "systemctl --no-block poweroff")
		}
		for _, h := range l.hosts {
			h.goesOff(t)
		}
		t.Logf("all are off after %v", monotonic()-began)
		for _, h := range l.hosts {
			h.press(true)
		}
		now := l.settled(t, "all are on again", allNodes(l)...)
		for _, name := range []string{groupIP, groupData} {
			t.Logf("%s was on %s, and is on %s", name, group(before, name).Node, group(now, name).Node)
		}
		l.inPlace(t, now)
		tokens, pauses := l.judgeLedger(t, group(now, groupData).Node)
		t.Logf("tokens that wrote: %v; nothing was written for %v", tokens, pauses)
		l.unshot(t)
	})
}

// goesOff waits until the host has no power any more, by its own hand.
func (h *host) goesOff(t *testing.T) {
	t.Helper()
	until(t, patience, h.name+" goes off", func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.power.button || h.boot != nil {
			return errors.New("it has not")
		}
		return nil
	})
}

// returns waits until the host is a member again. Nobody was shot, and what moved away stays where it is.
func (f *failover) returns(otherBoot bool) {
	f.t.Helper()
	if otherBoot {
		f.backEmpty()
	} else {
		s := f.l.settled(f.t, f.holder.name+" is a member again", allNodes(f.l)...)
		f.l.inPlace(f.t, s)
		tokens, pauses := f.l.judgeLedger(f.t, group(s, groupData).Node)
		f.t.Logf("tokens that wrote: %v; nothing was written for %v", tokens, pauses)
		if g := group(s, groupData); g.Node == f.holder.name {
			f.t.Errorf("%s came back and holds %+v", f.holder.name, g)
		}
	}
	f.l.unshot(f.t)
}

// inOrder checks what the holder's last boot wrote when it went down: first hamgr stopped its groups, then what they stand
// on went.
func (f *failover) inOrder() {
	f.t.Helper()
	journal := f.holder.journal("-o", "short-monotonic", "_BOOT_ID="+strings.ReplaceAll(f.boot, "-", ""))
	last := -1
	for _, what := range []string{`"msg":"resource stopped","group":"` + groupData, "Stopped hamgr.service", "Stopped target hamgr-groups.target", "Stopped target network-online.target"} {
		at := strings.LastIndex(journal, what)
		if at < last || at < 0 {
			f.t.Errorf("in the journal %q is at %d, and what comes before it at %d:\n%s", what, at, last, journal)
			return
		}
		last = at
	}
	if at := strings.LastIndex(journal, "Stopping dbus.service"); at >= 0 && at < strings.LastIndex(journal, "Stopped hamgr.service") {
		f.t.Errorf("D-Bus was stopped before hamgr:\n%s", journal)
	}
	for _, bad := range []string{"timed out", "SIGKILL", "Failed unmounting"} {
		if strings.Contains(journal, bad) {
			f.t.Errorf("something was %q:\n%s", bad, journal)
		}
	}
}
