package node

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

// status is what this node tells of its watchdog; nil if it has none.
func (d *dog) status() *api.WatchdogStatus {
	if d == nil || d.Path == watchdog.Off {
		return nil
	}
	r := d.Report()
	st := &api.WatchdogStatus{
		Device: r.Path, Identity: r.Identity, Armed: r.Armed, TimeoutMS: r.Timeout.Milliseconds(), FedMS: r.Fed.Milliseconds(),
		LastBoot: watchdog.Flags(r.LastBoot), Test: cmp.Or(r.Test.Verdict, "untested"), TestWhy: clip(r.Test.Why),
		Counts: r.Claim.Armed && r.Claim.Tested, ExpiryMS: r.Claim.Expiry.Milliseconds(), Trouble: clip(r.Trouble), Starved: clip(r.Starved),
	}
	if !st.Counts {
		st.Why = clip(r.Claim.Why)
	}
	if d.Path == watchdog.Fake {
		st.Test, st.Trouble = "", "it is a fake: it resets nothing"
	}
	return st
}

// addWatchdogs completes the nodes with what each says of its watchdog, or told last.
func (n *Node) addWatchdogs(s *state.State, nodes []api.NodeStatus, said map[string]testimony) {
	for i := range nodes {
		name := nodes[i].Name
		conf, _ := n.Config.Node(name)
		t, asked := said[name]
		switch {
		case asked && t.silent == "":
			nodes[i].Watchdog = t.Watchdog
		case conf.Watchdog != "" && conf.Watchdog != config.WatchdogOff:
			nodes[i].Watchdog = toldLast(s.Nodes[name], conf.Watchdog, t.silent)
		}
	}
}

// toldLast is what is known of the watchdog of a node that does not answer.
func toldLast(n *state.Node, device, silent string) *api.WatchdogStatus {
	st := &api.WatchdogStatus{Device: device, Note: "the node " + orElse(silent, "was not asked"), Why: "the node told of no watchdog"}
	if n != nil && n.Watchdog != nil {
		st.Note += ": this is what it told last"
		st.Counts, st.Why, st.ExpiryMS = n.Watchdog.Armed && n.Watchdog.Tested, n.Watchdog.Why, n.Watchdog.ExpiryMS
	}
	return st
}

// watchdogProblems tells loudly of watchdogs that protect nothing.
func (n *Node) watchdogProblems(nodes []api.NodeStatus, alarm, warn func(text, cure string)) {
	for _, node := range nodes {
		w := node.Watchdog
		if w == nil || w.Note != "" {
			continue
		}
		conf, _ := n.Config.Node(node.Name)
		switch {
		case w.Starved != "":
			alarm(fmt.Sprintf("the watchdog of %s is not fed, and resets the host within %s: %s", node.Name, time.Duration(w.TimeoutMS)*time.Millisecond, w.Starved), "")
		case w.Trouble != "":
			alarm(fmt.Sprintf("the watchdog of %s PROTECTS NOTHING: %s", node.Name, w.Trouble), "hamgr watchdog status there; docs/watchdog.md tells what to do")
		case conf.WatchdogLevel() > 0 && w.Test != watchdog.Passed:
			warn(fmt.Sprintf("the level \"watchdog\" of %s proves nothing: test %s: %s", node.Name, w.Test, w.TestWhy),
				fmt.Sprintf("hamgr node standby %s, then on that host hamgr watchdog test, which resets it", node.Name))
		case conf.WatchdogLevel() > 0 && w.Armed && !w.Counts && !node.Maintenance:
			warn(fmt.Sprintf("the level \"watchdog\" of %s proves nothing now: %s", node.Name, w.Why), "")
		}
	}
}
