package config

import (
	"fmt"
	"slices"
	"strings"
)

// fencing judges what changes for the nodes that may have to be fenced with what they hold. The way to change a node's only
// device is to add the new one as a level, to try it, and then to remove the old one.
func (j *judge) fencing() {
	for _, p := range j.staying() {
		key, f := keyOf(OfNode, p.name, "fencing"), j.facts.Nodes[p.name]
		before, after := j.old.Levels(p.name), j.new.Levels(p.name)
		figures := fmt.Sprintf("%s -> %s", levelNames(p.old.Fencing), levelNames(p.new.Fencing))
		open := f.Unclean != "" || f.Op != 0
		why := strings.Join(j.holds(p.name), ", ")
		switch {
		case f.Op != 0:
			why = fmt.Sprintf("fencing operation %d against it is open", f.Op)
		case f.Unclean != "":
			why = "it needs fencing (" + f.Unclean + ")"
		case why != "":
			why = "it may hold " + why
		default:
			continue
		}
		if len(before) > 0 && !slices.ContainsFunc(after, func(l []PlugSet) bool {
			return slices.ContainsFunc(before, func(o []PlugSet) bool { return covers(l, o) })
		}) {
			j.refuse(key, fmt.Sprintf("%s: none of its levels stays, and %s", figures, why), "add the new level beside an old one, try it with hamgr fence test "+p.name+", and remove the old one then")
			continue
		}
		for i, level := range after {
			if of := less(level, before); open && of >= 0 {
				j.refuse(key, fmt.Sprintf("%s: level %d would prove it off by less than level %d did (%s instead of %s), and %s", figures, i+1, of+1, describe(level), describe(before[of]), why), "change that when it is done")
			}
		}
	}
	j.devices()
}

// watchdogs refuses to begin to count on the watchdog of a node that may be gone already, and to count with other times
// than those with which it was armed: how long its silence must last is what proves it off.
func (j *judge) watchdogs() {
	for _, p := range j.staying() {
		f := j.facts.Nodes[p.name]
		if p.new.WatchdogLevel() == 0 || f.Answers && f.Unclean == "" && f.Op == 0 {
			continue
		}
		old, new := j.old.Cluster, j.new.Cluster
		cure := fmt.Sprintf("wait until %s is back or proven off", p.name)
		switch {
		case !f.Up && f.Unclean == "" && f.Op == 0 && len(j.holds(p.name)) == 0: // it is down, and that is proven
		case p.old.WatchdogLevel() == 0, p.old.Watchdog != p.new.Watchdog:
			j.refuse(keyOf(OfNode, p.name, "fencing"), fmt.Sprintf("%s -> %s: its watchdog (%s -> %s) would be waited for, and nobody knows whether it is armed", levelNames(p.old.Fencing), levelNames(p.new.Fencing), p.old.Watchdog, p.new.Watchdog), cure)
		case old.DetectionTime != new.DetectionTime, old.OnQuorumLoss != new.OnQuorumLoss:
			j.refuse(keyOf(OfNode, p.name, "fencing"), fmt.Sprintf("its watchdog was armed by detection_time %s and on_quorum_loss %s, and would be waited for by %s and %s", short(old.DetectionTime), old.OnQuorumLoss, short(new.DetectionTime), new.OnQuorumLoss), cure)
		}
	}
}

// devices warns of those that are about to be used and were never tried.
func (j *judge) devices() {
	last := ""
	for _, c := range Diff(j.old, j.new) {
		untried := c.Kind == Added || c.Kind == Changed && c.Key != "timeout" && c.Key != "settle" && !(strings.HasPrefix(c.Key, "plugs.") && c.New == "")
		if c.What == OfDevice && untried && c.Name != last {
			last = c.Name
			j.warn(c.Table(), "it was not tried yet as it is to be", "hamgr fence test, once it is applied")
		}
	}
}

// covers reports whether a level asks everything that another one asked, by the names of devices and plugs.
func covers(level, other []PlugSet) bool {
	for _, o := range other {
		i := slices.IndexFunc(level, func(p PlugSet) bool { return p.Device.Name == o.Device.Name })
		if i < 0 || slices.ContainsFunc(o.Plugs, func(plug string) bool { return !slices.Contains(level[i].Plugs, plug) }) {
			return false
		}
	}
	return true
}

// less finds the old level of which this one leaves something out: it shares a device with it, does not ask all that it
// asked, and is no other old level as it was. -1: there is none.
func less(level []PlugSet, before [][]PlugSet) int {
	if slices.ContainsFunc(before, func(o []PlugSet) bool { return covers(level, o) }) {
		return -1
	}
	return slices.IndexFunc(before, func(o []PlugSet) bool {
		return slices.ContainsFunc(o, func(p PlugSet) bool {
			return slices.ContainsFunc(level, func(l PlugSet) bool { return l.Device.Name == p.Device.Name })
		})
	})
}

func levelNames(levels [][]string) string {
	var all []string
	for _, l := range levels {
		all = append(all, quoteList(l))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// describe names the devices of a level, with their plugs.
func describe(level []PlugSet) string {
	var all []string
	for _, p := range level {
		if plugs := strings.Join(p.Plugs, ", "); plugs != "" {
			all = append(all, fmt.Sprintf("%s (%s)", p.Device.Name, plugs))
		} else {
			all = append(all, p.Device.Name)
		}
	}
	return strings.Join(all, " and ")
}
