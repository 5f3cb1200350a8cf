package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

var keyHosts = []string{"alpha", "beta", "gamma"}

// keyed is a cluster, and the operator at its hosts.
type keyed struct {
	*demo.Cluster
	t   *testing.T
	ctx context.Context
}

// key runs `hamgr key` on a host.
func (c keyed) key(node string, args ...string) (out string, status int) {
	c.t.Helper()
	text, err := exec.CommandContext(c.ctx, hamgr, append([]string{"--socket", c.Socket(node), "key"}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if exit != nil {
		return string(text), exit.ExitCode()
	}
	return string(text), 0
}

func (c keyed) do(node string, args ...string) string {
	c.t.Helper()
	out, status := c.key(node, args...)
	if status != 0 {
		c.t.Fatalf("hamgr key %v on %s: status %d: %s", args, node, status, out)
	}
	return out
}

// refused expects status 5, the words, and the file as it was.
func (c keyed) refused(node, words string, args ...string) {
	c.t.Helper()
	before, err := os.ReadFile(c.KeyFile(node))
	must(c.t, err)
	out, status := c.key(node, args...)
	after, err := os.ReadFile(c.KeyFile(node))
	must(c.t, err)
	if status != 5 || !strings.Contains(out, words) || string(before) != string(after) {
		c.t.Fatalf("hamgr key %v on %s: status %d, want 5 and %q: %s", args, node, status, words, out)
	}
}

// distribute copies a host's file to another, as an operator does.
func (c keyed) distribute(from, to string) {
	c.t.Helper()
	whole := filepath.Join(c.Folder(), to+".key.new")
	copyFile(c.t, c.KeyFile(from), whole, 0o600)
	must(c.t, os.Rename(whole, c.KeyFile(to)))
}

// keys asks a node which keys the nodes accept.
func (c keyed) keys(node string) api.Keys {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	client := api.NewClient(api.DialUnix(c.Socket(node)))
	defer client.Close()
	k, err := client.Keys(ctx)
	must(c.t, err)
	return k
}

// everywhere waits until all nodes of the asked one's cluster, as seen by all of them, accept just these, the first of which
// they use.
func (c keyed) everywhere(asked string, want ...string) {
	c.t.Helper()
	await(c.t, c.ctx, fmt.Sprintf("all nodes accept %v", want), func() bool {
		for _, node := range c.keys(asked).Nodes {
			for _, n := range c.keys(node.Name).Nodes {
				if !slices.Equal(n.Accepts, want) {
					return false
				}
			}
		}
		return true
	})
}

// says waits for a problem in a node's status.
func (c keyed) says(node, severity, words string) {
	c.t.Helper()
	await(c.t, c.ctx, node+" says: "+words, func() bool {
		s, err := c.Status(c.ctx, node)
		return err == nil && slices.ContainsFunc(s.Problems, func(p api.Problem) bool {
			return p.Severity == severity && strings.Contains(p.Text, words)
		})
	})
}

// watch keeps an eye on how long the nodes do not hear each other.
func (c keyed) watch() (longest func() time.Duration) {
	ctx, stop := context.WithCancel(c.ctx)
	var watching sync.WaitGroup
	var mu sync.Mutex
	var worst time.Duration
	for _, node := range keyHosts {
		watching.Go(func() {
			for ctx.Err() == nil {
				s, err := c.Status(ctx, node)
				mu.Lock()
				for _, n := range s.Nodes {
					if err == nil && n.ContactAgeMS != nil {
						worst = max(worst, time.Duration(*n.ContactAgeMS)*time.Millisecond)
					}
				}
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	return func() time.Duration {
		stop()
		watching.Wait()
		return worst
	}
}

// TestKeyRotation: the cluster's key is replaced while the group writes: nobody is fenced, nothing stops, no node is
// missed. The wrong order is refused. What comes after a rotation: a host that has the dropped key alone, a daemon that begins
// anew while its file is broken, a node that was removed.
func TestKeyRotation(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	const detection = 8 * time.Second // long enough for a node to be silent, and for commands about that, without a shot
	cluster, at := startCluster(t, ctx, detection)
	c := keyed{cluster, t, ctx}
	before := lastWrite(t, cluster)
	old := c.keys("alpha").Nodes[0].Accepts[0]
	c.everywhere("alpha", old)
	other := keyHosts[slices.IndexFunc(keyHosts, func(n string) bool { return n != at.Coordinator && n != at.Holder })]
	here := keyHosts[slices.IndexFunc(keyHosts, func(n string) bool { return n != other })]

	longest := c.watch()
	fresh := c.addAndUse(old)
	silence := longest()
	c.awayHoldsUp(here, other, old)
	c.unmoved(at)
	longest = c.watch()
	for _, node := range keyHosts {
		c.do(node, "drop", old)
	}
	c.everywhere("alpha", fresh)
	if out, status := c.key("alpha", "use", old); status != 6 {
		t.Errorf("a dropped key is used: status %d: %s", status, out)
	}
	wait(t, ctx, detection+detection/2) // longer than anything that was started comes to a shot
	if silence = max(silence, longest()); silence > detection/2 {
		t.Errorf("the nodes did not hear each other for %s", silence)
	}
	for _, e := range []string{"fencing ordered", "resource restarts in place"} {
		if all := c.Events.All(func(x demo.Event) bool { return x.Message == e }); len(all) != 0 {
			t.Errorf("%s: %v", e, all)
		}
	}

	c.brokenFile(here, other, fresh)
	c.lockedOut(here, other, old, fresh)
	c.unmoved(at)
	c.removed(here, other, fresh)
	after := lastWrite(t, cluster)
	if after.PID != before.PID || after.Boot != before.Boot || after.Token != before.Token || after.Seq <= before.Seq {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
}

// unmoved waits until the cluster is whole, with the group where it was.
func (c keyed) unmoved(at demo.Placement) {
	c.t.Helper()
	now, err := c.Ready(c.ctx, 90*time.Second)
	must(c.t, err)
	if now.Holder != at.Holder || now.Token != at.Token || now.Boot != at.Boot {
		c.t.Fatalf("the group is at %+v, was at %+v", now, at)
	}
}

// addAndUse is the first part of a rotation, with what is refused in it.
func (c keyed) addAndUse(old string) (fresh string) {
	fresh, _, _ = strings.Cut(c.do("alpha", "add"), " ")
	c.says("gamma", api.SeverityWarning, "rotation of the cluster key is under way")
	c.refused("alpha", "beta does not accept "+fresh, "use", fresh)
	c.distribute("alpha", "beta")
	await(c.t, c.ctx, "beta accepts it by itself", func() bool { return slices.Equal(c.keys("alpha").Nodes[1].Accepts, []string{old, fresh}) })
	c.refused("alpha", "gamma does not accept "+fresh, "use", fresh)
	// The last one hears of it by a signal, as systemctl reload sends it.
	c.distribute("alpha", "gamma")
	pid, err := c.DaemonPID("gamma")
	must(c.t, err)
	must(c.t, syscall.Kill(pid, syscall.SIGHUP))
	c.everywhere("alpha", old, fresh)

	c.refused("beta", "is the key that this host uses", "drop", old)
	c.do("beta", "use", fresh)
	c.refused("beta", "alpha uses "+old, "drop", old)
	c.do("alpha", "use", fresh)
	c.refused("alpha", "gamma uses "+old, "drop", old)
	c.do("gamma", "use", fresh)
	c.everywhere("alpha", fresh, old)
	return fresh
}

// awayHoldsUp: nothing is dropped while a node is away.
func (c keyed) awayHoldsUp(here, other, old string) {
	pid, err := c.DaemonPID(other)
	must(c.t, err)
	must(c.t, syscall.Kill(pid, syscall.SIGSTOP))
	await(c.t, c.ctx, other+" is silent", func() bool {
		return slices.ContainsFunc(c.keys(here).Nodes, func(n api.NodeKeys) bool { return n.Name == other && n.Silent != "" })
	})
	c.refused(here, "it may have no other key than "+old, "drop", old)
	must(c.t, syscall.Kill(pid, syscall.SIGCONT))
}

// brokenFile: a daemon that begins anew in its process goes on with the keys in force, also while their file cannot be used.
func (c keyed) brokenFile(here, other, key string) {
	must(c.t, os.Chmod(c.KeyFile(other), 0o644))
	c.says(here, api.SeverityAlarm, other+" cannot use the file of its cluster key")
	c.apply(here, func(text string) string {
		return strings.Replace(text, "rehearsal_age = \"0s\"", "rehearsal_age = \"9000h\"", 1)
	})
	c.everywhere(here, key)
	must(c.t, os.Chmod(c.KeyFile(other), 0o600))
	await(c.t, c.ctx, other+" can use its file again", func() bool {
		return !slices.ContainsFunc(c.keys(here).Nodes, func(n api.NodeKeys) bool { return n.Trouble != "" })
	})
}

// lockedOut: who has the dropped key alone is out, and both sides say why.
func (c keyed) lockedOut(here, other, old, fresh string) {
	// The file that the cluster began with.
	copyFile(c.t, filepath.Join(c.Folder(), "cluster.key"), c.KeyFile(other)+".new", 0o600)
	must(c.t, os.Rename(c.KeyFile(other)+".new", c.KeyFile(other)))
	c.says(other, api.SeverityAlarm, "sealed with the cluster key "+fresh+", which is not accepted here: this node may have missed a rotation")
	c.says(here, api.SeverityWarning, "packets in the name of "+other+" are sealed with the cluster key "+old)
	if s, err := c.Status(c.ctx, other); err == nil && s.Quorate {
		c.t.Errorf("with the dropped key, %s has a quorum with %s", other, s.Coordinator)
	}
	c.distribute(here, other)
}

// removed: who is removed still has the key, and that is said until it is another one.
func (c keyed) removed(here, other, key string) {
	if out, err := exec.CommandContext(c.ctx, hamgr, "--socket", c.Socket(here), "fence", "off", other, "--yes").CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	c.apply(here, func(text string) string { return without(text, other) })
	c.says(here, api.SeverityNotice, other+" was removed from the cluster and still has its key "+key)
	newest, _, _ := strings.Cut(c.do(here, "add"), " ")
	third := keyHosts[slices.IndexFunc(keyHosts, func(n string) bool { return n != here && n != other })]
	c.distribute(here, third)
	c.everywhere(here, key, newest)
	for _, step := range [][]string{{"use", newest}, {"drop", key}} {
		c.do(here, step...)
		c.do(third, step...)
	}
	s, err := c.Status(c.ctx, here)
	must(c.t, err)
	if slices.ContainsFunc(s.Problems, func(p api.Problem) bool { return strings.Contains(p.Text, "key") }) {
		c.t.Errorf("after the rotation: %+v", s.Problems)
	}
}

// apply has the cluster go by a changed configuration, and waits until every node runs with it.
func (c keyed) apply(node string, change func(text string) string) {
	c.t.Helper()
	text, err := os.ReadFile(c.Config())
	must(c.t, err)
	path := filepath.Join(c.Folder(), "changed.toml")
	must(c.t, os.WriteFile(path, []byte(change(string(text))), 0o600))
	if out, err := exec.CommandContext(c.ctx, hamgr, "--socket", c.Socket(node), "config", "apply", "--yes", path).CombinedOutput(); err != nil {
		c.t.Fatalf("config apply on %s: %v: %s", node, err, out)
	}
}

// without is a configuration without a node, its device, and any preference.
func without(text, node string) string {
	var kept []string
	for part := range strings.SplitSeq(text, "\n\n") {
		if !strings.Contains(part, fmt.Sprintf("name = %q", node)) && !strings.Contains(part, fmt.Sprintf("name = %q", node+"-bmc")) {
			kept = append(kept, part)
		}
	}
	var lines []string
	for line := range strings.SplitSeq(strings.Join(kept, "\n\n"), "\n") {
		if !strings.HasPrefix(line, "prefer = ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
