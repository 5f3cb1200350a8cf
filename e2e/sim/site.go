package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// site is a cluster's configuration as a test changes it.
type site struct {
	detection time.Duration
	cluster   string // further keys of [cluster]
	resource  string // further keys of every resource
	nodes     []siteNode
	groups    []siteGroup
}

// siteNode is a node of it.
type siteNode struct {
	name     string
	number   int
	links    []int // of the networks in which it has addresses
	role     string
	capacity int
	devices  int  // how many levels it has, each of its own device; all of them drive its one BMC
	outlet   bool // the next level is its outlet at a PDU
	dog      bool // the last one is its watchdog
}

// siteGroup is a group, and the disks that it writes to.
type siteGroup struct {
	name  string
	disks []string
	rules map[string]string // TOML values by key
}

func (s *site) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[cluster]\nname = \"sim\"\nkey_file = \"/etc/hamgr/cluster.key\"\ndetection_time = %q\n%s", s.detection, s.cluster)
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "\n[[node]]\nname = %q\naddresses = [", n.name)
		for _, link := range n.links {
			fmt.Fprintf(&b, "\"10.%d.0.%d\", ", link, n.number)
		}
		b.WriteString("]\n")
		if n.role != "" {
			fmt.Fprintf(&b, "role = %q\n", n.role)
			continue
		}
		if n.capacity > 0 {
			fmt.Fprintf(&b, "capacity = %d\n", n.capacity)
		}
		var levels []string
		for i := range n.devices {
			levels = append(levels, fmt.Sprintf("[\"%s-bmc%d\"]", n.name, i+1))
		}
		if n.outlet {
			levels = append(levels, fmt.Sprintf("[%q]", n.name+outletOf))
		}
		if n.dog {
			levels = append(levels, `["watchdog"]`)
			b.WriteString("watchdog = \"/dev/watchdog0\"\n")
		}
		fmt.Fprintf(&b, "fencing = [%s]\n", strings.Join(levels, ", "))
		if n.outlet {
			fmt.Fprintf(&b, "\n[[fence_device]]\nname = %q\nagent = \"fake\"\ndevice = %q\n", n.name+outletOf, n.name+outletOf)
		}
		for i := range n.devices {
			fmt.Fprintf(&b, "\n[[fence_device]]\nname = \"%s-bmc%d\"\nagent = \"fake\"\nmachine = true\ndevice = %q\n", n.name, i+1, n.name)
		}
	}
	for _, g := range s.groups {
		fmt.Fprintf(&b, "\n[[group]]\nname = %q\n", g.name)
		for _, key := range slices.Sorted(maps.Keys(g.rules)) {
			fmt.Fprintf(&b, "%s = %s\n", key, g.rules[key])
		}
		for _, disk := range g.disks {
			fmt.Fprintf(&b, "\n[[group.resource]]\nname = \"on-%s\"\nkind = \"fake\"\ndisk = %q\n%s", disk, disk, s.resource)
		}
	}
	return b.String()
}

// clone is a copy that may be changed.
func (s *site) clone() *site {
	c := *s
	c.nodes, c.groups = slices.Clone(s.nodes), slices.Clone(s.groups)
	for i := range c.nodes {
		c.nodes[i].links = slices.Clone(c.nodes[i].links)
	}
	for i := range c.groups {
		c.groups[i].disks, c.groups[i].rules = slices.Clone(c.groups[i].disks), maps.Clone(c.groups[i].rules)
	}
	return &c
}

func (s *site) names() []string {
	var names []string
	for _, n := range s.nodes {
		names = append(names, n.name)
	}
	return names
}

// group finds one by its name; nil if there is none.
func (s *site) group(name string) *siteGroup {
	if i := slices.IndexFunc(s.groups, func(g siteGroup) bool { return g.name == name }); i >= 0 {
		return &s.groups[i]
	}
	return nil
}
