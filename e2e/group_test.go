package e2e

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// change is what a command that changes something prints.
type change struct {
	api.ChangeResult
	Waited struct {
		OK     bool
		Groups []struct {
			Node, State string
			Token       uint64
		}
	}
}

// group shows the demo's group.
func (s *shell) group(ctx context.Context) api.GroupStatus {
	s.t.Helper()
	var shown struct{ Group api.GroupStatus }
	s.must(ctx, &shown, "group", "show", "ledger")
	return shown.Group
}

// until asks again and again until the group is as it should be.
func (s *shell) until(ctx context.Context, what string, is func(api.GroupStatus) bool) api.GroupStatus {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		g := s.group(ctx)
		if is(g) {
			return g
		}
		if ctx.Err() != nil {
			s.t.Fatalf("not %s: %+v", what, g)
		}
		wait(s.t, ctx, 100*time.Millisecond)
	}
}

// TestOperatorsGroups goes the way of an operator with a group of real processes: it is looked at, moved, restarted,
// switched off and on; and a node that is left alone is not shot, until it is no longer left alone.
func TestOperatorsGroups(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, at := startCluster(t, ctx, 3*time.Second)
	op := &shell{t: t, c: c, node: "alpha"}
	if at.Holder == op.node {
		t.Fatalf("alpha is not preferred: %+v", at)
	}

	var told change
	op.must(ctx, &told, "group", "move", "ledger", "alpha", "--dry-run")
	if !told.DryRun || !told.Changed || len(told.Steps) != 2 || told.Steps[0].Node != at.Holder || told.Steps[1].Node != "alpha" {
		t.Errorf("foretold: %+v", told)
	}
	if g := op.group(ctx); g.Node != at.Holder || g.Token != at.Token || g.Wish != "" {
		t.Errorf("a dry run changed something: %+v", g)
	}
	// How a resource is, its holder tells every node's operator.
	op.until(ctx, "told by its holder", func(g api.GroupStatus) bool {
		return len(g.Resources) == 1 && g.Resources[0].State == "active" && g.Resources[0].Kind == "command" && g.ResourcesNote == ""
	})

	token := at.Token
	done := func(node string, args ...string) {
		t.Helper()
		var told change
		op.must(ctx, &told, append(args, "--wait")...)
		if w := told.Waited; !w.OK || len(w.Groups) != 1 || w.Groups[0].Node != node || node != "" && w.Groups[0].Token <= token {
			t.Fatalf("hamgr %s: %+v", strings.Join(args, " "), told)
		}
		token = max(token, told.Waited.Groups[0].Token)
	}
	done("alpha", "group", "move", "ledger", "alpha")
	done("alpha", "group", "restart", "ledger")
	done("", "group", "disable", "ledger")
	if g := op.group(ctx); g.State != api.GroupStopped || !g.Disabled {
		t.Errorf("disabled: %+v", g)
	}
	if _, status := op.run(ctx, "group", "restart", "ledger"); status != 5 {
		t.Errorf("a group that nobody holds was restarted: status %d", status)
	}
	done("beta", "group", "enable", "ledger") // which it prefers
	done("gamma", "group", "move", "ledger", "gamma", "--for", "1h")
	if g := op.group(ctx); !strings.Contains(g.Wish, "moved to gamma by ") || !strings.Contains(g.Wish, "for another ") {
		t.Errorf("the wish is not shown: %+v", g)
	}
	done("beta", "group", "move", "ledger", "--away")
	done("gamma", "group", "move", "ledger", "gamma", "--for", "4s")
	g := op.until(ctx, "at the end of its wish", func(g api.GroupStatus) bool { return g.Wish == "" })
	if g.Node != "gamma" || g.Token != token { // what it prefers is no reason to move
		t.Errorf("the end of a wish moved it: %+v", g)
	}
	oneWriter(t, c)
	leftAlone(t, ctx, c, op)
}

// leftAlone has a node fall silent in maintenance, and then ends that.
func leftAlone(t *testing.T, ctx context.Context, c *demo.Cluster, op *shell) {
	t.Helper()
	before := op.group(ctx)
	op.node = "beta"
	op.must(ctx, nil, "node", "maintenance", before.Node, "on")
	if _, err := c.Strike(ctx, before.Node, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	shots := func() int {
		return len(c.Events.All(func(e demo.Event) bool { return e.Message == "fencing ordered" }))
	}
	wait(t, ctx, 5*time.Second) // a node that falls silent is shot after three
	now := op.group(ctx)
	if shots() != 0 || now.Node != before.Node || now.Token != before.Token || now.Maintenance == "" || !strings.Contains(now.ResourcesNote, before.Node+" is not heard") {
		t.Errorf("in maintenance: %d shots, %+v", shots(), now)
	}
	if screen, _ := op.run(ctx, "status"); !strings.Contains(screen, "is in maintenance: what it holds is not monitored") {
		t.Errorf("the status is not loud: %s", screen)
	}
	op.must(ctx, nil, "node", "maintenance", before.Node, "off")
	taken := op.until(ctx, "taken over", func(g api.GroupStatus) bool { return g.State == api.GroupRunning && g.Node != before.Node })
	if shots() != 1 || taken.Token <= before.Token {
		t.Errorf("after it: %d shots, %+v", shots(), taken)
	}
}

// oneWriter reads from the ledger that tokens only grow in it.
func oneWriter(t *testing.T, c *demo.Cluster) {
	t.Helper()
	entries, err := c.Ledger()
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d entries: %v", len(entries), err)
	}
	for i, e := range entries[1:] {
		if e.Token < entries[i].Token {
			t.Errorf("token %d was written after %d", e.Token, entries[i].Token)
		}
	}
}
