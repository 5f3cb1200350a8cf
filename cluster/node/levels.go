package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"

	"github.com/hamgr/hamgr/agents"
	agentkinds "github.com/hamgr/hamgr/agents/registry"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/state"
	resourcekinds "github.com/hamgr/hamgr/resources/registry"
	"github.com/hamgr/hamgr/stonith"
)

// Kinds are the fence agents and resource kinds that this daemon knows.
func Kinds() config.Kinds {
	return config.Kinds{Agents: agentkinds.Default(), Resources: resourcekinds.Default()}
}

// errUnarmed: what a device needs was not looked for on this host, and what stands in the Config instead must not reach it.
var errUnarmed = errors.New("this witness works no fence device: ask on a member, or run it as hamgr run with the secrets")

// levels gives a node's fence devices in the words of stonith.
func levels(c *config.Config, node string, log *slog.Logger) [][]stonith.Device {
	var all [][]stonith.Device
	for _, level := range c.Levels(node) {
		var devices []stonith.Device
		for _, p := range level {
			options := p.Device.Options
			devices = append(devices, stonith.Device{
				Name: p.Device.Name, Agent: p.Device.Agent, Plugs: p.Plugs,
				Timeout: p.Device.Timeout, Settle: p.Device.Settle,
				Sees: sees(options), AnyIdentity: p.Device.Identity == config.IdentityIgnore,
				Open: func() (agents.Agent, error) {
					if c.Unarmed {
						return nil, errUnarmed
					}
					return options.Open(log.With("device", p.Device.Name))
				},
			})
		}
		all = append(all, devices)
	}
	return all
}

// sees is whose power a device reads: that of a feed, if it does not say otherwise.
func sees(o agents.Options) agents.Sees {
	if observer, ok := o.(agents.Observer); ok {
		return observer.Sees()
	}
	return agents.SeesFeed
}

// seed gives the part of the configuration that is replicated. Its digest tells whether two
// files agree in it.
func seed(c *config.Config) state.Configure {
	s := state.Configure{Cluster: c.Cluster.Name}
	for _, n := range c.Nodes {
		s.Nodes = append(s.Nodes, state.ConfigNode{Name: n.Name, Role: state.Role(n.Role), Capacity: n.Capacity})
	}
	for _, g := range c.Groups {
		s.Groups = append(s.Groups, state.ConfigGroup{Name: g.Name, Rules: rules(g)})
	}
	sum := sha256.Sum256(mustMarshal(s))
	s.Digest = hex.EncodeToString(sum[:8])
	return s
}

// rules are what the cluster has to know of a group; its resources are the nodes' own business.
func rules(g config.Group) state.Rules {
	back, err := config.ParseFailback(g.Failback)
	if err != nil { // not of a file that was loaded: that was checked
		back = config.Failback{}
	}
	return state.Rules{
		Prefer: g.Prefer, Allow: g.Allow, After: g.After, With: g.With, Apart: g.Apart, Weight: g.Weight,
		Failback: state.Failback(back), FailureExpiry: g.FailureExpiry.Milliseconds(),
	}
}

// fencingDigest tells whether two files agree in what feeds each node: by which devices and outlets it is to be
// proven off. How a device is reached may differ from node to node.
func fencingDigest(c *config.Config) string {
	type feed struct {
		Device, Agent string
		Plugs         []string
	}
	all := map[string][][]feed{}
	for _, name := range c.NodeNames() {
		for _, level := range c.Levels(name) {
			var feeds []feed
			for _, p := range level {
				feeds = append(feeds, feed{p.Device.Name, p.Device.Agent, p.Plugs})
			}
			all[name] = append(all[name], feeds)
		}
	}
	sum := sha256.Sum256(mustMarshal(all))
	return hex.EncodeToString(sum[:8])
}
