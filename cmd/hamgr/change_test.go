package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// interrupter is a terminal at which somebody types Ctrl-C as soon as a text is seen.
type interrupter struct {
	bytes.Buffer
	at     string
	cancel context.CancelFunc
}

func (i *interrupter) Write(p []byte) (int, error) {
	n, err := i.Buffer.Write(p)
	if strings.Contains(i.String(), i.at) {
		i.cancel()
	}
	return n, err
}

// Ctrl-C ends the wait, and says that it ends nothing else.
func TestWaitIsInterrupted(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "hamgr.sock")
	daemon := newCanned("hangs")
	stop, err := startDaemon(socket, daemon)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	t.Setenv("SUDO_USER", "anna")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	talk := &interrupter{at: "db is stopping", cancel: cancel}
	var out bytes.Buffer
	c := &cli{in: strings.NewReader(""), out: &out, err: talk}
	began := time.Now()
	status := c.run(ctx, []string{"--socket", socket, "group", "move", "db", "beta", "--wait", "--json"})
	if status != exitUnknown || time.Since(began) > 10*time.Second {
		t.Errorf("status %d after %s", status, time.Since(began))
	}
	if !strings.Contains(talk.String(), "no longer waiting: db is stopping on gamma: moved by anna; it goes on by itself: hamgr group show db") {
		t.Errorf("said: %s", talk)
	}
	if !strings.Contains(out.String(), `"ok": false`) || !strings.Contains(out.String(), `"changed": true`) {
		t.Errorf("printed: %s", out.String())
	}
}

// Only what was seen after the change counts as its outcome.
func TestReached(t *testing.T) {
	start := []api.ChangeStep{{Group: "db", Node: "beta", Action: api.StepStart}}
	for name, c := range map[string]struct {
		steps []api.ChangeStep
		node  string // foretold, after token 17
		now   waitedGroup
		want  bool
	}{
		"started":                  {start, "beta", waitedGroup{State: api.GroupRunning, Node: "beta", Token: 18}, true},
		"restarted, old status":    {start, "beta", waitedGroup{State: api.GroupRunning, Node: "beta", Token: 17}, false},
		"still starting":           {start, "beta", waitedGroup{State: api.GroupStarting, Node: "beta", Token: 18}, false},
		"elsewhere":                {start, "beta", waitedGroup{State: api.GroupRunning, Node: "alpha", Token: 18}, false},
		"unproven":                 {start, "beta", waitedGroup{State: api.GroupBlocked, Node: "beta", Token: 18}, false},
		"its stop waits":           {nil, "beta", waitedGroup{State: api.GroupRunning, Node: "beta", Token: 17}, false},
		"stays":                    {nil, "beta", waitedGroup{State: api.GroupRunning, Node: "beta", Token: 17}, true},
		"nowhere":                  {nil, "", waitedGroup{State: api.GroupStopped}, true},
		"nowhere, but still there": {nil, "", waitedGroup{State: api.GroupStopping, Node: "beta", Token: 17}, false},
	} {
		w := waiter{result: api.ChangeResult{Steps: c.steps}}
		c.now.Group = "db"
		waits := ""
		if name == "its stop waits" {
			waits = "is to stop, and waits for web"
		}
		if got := w.reached(api.ChangedGroup{Group: "db", Node: c.node, Token: 17, Waits: waits}, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A wait ends where nothing happens any more, and not while something does.
func TestAtRest(t *testing.T) {
	for name, c := range map[string]struct {
		group waitedGroup
		quiet time.Duration
		want  bool
	}{
		"stopping":           {waitedGroup{State: api.GroupStopping, Node: "beta"}, time.Hour, false},
		"starting":           {waitedGroup{State: api.GroupStarting, Node: "beta"}, time.Hour, false},
		"being fenced":       {waitedGroup{State: api.GroupBlocked, Node: "beta"}, time.Hour, false},
		"failed":             {waitedGroup{State: api.GroupFailed}, restEnded + time.Second, true},
		"just failed":        {waitedGroup{State: api.GroupFailed}, restEnded / 2, false},
		"elsewhere":          {waitedGroup{State: api.GroupRunning, Node: "alpha", Token: 18}, restEnded + time.Second, true},
		"not yet heard of":   {waitedGroup{State: api.GroupRunning, Node: "alpha", Token: 17}, restEnded + time.Second, false},
		"waits":              {waitedGroup{State: api.GroupWaiting}, restEnded + time.Second, false},
		"waits for too long": {waitedGroup{State: api.GroupWaiting}, restWaiting + time.Second, true},
	} {
		w := waiter{result: api.ChangeResult{Groups: []api.ChangedGroup{{Group: "db", Token: 17}}}, groups: []waitedGroup{c.group}, moved: time.Now().Add(-c.quiet)}
		if got := w.atRest(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
