package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
)

// counted is a resource that costs nothing itself.
type counted struct{ probes *atomic.Int64 }

func (counted) Validate() error                                 { return nil }
func (c counted) Exclusive() (key, what string)                 { return "", "" }
func (c counted) New(resources.Env) (resources.Resource, error) { return c, nil }
func (counted) Start(context.Context) error                     { return nil }
func (counted) Stop(context.Context) error                      { return nil }
func (c counted) Probe(context.Context) (resources.State, string, error) {
	c.probes.Add(1)
	return resources.Active, "", nil
}
func (counted) Died(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// crowd is a node that holds many groups of one resource each.
func crowd(tb testing.TB, groups int, every time.Duration, probes *atomic.Int64) *Node {
	n := aloneNode(tb)
	s := *n.replica.State()
	s.Groups = map[string]*state.Group{}
	n.Config.Groups = nil
	for i := range groups {
		name := fmt.Sprintf("group%d", i)
		s.Groups[name] = &state.Group{Name: name, Grant: &state.Grant{Node: "alpha", Boot: "a1", Token: uint64(i + 1), Phase: state.Granted}}
		n.Config.Groups = append(n.Config.Groups, config.Group{Name: name, Resources: []config.Resource{{
			Name: "one", Kind: "counted", Options: counted{probes}, StartTimeout: time.Minute, StopTimeout: time.Minute,
			MonitorInterval: every, MonitorTimeout: 20 * time.Second,
		}}})
	}
	n.replica.current.Store(&s)
	n.Kinds.Resources = resources.NewRegistry(resources.Kind{Name: "counted", Options: func() resources.Options { return counted{probes} }})
	n.Config.Cluster.DetectionTime = time.Hour // it hears no coordinator
	n.trust = newTrust(time.Hour, n.uptime, &Pace{}, n.Log)
	era, _ := n.trust.question()
	n.trust.answered(era)
	n.peers, n.groups, n.ready, n.probes = newPeers(n), newGroups(n), newReadiness(n), newProbes(n)
	n.startAlone(tb)
	return n
}

// begin starts a runner for every group, as reconcile does, but for the reports.
func (n *Node) begin(ctx context.Context) (wait func()) {
	for name, g := range n.replica.State().Groups {
		r := newRunner(n, name, *g.Grant)
		r.out = newOutbox(func(context.Context, state.Command) error { return nil }, slog.New(slog.DiscardHandler))
		n.groups.runners[name] = r
		n.spawn(func() { r.run(ctx) })
	}
	return n.wg.Wait
}

// cpu is what this process used so far.
func cpu(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestMonitorsAreCheap: 500 resources at ten times the default pace, all else of a runner and the look at all groups
// that each quarter of a detection time brings included, take less than ten times 3 % of a core.
func TestMonitorsAreCheap(t *testing.T) {
	const groups, pace = 500, 10
	var probes atomic.Int64
	n := crowd(t, groups, 10*time.Second/pace, &probes)
	ctx, cancel := context.WithCancel(t.Context())
	wait := n.begin(ctx)
	defer wait()
	defer cancel()
	time.Sleep(1500 * time.Millisecond) // all are started
	before, began, looked := cpu(t), time.Now(), probes.Load()
	for time.Since(began) < 3*time.Second {
		time.Sleep(750 * time.Millisecond / pace)
		n.groups.reconcile(ctx)
	}
	share := float64(cpu(t)-before) / float64(time.Since(began))
	if got := probes.Load() - looked; got < groups {
		t.Errorf("only %d monitors", got)
	}
	t.Logf("%d monitors; %.2f %% of a core, so %.2f %% at the default interval", probes.Load()-looked, 100*share, 100*share/pace)
	if share > 0.03*pace*slowdown {
		t.Errorf("%.1f %% of a core", 100*share/pace)
	}
}

// TestSpread: what is started together is monitored all through the interval, and within one.
func TestSpread(t *testing.T) {
	const resources = 500
	tenths := map[time.Duration]int{}
	for i := range resources {
		first := spread(fmt.Sprintf("group%d/data", i), 10*time.Second)
		if first <= 0 || first > 10*time.Second {
			t.Errorf("the first monitor comes after %s", first)
		}
		tenths[first/time.Second]++
	}
	for tenth, n := range tenths {
		if n > resources/5 {
			t.Errorf("%d of %d fall into second %d", n, resources, tenth)
		}
	}
}

// BenchmarkReconcile is the look at all groups, of which this node holds a half, that each applied entry brings.
func BenchmarkReconcile(b *testing.B) {
	for _, groups := range []int{100, 1000} {
		b.Run(fmt.Sprint(groups), func(b *testing.B) {
			var probes atomic.Int64
			n := crowd(b, groups, time.Hour, &probes)
			ctx, cancel := context.WithCancel(b.Context())
			wait := n.begin(ctx)
			i := 0
			for name := range n.groups.runners {
				if i++; i%2 == 0 {
					n.replica.State().Groups[name].Grant = &state.Grant{Node: "beta", Boot: "b1", Token: 1}
					n.groups.runners[name].stop("not of this node")
					<-n.groups.runners[name].ended
					delete(n.groups.runners, name)
				}
			}
			for b.Loop() {
				n.groups.reconcile(ctx)
			}
			cancel()
			wait()
		})
	}
}
