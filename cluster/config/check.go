package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// check finds what is wrong beyond single keys.
func (r *reader) check(d *draft) {
	r.checkCluster(d)
	r.checkNodes(d)
	r.checkDevices(d)
	r.checkFencing(d)
	r.checkTwoNode(d)
	r.checkWatchdogs(d)
	r.checkGroups(d)
}

func (r *reader) checkCluster(d *draft) {
	t := d.cluster
	if t == nil {
		if !d.top.settled["cluster"] {
			r.problem(d.top, "cluster", "the table [cluster] is missing", `write [cluster] with name = "..." and key_file = "/etc/hamgr/cluster.key"`)
		}
		return
	}
	r.checkName(t, d.Cluster.Name)
	r.require(t, "key_file", d.Cluster.KeyFile, `add key_file = "/etc/hamgr/cluster.key"; hamgr init makes the file`)
	for _, p := range []struct{ key, path string }{{"key_file", d.Cluster.KeyFile}, {"data_dir", d.Cluster.DataDir}} {
		if t.has(p.key) && !t.settled[p.key] && !filepath.IsAbs(p.path) {
			r.problem(t, p.key, fmt.Sprintf("%q is not an absolute path", p.path), "write the path from / on")
		}
	}
}

func (r *reader) checkNodes(d *draft) {
	if len(d.Nodes) == 0 {
		if !d.top.settled["node"] {
			r.problem(d.top, "node", "there are no nodes", "write a [[node]] table for each")
		}
		return
	}
	r.checkNames(d.nodes, d.NodeNames())
	addresses := map[string]string{} // canonical address to where it was used first
	unsure := false
	for i, t := range d.nodes {
		r.checkAddresses(t, d.Nodes[i].Addresses, addresses)
		unsure = unsure || t.settled["role"]
	}
	if len(d.Members()) == 0 && !unsure {
		r.problem(d.nodes[0], "role", "there are only witnesses, and they run nothing", "remove the role of the nodes that shall run groups")
	}
}

func (r *reader) checkAddresses(t *table, list []string, used map[string]string) {
	if t.settled["addresses"] {
		return
	}
	if len(list) == 0 {
		r.problem(t, "addresses", "there is no address", `add addresses = ["10.0.0.11"], one per link`)
		return
	}
	for i, a := range list {
		line := t.at("addresses", i)
		canonical, msg, cure := checkAddress(a)
		if msg != "" {
			r.problemAt(t, line, "addresses", msg, cure)
			continue
		}
		here := fmt.Sprintf("%s (line %d)", t.label, line)
		if first, ok := used[canonical]; ok {
			r.problemAt(t, line, "addresses", fmt.Sprintf("%q is an address of %s too", a, first), "give each link of each node its own address")
			continue
		}
		used[canonical] = here
	}
}

// checkAddress accepts IP addresses, and returns the form in which two of them can be compared. Host
// names are refused: a cluster that needs a name server fails with it.
func checkAddress(a string) (canonical, msg, cure string) {
	if ip, err := netip.ParseAddr(a); err == nil {
		ip = ip.Unmap()
		if ip.IsUnspecified() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
			return "", fmt.Sprintf("%q is not the address of a host", a), "write the node's own address"
		}
		return ip.String(), "", ""
	}
	if host, _, ok := strings.Cut(a, "/"); ok {
		return "", fmt.Sprintf("%q is not an address", a), fmt.Sprintf("write %q, without the network's length", host)
	}
	if bare := strings.TrimSuffix(strings.TrimPrefix(a, "["), "]"); bare != a && strings.Contains(bare, ":") {
		if _, err := netip.ParseAddr(bare); err == nil {
			return "", fmt.Sprintf("%q is not an address", a), fmt.Sprintf("write %q, without brackets", bare)
		}
	}
	if i := strings.LastIndexByte(a, ':'); i > 0 && strings.Trim(a[i+1:], "0123456789") == "" {
		host := strings.Trim(a[:i], "[]")
		return "", fmt.Sprintf("%q has a port", a), fmt.Sprintf("write %q; the port is the same everywhere, and stands in [cluster]", host)
	}
	if isHostName(a) {
		return "", fmt.Sprintf("%q is a host name", a), "write the IP address: the cluster must not depend on a name server"
	}
	return "", fmt.Sprintf("%q is not an IP address", a), `write it like "10.0.0.11" or "fd00::11"`
}

// isHostName follows RFC 1123, section 2.1; a last label in digits would be a broken
// IPv4 address.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) == 0 || len(s) > 253 {
		return false
	}
	labels := strings.Split(strings.ToLower(s), ".")
	for _, l := range labels {
		if len(l) == 0 || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

// mayExist reports whether a node that is not there could be one whose table has a
// problem of its own.
func (d *draft) mayExist(node string) bool {
	if d.top.settled["node"] {
		return true
	}
	for i, t := range d.nodes {
		name := d.Nodes[i].Name
		if t.settled["name"] && (name == "" || validName(name) == name || validName(name) == node) {
			return true
		}
	}
	return false
}

// require reports a key that must be there and is not, or is empty.
func (r *reader) require(t *table, key, got, cure string) {
	switch {
	case got != "" || t.settled[key]:
	case t.has(key):
		r.problem(t, key, "is empty", cure)
	default:
		r.problem(t, key, "the key is missing", cure)
	}
}

// checkName checks the name of a table. Names become parts of file names, certificates
// and host names, hence the narrow alphabet.
func (r *reader) checkName(t *table, name string) bool {
	r.require(t, "name", name, `add name = "..."`)
	if t.settled["name"] {
		return false
	}
	if name == validName(name) {
		return true
	}
	cure := `use a to z, 0 to 9, ".", "_" and "-", beginning with a letter or digit, at most 63`
	if v := validName(name); v != "" {
		cure = fmt.Sprintf("write %q: a to z, 0 to 9, \".\", \"_\" and \"-\", beginning with a letter or digit, at most 63", v)
	}
	r.problem(t, "name", fmt.Sprintf("%q is not a valid name", name), cure)
	return false
}

const nameAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789._-"

// validName returns the name itself if it is valid, else the nearest one that is;
// empty if nothing is left of it.
func validName(name string) string {
	v := strings.Map(func(c rune) rune {
		if strings.ContainsRune(nameAlphabet, c) {
			return c
		}
		return '-'
	}, strings.ToLower(name))
	v = strings.TrimLeft(v, "._-")
	if v != name {
		v = strings.TrimRight(v, "._-")
	}
	return v[:min(len(v), 63)]
}

// checkNames checks the names of tables of one kind, which must differ.
func (r *reader) checkNames(tables []*table, names []string) {
	first := map[string]int{}
	for i, t := range tables {
		if !r.checkName(t, names[i]) {
			continue
		}
		line := t.at("name")
		if other, ok := first[names[i]]; ok {
			r.problem(t, "name", fmt.Sprintf("the name %q is taken by line %d", names[i], other), "give it another name")
			continue
		}
		first[names[i]] = line
	}
}
