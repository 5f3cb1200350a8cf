package config

import (
	"fmt"
	"slices"
	"strings"
)

// effects say what a changed key does when it is applied, in words for the operator. They end what every apply does:
// each daemon restarts its own parts, one node after the other, and leaves what runs alone. %s is the table's name.
var effects = map[What]map[string]string{
	OfCluster: {
		"name":              "another name is another cluster: these nodes would no longer know each other",
		"key_file":          "each node reads the key there when its daemon restarts its parts: the file must be on every node before",
		"detection_time":    "every time that follows from it changes with it (hamgr config check shows them); every daemon restarts its parts, one after the other; groups run on",
		"port":              "every daemon listens on the new port once it has restarted its parts; for a moment the nodes have no contact; groups run on",
		"data_dir":          "a daemon finds its log there before it reads any configuration: this does not move what is in the old one",
		"fence_action":      "counts from the next node that is fenced",
		"on_quorum_loss":    "counts from the next loss of quorum",
		"two_node":          "counts once both nodes have restarted their parts; groups run on",
		"health_interval":   "counts from the next reading of the fence devices",
		"rehearsal_age":     "only what status warns of changes",
		"storm_window":      "counts at once, for what was fenced before too",
		"quarantine_after":  "counts at once, for what was fenced before too",
		"quarantine_window": "counts at once, for what was fenced before too",
		"quarantine_time":   "counts from the next quarantine",
	},
	OfNode: {
		"addresses": "the others look for %s there once every daemon has restarted its parts, one after the other; groups run on",
		"role":      "%s votes as before",
		"capacity":  "counts from the next placement; no running group moves for it",
		"watchdog":  "counts once %s holds nothing: what is armed until then goes on",
		"fencing":   "counts from the next fencing of %s: try it with hamgr fence test %s",
	},
	OfDevice: {
		"agent":    "the device is driven by another agent from then on: try it with hamgr fence test",
		"plugs":    "counts from the next fencing: try it with hamgr fence test",
		"timeout":  "counts from the next attempt",
		"settle":   "counts from the next attempt",
		"identity": "counts from the next attempt",
	},
	OfGroup: {
		"prefer":         "counts from the next placement of %s; while it runs it stays, unless failback says otherwise",
		"allow":          "counts at once",
		"after":          "counts at once",
		"with":           "counts at once",
		"apart":          "counts at once",
		"weight":         "counts from the next placement; no running group moves for it",
		"failback":       "counts at once",
		"restarts":       "counts from the next failure",
		"restart_window": "counts from the next failure",
		"failure_expiry": "counts at once, for what failed before too",
		"resource":       "the order of its resources counts from the next start of %s; while it runs it stops in the order in which it was started",
	},
}

// effect says what becomes of a change when it is applied.
func (d *differ) effect(c Change) string {
	switch {
	case c.Kind == Changed && c.What == OfResource:
		return fmt.Sprintf("counts from the next start of %s; while it runs it stays as it was started", c.Group)
	case c.Kind == Changed:
		return d.keyEffect(c)
	case c.What == OfNode:
		return d.nodeEffect(c)
	case c.What == OfDevice && c.Kind == Added:
		return "it is read, and fences, from then on: try it with hamgr fence test"
	case c.What == OfDevice:
		return "it is not asked any more"
	case c.What == OfGroup && c.Kind == Added:
		return "it starts where its rules have it run"
	case c.What == OfGroup:
		return "it must not run then: hamgr group disable " + c.Name
	case c.Kind == Added:
		return fmt.Sprintf("it starts with the next start of %s", c.Group)
	default:
		return fmt.Sprintf("if %s runs it stays until the next stop of %s", c.Group, c.Group)
	}
}

func (d *differ) keyEffect(c Change) string {
	table, _, _ := strings.Cut(c.Key, ".")
	text, known := effects[c.What][table]
	switch {
	case !known && c.What == OfDevice:
		return "counts from the next attempt: try it with hamgr fence test"
	case !known:
		return "counts once every daemon has restarted its parts; groups run on"
	case c.What == OfNode && c.Key == "role" && c.New == written(Witness).shown:
		text += ", and runs no groups any more"
	case c.What == OfNode && c.Key == "role":
		text += ", and may run groups"
	}
	return strings.ReplaceAll(text, "%s", c.Name)
}

// nodeEffect tells who votes when. A node's name is what it is: one that changes is two changes.
func (d *differ) nodeEffect(c Change) string {
	if other := d.sameHost(c); other != "" {
		was, is := other, c.Name
		if c.Kind == Removed {
			was, is = c.Name, other
		}
		return fmt.Sprintf("a name cannot change: %s is told that it is removed, and %s joins as a new node, with an empty log", was, is)
	}
	if c.Kind == Added {
		return "it votes after it has caught up with the log"
	}
	return "it loses its vote, and is told so if it is up"
}

// sameHost names the node that comes, or goes, at an address of the one that goes, or comes.
func (d *differ) sameHost(c Change) string {
	mine, others, stay := d.new, d.old, d.new
	if c.Kind == Removed {
		mine, others, stay = d.old, d.new, d.old
	}
	n, _ := mine.Node(c.Name)
	for _, o := range others.Nodes {
		if _, both := stay.Node(o.Name); !both && meet(o.Addresses, n.Addresses) {
			return o.Name
		}
	}
	return ""
}

// meet reports whether two lists of addresses have one in common.
func meet(a, b []string) bool {
	others := canonical(b)
	return slices.ContainsFunc(canonical(a), func(x string) bool { return slices.Contains(others, x) })
}
