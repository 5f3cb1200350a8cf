package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

func (r *reader) checkDevices(d *draft) {
	if d.top.settled["fence_device"] {
		return
	}
	r.checkNames(d.devices, deviceNames(d))
	for i, t := range d.devices {
		r.require(t, "agent", d.Devices[i].Agent, "add agent = \"...\"; known agents: "+strings.Join(r.kinds.Agents.Names(), ", "))
		r.checkPlugs(t, d.Devices[i], d)
	}
}

// checkPlugs checks a device's plugs against the nodes: a plug that belongs to nobody,
// or to two, fences nobody or the wrong one, and that is found out in the accident.
func (r *reader) checkPlugs(t *table, dev Device, d *draft) {
	if t.settled["plugs"] {
		return
	}
	if dev.Plugs != nil && len(dev.Plugs) == 0 {
		r.problem(t, "plugs", "is empty, so the device serves no node", "write { node = [\"plug\"] }, or remove it if the device serves one node")
		return
	}
	owner := map[string]string{}
	for _, name := range r.plugNodes(t, dev) {
		line := t.at("plugs", name)
		node, ok := d.Node(name)
		switch {
		case !ok && d.mayExist(name):
		case !ok:
			r.problemAt(t, line, "plugs", fmt.Sprintf("there is no node %q", name), meant(name, d.NodeNames(), "nodes"))
		case len(dev.Plugs[name]) == 0:
			r.problemAt(t, line, "plugs", fmt.Sprintf("the list of %q is empty", name), "write the plugs that feed the node, or remove it")
		case ok && len(node.Fencing) == 0 && node.Role == Member: // reported with the node
		case ok && !uses(node, dev.Name) && !fencingUnsure(d):
			r.problemAt(t, line, "plugs", fmt.Sprintf("has plugs of %q, whose fencing does not name the device", name),
				fmt.Sprintf("add %q to a level of the node's fencing, or remove the plugs", dev.Name))
		}
		for i, plug := range dev.Plugs[name] {
			line := t.at("plugs", name, i)
			same, err := spelling(dev, plug)
			switch first, taken := owner[same]; {
			case plug == "" || strings.TrimSpace(plug) != plug:
				r.problemAt(t, line, "plugs", fmt.Sprintf("the plug %q of %q is empty or has blanks around it", plug, name), "write the plug as the device names it")
			case err != nil:
				r.problemAt(t, line, "plugs", fmt.Sprintf("the plug %q of %q: %v", plug, name, err), "see hamgr agent describe "+dev.Agent)
			case taken && first == name:
				r.problemAt(t, line, "plugs", fmt.Sprintf("the plug %q of %q is there twice", plug, name), "remove one of them")
			case taken:
				r.problemAt(t, line, "plugs", fmt.Sprintf("the plug %q of %q is also that of %q: fencing one would cut the other", plug, name, first),
					"correct the plug of one of them")
			default:
				owner[same] = name
			}
		}
	}
}

// spelling gives the one spelling of a plug, as far as the agent knows it.
func spelling(dev Device, plug string) (string, error) {
	if p, ok := dev.Options.(agents.Plugged); ok {
		return p.Plug(plug)
	}
	return plug, nil
}

// plugNodes are the nodes of a plug map in the order of the file.
func (r *reader) plugNodes(t *table, dev Device) []string {
	return slices.SortedFunc(maps.Keys(dev.Plugs), func(a, b string) int {
		if la, lb := t.at("plugs", a), t.at("plugs", b); la != lb {
			return la - lb
		}
		return strings.Compare(a, b)
	})
}

// checkFencing checks the nodes' levels against the devices.
func (r *reader) checkFencing(d *draft) {
	usedBy := map[string][]int{} // device name to nodes that name it
	for i, t := range d.nodes {
		n := d.Nodes[i]
		if t.settled["fencing"] {
			continue
		}
		if len(n.Fencing) == 0 {
			if n.Role == Member && !t.settled["role"] {
				r.problemAt(t, t.line, "fencing", "the node has no fencing method: if it fails, nothing can be taken over",
					"add fencing = [[\"DEVICE\"]] and a [[fence_device]] of that name")
			}
			continue
		}
		for l, level := range n.Fencing {
			if len(level) == 0 {
				r.problemAt(t, t.at("fencing", l), "fencing", fmt.Sprintf("level %d is empty", l+1), "write the names of its devices, or remove it")
			}
			seen := map[string]bool{}
			for j, name := range level {
				line := t.at("fencing", l, j)
				if seen[name] {
					r.problemAt(t, line, "fencing", fmt.Sprintf("level %d names %q twice", l+1, name), "remove one of them")
					continue
				}
				seen[name] = true
				r.checkUse(t, line, n, name, d)
				if name != WatchdogDevice && !slices.Contains(usedBy[name], i) {
					usedBy[name] = append(usedBy[name], i)
				}
			}
		}
	}
	for i, t := range d.devices {
		r.checkUsers(t, d.Devices[i], usedBy, d)
	}
	if !d.top.settled["fence_device"] {
		r.checkSame(d, usedBy)
	}
}

// checkUse checks one device name in a node's fencing.
func (r *reader) checkUse(t *table, line int, n Node, name string, d *draft) {
	if d.top.settled["fence_device"] || name == WatchdogDevice {
		return
	}
	i := slices.IndexFunc(d.Devices, func(dev Device) bool { return dev.Name == name })
	if i < 0 {
		if !slices.ContainsFunc(d.devices, func(t *table) bool { return t.settled["name"] }) {
			r.problemAt(t, line, "fencing", fmt.Sprintf("there is no fence_device %q", name), meant(name, deviceNames(d), "devices"))
		}
		return
	}
	dev := d.Devices[i]
	if dev.Plugs == nil || d.devices[i].settled["plugs"] {
		return
	}
	if _, ok := dev.Plugs[n.Name]; !ok && n.Name != "" {
		// A misspelled node in the plugs is reported there.
		for p := range dev.Plugs {
			if _, known := d.Node(p); !known && nearest(p, d.NodeNames()) == n.Name {
				return
			}
		}
		r.problemAt(t, line, "fencing", fmt.Sprintf("%q has no plugs of this node (line %d)", name, d.devices[i].at("plugs")),
			fmt.Sprintf("add %s = [\"PLUG\"] to its plugs", n.Name))
	}
}

// checkUsers checks who uses a device: somebody, and one alone if it has no plugs.
func (r *reader) checkUsers(t *table, dev Device, usedBy map[string][]int, d *draft) {
	if dev.Name == "" || t.settled["name"] {
		return
	}
	users := usedBy[dev.Name]
	if len(users) == 0 {
		misspelled := false
		for name := range usedBy {
			misspelled = misspelled || !slices.Contains(deviceNames(d), name) && nearest(name, deviceNames(d)) == dev.Name
		}
		if !misspelled && !fencingUnsure(d) {
			r.problemAt(t, t.at("name"), "name", "no node's fencing names this device", fmt.Sprintf("add %q to the fencing of its node, or remove the device", dev.Name))
		}
		return
	}
	if dev.Plugs != nil || t.settled["plugs"] {
		return
	}
	for _, i := range users[1:] {
		nt := d.nodes[i]
		r.problemAt(nt, nt.at("fencing"), "fencing",
			fmt.Sprintf("%q has no plugs, so it serves one node, and that is %q already: fencing one would cut the other", dev.Name, d.Nodes[users[0]].Name),
			fmt.Sprintf("give each node its own device, or add plugs to %q (line %d)", dev.Name, t.line))
	}
}

// checkSame finds two devices that lead to one plug: a copied table with its address
// left as it was would have one node fenced in place of the other.
func (r *reader) checkSame(d *draft, usedBy map[string][]int) {
	type use struct{ table, node string }
	first := map[string]use{}
	for i, t := range d.devices {
		dev := d.Devices[i]
		if dev.Options == nil || t.settled["plugs"] {
			continue
		}
		// Secrets print as a constant, so two that differ by password alone are one.
		device := fmt.Sprintf("%s %+v", dev.Agent, dev.Options)
		plugs := dev.Plugs
		if plugs == nil {
			plugs = map[string][]string{}
			for _, n := range usedBy[dev.Name] {
				plugs[d.Nodes[n].Name] = []string{""}
			}
		}
		for _, node := range slices.Sorted(maps.Keys(plugs)) {
			for _, plug := range plugs[node] {
				same, err := spelling(dev, plug)
				if err != nil {
					continue // told with the plugs
				}
				id := fmt.Sprintf("%s %q", device, same)
				other, taken := first[id]
				if !taken {
					first[id] = use{t.label, node}
					continue
				}
				if other.table != t.label && other.node != node {
					r.problemAt(t, t.line, "", fmt.Sprintf("reaches the same plug as %s, but for %q instead of %q: fencing one would cut the other", other.table, node, other.node),
						"correct the address, or the plugs, of one of them")
				}
			}
		}
	}
}

// uses reports whether a node's fencing names a device.
func uses(n Node, device string) bool {
	return slices.ContainsFunc(n.Fencing, func(level []string) bool { return slices.Contains(level, device) })
}

// fencingUnsure reports whether some node's fencing could not be read, so that who
// uses what is open.
func fencingUnsure(d *draft) bool {
	return d.top.settled["node"] || slices.ContainsFunc(d.nodes, func(t *table) bool { return t.settled["fencing"] && t.has("fencing") || t.unread("fencing") })
}

// unread reports whether a key was settled without having been written: misspelled.
func (t *table) unread(key string) bool { return t.settled[key] && !t.has(key) }

func deviceNames(d *draft) []string {
	names := make([]string, 0, len(d.Devices))
	for _, dev := range d.Devices {
		names = append(names, dev.Name)
	}
	return names
}
