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

func (c keyed) must(node string, args ...string) string {
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

// everywhere waits until all nodes, as seen by all nodes, accept just these, the first of which they use.
func (c keyed) everywhere(want ...string) {
	c.t.Helper()
	await(c.t, c.ctx, fmt.Sprintf("all nodes accept %v", want), func() bool {
		for _, node := range keyHosts {
			for _, n := range c.keys(node).Nodes {
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
// missed. The wrong order is refused. A host that has the dropped key alone is locked out and says so, and is let in
// again with the file.
func TestKeyRotation(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	const detection = 8 * time.Second // long enough for a node to be silent, and for commands about that, without a shot
	cluster, at := startCluster(t, ctx, detection)
	c := keyed{cluster, t, ctx}
	before := lastWrite(t, cluster)
	old := c.keys("alpha").Nodes[0].Accepts[0]
	c.everywhere(old)
	longest := c.watch()

	said := c.must("alpha", "add")
	fresh, _, _ := strings.Cut(said, " ")
	c.says("gamma", api.SeverityWarning, "rotation of the cluster key is under way")
	c.refused("alpha", "beta does not accept "+fresh, "use", fresh)
	c.distribute("alpha", "beta")
	await(t, ctx, "beta accepts it by itself", func() bool { return slices.Equal(c.keys("alpha").Nodes[1].Accepts, []string{old, fresh}) })
	c.refused("alpha", "gamma does not accept "+fresh, "use", fresh)
	// The last one hears of it by a signal, as systemctl reload sends it.
	c.distribute("alpha", "gamma")
	pid, err := c.DaemonPID("gamma")
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGHUP))
	c.everywhere(old, fresh)

	c.refused("beta", "is the key that this host uses", "drop", old)
	c.must("beta", "use", fresh)
	c.refused("beta", "alpha uses "+old, "drop", old)
	c.must("alpha", "use", fresh)
	c.refused("alpha", "gamma uses "+old, "drop", old)
	c.must("gamma", "use", fresh)
	c.everywhere(fresh, old)

	// A node that is away holds the rotation up.
	other := keyHosts[slices.IndexFunc(keyHosts, func(n string) bool { return n != at.Coordinator && n != at.Holder })]
	here := keyHosts[slices.IndexFunc(keyHosts, func(n string) bool { return n != other })]
	age := longest()
	stopped, err := c.DaemonPID(other)
	must(t, err)
	must(t, syscall.Kill(stopped, syscall.SIGSTOP))
	await(t, ctx, other+" is not heard", func() bool {
		for _, n := range c.keys(here).Nodes {
			if n.Name == other {
				return n.Silent != ""
			}
		}
		return false
	})
	c.refused(here, other+" ", "drop", old)
	must(t, syscall.Kill(stopped, syscall.SIGCONT))
	now, err := c.Ready(ctx, 60*time.Second)
	must(t, err)
	if now.Holder != at.Holder || now.Token != at.Token || now.Boot != at.Boot {
		t.Fatalf("the group is at %+v, was at %+v", now, at)
	}
	longest = c.watch()

	for _, node := range keyHosts {
		c.must(node, "drop", old)
	}
	c.everywhere(fresh)
	if out, status := c.key("alpha", "use", old); status != 6 {
		t.Errorf("a dropped key is used: status %d: %s", status, out)
	}
	wait(t, ctx, detection+detection/2) // longer than anything that was started comes to a shot
	if age = max(age, longest()); age > detection/2 {
		t.Errorf("the nodes did not hear each other for %s", age)
	}
	after := lastWrite(t, cluster)
	if after.PID != before.PID || after.Boot != before.Boot || after.Token != before.Token || after.Seq <= before.Seq {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	for _, e := range []string{"fencing ordered", "resource restarts in place"} {
		if all := c.Events.All(func(x demo.Event) bool { return x.Message == e }); len(all) != 0 {
			t.Errorf("%s: %v", e, all)
		}
	}
	t.Logf("the longest silence was %s", age)

	// The file that the cluster began with.
	copyFile(t, filepath.Join(c.Folder(), "cluster.key"), c.KeyFile(other)+".new", 0o600)
	must(t, os.Rename(c.KeyFile(other)+".new", c.KeyFile(other)))
	c.says(other, api.SeverityAlarm, "sealed with the cluster key "+fresh+", which is not accepted here: this node may have missed a rotation")
	c.says(here, api.SeverityWarning, "packets in the name of "+other+" are sealed with the cluster key "+old)
	if s, err := c.Status(ctx, other); err == nil && s.Quorate {
		t.Errorf("with the dropped key, %s has a quorum with %s", other, s.Coordinator)
	}
	c.distribute(here, other)
	if now, err = c.Ready(ctx, 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if now.Holder != at.Holder || now.Token != at.Token || now.Boot != at.Boot {
		t.Fatalf("the group is at %+v, was at %+v", now, at)
	}
	if e := lastWrite(t, cluster); e.PID != before.PID || e.Seq <= after.Seq {
		t.Errorf("not the same process writes: %v, then %v", before, e)
	}
}
