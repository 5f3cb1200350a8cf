package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/config"
)

// errNotWitness refuses a configuration in which this host would have to do more than vote.
var errNotWitness = errors.New("a witness runs nothing")

// chooseWitness finds which node of a configuration this host is: the one that is named, else the only witness that has
// one of this host's addresses, else the only witness.
func chooseWitness(c *config.Config, named string, here []netip.Addr) (string, error) {
	if named != "" {
		return named, asWitness(c, named)
	}
	var all, mine []string
	for _, n := range c.Nodes {
		if n.Role != config.Witness {
			continue
		}
		all = append(all, n.Name)
		if slices.ContainsFunc(addresses(n), func(a netip.Addr) bool { return slices.Contains(here, a) }) {
			mine = append(mine, n.Name)
		}
	}
	switch {
	case len(mine) == 1:
		return mine[0], nil
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return "", fmt.Errorf("%s: %w, and no node of this file has role = \"witness\"; add one with an address of this host, on all nodes of the cluster", c.Path, errNotWitness)
	case len(mine) > 1:
		return "", fmt.Errorf("%s: this host has the addresses of %s: say with --node which of them it is", c.Path, strings.Join(mine, " and "))
	}
	return "", fmt.Errorf("%s: this host has the address of none of the witnesses %s: say with --node which of them it is", c.Path, strings.Join(all, " and "))
}

// asWitness refuses a node that is not there, or that would run groups.
func asWitness(c *config.Config, name string) error {
	switch n, ok := c.Node(name); {
	case !ok:
		return fmt.Errorf("%s: no [[node]] is named %q; the nodes are %s", c.Path, name, strings.Join(c.NodeNames(), ", "))
	case n.Role != config.Witness:
		return fmt.Errorf("%s: %w: node %s is a member there, so run it as hamgr run, or give it role = \"witness\"", c.Path, errNotWitness, name)
	}
	return nil
}

// addresses are the node's, in the form in which they compare.
func addresses(n config.Node) []netip.Addr {
	var all []netip.Addr
	for _, text := range n.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// listens are the addresses and port of a node, in the form in which they compare.
func listens(c *config.Config, node string) []netip.AddrPort {
	n, _ := c.Node(node)
	var all []netip.AddrPort
	for _, a := range addresses(n) {
		all = append(all, netip.AddrPortFrom(a, uint16(c.Cluster.Port)))
	}
	return all
}
