package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// doubt finds what is legal in a valid file, but probably not what was wanted.
func (r *reader) doubt(d *draft) {
	r.doubtVoters(d)
	r.doubtLinks(d)
	r.doubtFencing(d)
	r.doubtWatchdogs(d)
	r.doubtFailback(d)
	if d.Cluster.DetectionTime < time.Second {
		r.warn(d.cluster, d.cluster.at("detection_time"), "detection_time",
			fmt.Sprintf("a healthy node that pauses for %v gets fenced; loaded hosts and virtual machines do pause that long", d.Cluster.DetectionTime),
			`write "1s" or more, unless the hosts are known to be faster`)
	}
}

// doubtLinks looks for members with fewer links than others. It is no error, because
// a link may be added node by node; a witness often has one alone.
func (r *reader) doubtLinks(d *draft) {
	most := 0
	for _, n := range d.Nodes {
		if n.Role == Member {
			most = max(most, len(n.Addresses))
		}
	}
	for i, n := range d.Nodes {
		if n.Role == Member && len(n.Addresses) < most {
			t := d.nodes[i]
			r.warn(t, t.at("addresses"), "addresses", fmt.Sprintf("has %d, where other members have %d: a cut of these links gets the node fenced", len(n.Addresses), most),
				"add the node's address on the other links")
		}
	}
}

// doubtFailback looks for groups whose way back, at any time of the day, interrupts others too.
func (r *reader) doubtFailback(d *draft) {
	for i, g := range d.Groups {
		if g.Failback != "always" || len(g.Prefer) == 0 {
			continue
		}
		var others []string
		for _, o := range d.Groups {
			if slices.Contains(o.After, g.Name) || slices.Contains(o.With, g.Name) {
				others = append(others, o.Name)
			}
		}
		if len(others) > 0 {
			t := d.groups[i]
			r.warn(t, t.at("failback"), "failback", fmt.Sprintf("each time a preferred node comes back, %s stops and starts again, and with it what depends on it: %s", g.Name, strings.Join(others, ", ")),
				`write a part of the day in which that may be, such as "22:00-05:30", or "never"`)
		}
	}
}

// doubtFencing looks for levels that cannot be proven, and for nodes whose power is known to nobody once they have lost it.
func (r *reader) doubtFencing(d *draft) {
	var alone []string // nodes with nothing but devices that share their power
	first := -1
	for i, n := range d.Nodes {
		feeds := n.WatchdogLevel() > 0 // it fires, or has no power either
		for l, level := range d.Levels(n.Name) {
			machines, outlets := bySight(level)
			feeds = feeds || len(outlets) > 0
			if len(machines) > 0 && len(outlets) > 0 {
				r.warn(d.nodes[i], d.nodes[i].at("fencing", l), "fencing",
					fmt.Sprintf("level %d holds %s, which is dead itself once %s has cut its power, and can then not say off", l+1, strings.Join(machines, ", "), strings.Join(outlets, ", ")),
					"put them in levels of their own, the BMC first")
			}
		}
		if n.Role == Member && len(n.Fencing) > 0 && !feeds {
			alone = append(alone, n.Name)
			if first < 0 {
				first = i
			}
		}
	}
	if first >= 0 {
		r.warn(d.nodes[first], d.nodes[first].at("fencing"), "fencing",
			fmt.Sprintf("the fence devices of %s share the power of their node: when that is lost altogether they do not answer, and nothing can be taken over before an operator confirms that the node is down", strings.Join(alone, ", ")),
			"add a level with the outlets of a PDU")
	}
}

// bySight parts devices by whether they see the machine itself or a feed.
func bySight(level []PlugSet) (machines, outlets []string) {
	for _, p := range level {
		if o, ok := p.Device.Options.(agents.Observer); ok && o.Sees() == agents.SeesMachine {
			machines = append(machines, p.Device.Name)
		} else {
			outlets = append(outlets, p.Device.Name)
		}
	}
	return machines, outlets
}
