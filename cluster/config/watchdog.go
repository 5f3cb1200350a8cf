package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// What a node's watchdog may be beside the path of a device.
const (
	WatchdogOff  = "off"
	WatchdogFake = "fake" // for development: it resets nothing
)

// WatchdogDevice is the name in a node's fencing that stands for its own watchdog, and for no fence_device: the node counts as
// down once its armed and tested watchdog must have reset it.
const WatchdogDevice = "watchdog"

// HasWatchdog tells whether the node has a watchdog that can reset it.
func (n Node) HasWatchdog() bool {
	return n.Watchdog != "" && n.Watchdog != WatchdogOff && n.Watchdog != WatchdogFake
}

// WatchdogLevel is the level of the node's fencing, from 1, at which its watchdog is waited for; 0 if there is none.
// Config.Levels does not have it: it is always the last.
func (n Node) WatchdogLevel() int {
	return 1 + slices.IndexFunc(n.Fencing, func(level []string) bool { return slices.Contains(level, WatchdogDevice) })
}

// checkWatchdogs checks the nodes' watchdogs, and where they stand as a fencing level.
func (r *reader) checkWatchdogs(d *draft) {
	for i, t := range d.nodes {
		n := d.Nodes[i]
		if !t.settled["watchdog"] {
			r.checkWatchdog(t, n)
		}
		if !t.settled["fencing"] {
			for l, level := range n.Fencing {
				if j := slices.Index(level, WatchdogDevice); j >= 0 {
					r.checkWatchdogLevel(t, t.at("fencing", l, j), n, l, d)
				}
			}
		}
	}
	for i, t := range d.devices {
		if d.Devices[i].Name == WatchdogDevice && !t.settled["name"] {
			r.problem(t, "name", `"watchdog" stands for a node's own watchdog`, "give the device another name")
		}
	}
}

func (r *reader) checkWatchdog(t *table, n Node) {
	switch {
	case n.Watchdog != WatchdogOff && n.Watchdog != WatchdogFake && (!filepath.IsAbs(n.Watchdog) || filepath.Clean(n.Watchdog) != n.Watchdog):
		r.problem(t, "watchdog", fmt.Sprintf("%q is not the path of a device", n.Watchdog), `write it like "/dev/watchdog0", or "off"`)
	case n.Watchdog != WatchdogOff && n.Role == Witness && !t.settled["role"]:
		r.problem(t, "watchdog", "a witness holds nothing, and needs no watchdog", "remove it")
	}
}

func (r *reader) checkWatchdogLevel(t *table, line int, n Node, level int, d *draft) {
	switch {
	case len(n.Fencing[level]) > 1:
		r.problemAt(t, line, "fencing", `"watchdog" stands beside other devices`, "give it a level of its own, the last one")
	case level < len(n.Fencing)-1:
		r.problemAt(t, line, "fencing", `"watchdog" is not in the last level: to wait for it takes longest, and proves least`, "put it last")
	case n.Watchdog == WatchdogFake:
		r.problemAt(t, line, "fencing", `"watchdog" is a level, and the node's watchdog is a fake, which resets nothing`, `write watchdog = "/dev/watchdog0" for the node, or remove the level`)
	case !n.HasWatchdog() && !t.settled["watchdog"]:
		r.problemAt(t, line, "fencing", `"watchdog" is a level, and the node has none`, `add watchdog = "/dev/watchdog0" to the node, or remove the level`)
	case d.Cluster.TwoNode:
		r.problemAt(t, line, "fencing", `"watchdog" is a level, and of two nodes the one that is left must see for itself that the other is off (two_node)`,
			"remove the level; or remove two_node, and add a witness")
	case d.Cluster.OnQuorumLoss == "freeze":
		r.problemAt(t, line, "fencing", `"watchdog" is a level, and a node that hears nobody keeps what it holds (on_quorum_loss = "freeze"): its silence proves nothing`,
			`remove the level, or write on_quorum_loss = "stop"`)
	}
}

// doubtWatchdogs looks for nodes of which nothing but a clock can tell that they are down, and for fakes.
func (r *reader) doubtWatchdogs(d *draft) {
	var fakes []string
	first := -1
	for i, n := range d.Nodes {
		if n.WatchdogLevel() == 1 {
			r.warn(d.nodes[i], d.nodes[i].at("fencing"), "fencing",
				"nothing but its watchdog fences the node: each failover waits for its whole time, and two nodes write if it does not fire"+onIt(d, n.Name),
				"add a level with the BMC, or the outlets of a PDU, before it")
		}
		if n.Watchdog == WatchdogFake {
			fakes = append(fakes, n.Name)
			if first < 0 {
				first = i
			}
		}
	}
	if first >= 0 {
		t := d.nodes[first]
		r.warn(t, t.at("watchdog"), "watchdog", fmt.Sprintf("the watchdog of %s is a fake: it resets nothing and protects nothing", strings.Join(fakes, ", ")), `write "/dev/watchdog0", or "off"`)
	}
}

// onIt names the groups that may run on a node.
func onIt(d *draft, node string) string {
	var groups []string
	for _, g := range d.Groups {
		if len(g.Allow) == 0 || slices.Contains(g.Allow, node) {
			groups = append(groups, g.Name)
		}
	}
	if len(groups) == 0 {
		return ""
	}
	return "; groups that may run there: " + strings.Join(groups, ", ")
}
