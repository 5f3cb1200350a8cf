// Package config turns hamgr.toml into a typed, validated Config. Everything that is
// wrong with a file is found in one run, and each problem names file, line, key and
// cure, because a mistake in here is otherwise found out in the accident.
//
// It is not the replicated configuration, and it contacts nobody: whether a fence
// device answers is a question for others. Parse is pure; Load reads the file and the
// secrets that it points to.
package config

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/resources"
)

// Kinds are the fence agents and resource kinds that a file may use. Each checks its
// own keys.
type Kinds struct {
	Agents    agents.Registry
	Resources resources.Registry

	// Unarmed is for a host that works no fence device and runs no resource: what these need there (secrets, files,
	// programs) is not looked for.
	Unarmed bool
}

// Config is one valid hamgr.toml, the same on every node. It is not changed after
// Load or Parse returned it, and may be read by several goroutines.
type Config struct {
	Path    string
	Cluster Cluster
	Nodes   []Node   // in the order of the file, as are all lists here
	Devices []Device // fence devices
	Groups  []Group

	// Unarmed is that of the Kinds: devices and resources of this Config are good for looking at, and do not work.
	Unarmed bool

	// Warnings are what is legal but doubtful.
	Warnings []Problem

	// origins are where the secrets come from, by the key's full name.
	origins map[string]origin
}

// Cluster is the table [cluster].
type Cluster struct {
	Name          string        `toml:"name" doc:"name of the cluster; nodes of another name are not talked to"`
	KeyFile       string        `toml:"key_file" doc:"absolute path of the cluster key, made by hamgr init"`
	DetectionTime time.Duration `toml:"detection_time" range:"500ms..60s" doc:"the longest pause of a healthy node that must not get it fenced; all other times follow from it"`
	Port          int           `toml:"port" range:"1..65535" doc:"TCP and UDP port of every node"`
	DataDir       string        `toml:"data_dir" doc:"absolute path of the folder for the replicated log"`
	FenceAction   string        `toml:"fence_action" oneof:"reboot|off" doc:"what becomes of a fenced node: reboot powers it on again once it was proven off"`
	OnQuorumLoss  string        `toml:"on_quorum_loss" oneof:"stop|freeze" doc:"what a node without quorum does with its groups"`
	TwoNode       bool          `toml:"two_node" doc:"two members and no witness: the one that is left goes on alone, but only if it was in quorum in this boot and itself reads the other's power back as off"`

	HealthInterval   time.Duration `toml:"health_interval" range:"0s..24h" doc:"how often each fence device is read by each node that may have to use it, with a random tenth more or less; 0s: never"`
	RehearsalAge     time.Duration `toml:"rehearsal_age" range:"0s..87600h" doc:"status warns of a fence device that was not proven to cut its node's power for longer; 0s: it does not"`
	StormWindow      time.Duration `toml:"storm_window" range:"0s..24h" doc:"the cluster by itself shoots at most half of the members within this time; 0s: no such brake"`
	QuarantineAfter  int           `toml:"quarantine_after" range:"1..16" doc:"a node that the cluster fenced so often within quarantine_window gets no groups, and is left off while the majority can spare it"`
	QuarantineWindow time.Duration `toml:"quarantine_window" range:"0s..720h" doc:"see quarantine_after; 0s: no quarantine"`
	QuarantineTime   time.Duration `toml:"quarantine_time" range:"1s..24h" doc:"how long the first quarantine lasts; each further one lasts twice as long, up to a day"`
}

// What is done with a device's word for the machine that it powers.
const (
	IdentityCheck  = "check"
	IdentityIgnore = "ignore"
)

// Roles of a node.
const (
	Member  = "member"  // runs groups and votes
	Witness = "witness" // only votes
)

// Node is one table [[node]].
type Node struct {
	Name      string     `toml:"name" doc:"name of the node"`
	Addresses []string   `toml:"addresses" doc:"IP addresses without port, one per link"`
	Role      string     `toml:"role" oneof:"member|witness" doc:"a member runs groups and votes, a witness only votes"`
	Capacity  int        `toml:"capacity" range:"0..1000000" doc:"no group is placed on the node once the weights of its groups are together more than this; 0: no bound"`
	Fencing   [][]string `toml:"fencing" order:"free" doc:"levels of fence device names; levels are tried in order, all devices of a level must succeed; \"watchdog\" alone in the last one: wait until the node's own has reset it"`
	Watchdog  string     `toml:"watchdog" doc:"the device that resets the node if it holds something and hangs, such as /dev/watchdog0; off: none; fake: one that does nothing, for development. Its times follow from detection_time"`
}

// Device is one table [[fence_device]].
type Device struct {
	Name    string              `toml:"name" doc:"name of the fence device"`
	Agent   string              `toml:"agent" doc:"the agent that drives the device"`
	Plugs   map[string][]string `toml:"plugs" order:"free" doc:"node name to its plugs at the device; without it the device serves the one node whose fencing names it"`
	Timeout time.Duration       `toml:"timeout" range:"100ms..10m" doc:"bound of one attempt, from connecting to the last read-back"`
	Settle  time.Duration       `toml:"settle" range:"10ms..30s" doc:"how long off must last: the time between the two reads that prove it"`
	// Identity is IdentityCheck or IdentityIgnore.
	Identity string `toml:"identity" oneof:"check|ignore" doc:"check: refuse to shoot where the device says that it powers another machine than the node says it is; ignore: an exception, for a device that is known to tell nonsense"`
	Options  agents.Options
}

// Group is one table [[group]].
type Group struct {
	Name     string   `toml:"name" doc:"name of the group"`
	Prefer   []string `toml:"prefer" doc:"members that should run the group, best first; others follow"`
	Allow    []string `toml:"allow" order:"free" doc:"the only members that may run the group; without it all may"`
	After    []string `toml:"after" order:"free" doc:"groups that must run for this one to run, on whatever node: it starts after them and stops before them"`
	With     []string `toml:"with" order:"free" doc:"groups on whose node this one runs, and without which it does not"`
	Apart    []string `toml:"apart" order:"free" doc:"groups that never run on the same node as this one, whatever fails"`
	Weight   int      `toml:"weight" range:"0..1000000" doc:"what the group takes of a node's capacity; groups are spread by it too"`
	Failback string   `toml:"failback" doc:"when a running group goes back to a node that it prefers: never, always, or a part of each day as in 22:00-05:30, by the coordinator's local time"`

	Restarts      int           `toml:"restarts" range:"0..1000" doc:"how often within restart_window a failed resource is restarted in place; after that the group moves"`
	RestartWindow time.Duration `toml:"restart_window" range:"1s..720h" doc:"see restarts"`
	FailureExpiry time.Duration `toml:"failure_expiry" range:"0s..720h" doc:"after this time the group may run again on a node where it failed; 0s: not before an operator's hamgr group clear"`
	Resources     []Resource
}

// What becomes of a group of which a resource fails while it runs.
const (
	OnFailRestart = "restart"
	OnFailMove    = "move"
	OnFailStop    = "stop"
	OnFailIgnore  = "ignore"
	OnFailFence   = "fence"
)

// Resource is one table [[group.resource]].
type Resource struct {
	Name            string        `toml:"name" doc:"name of the resource, unique in its group"`
	Kind            string        `toml:"kind" doc:"the kind of the resource"`
	StartTimeout    time.Duration `toml:"start_timeout" range:"100ms..24h" doc:"a start that takes longer has failed"`
	StopTimeout     time.Duration `toml:"stop_timeout" range:"100ms..24h" doc:"a stop that takes longer gets the node fenced"`
	MonitorInterval time.Duration `toml:"monitor_interval" range:"100ms..1h" doc:"time between two monitors"`
	MonitorTimeout  time.Duration `toml:"monitor_timeout" range:"100ms..1h" doc:"a monitor that takes longer has failed"`
	OnFail          string        `toml:"on_fail" oneof:"restart|move|stop|ignore|fence" doc:"what becomes of the group when the resource fails while it runs; restart: as restarts says, then move; stop: it is stopped everywhere; ignore: it is only shown; fence: its node is fenced"`
	Options         resources.Options
}

// The defaults of every table.
var (
	defaultCluster = Cluster{
		DetectionTime: 3 * time.Second,
		Port:          7846,
		DataDir:       "/var/lib/hamgr",
		FenceAction:   "reboot",
		OnQuorumLoss:  "stop",

		HealthInterval:   5 * time.Minute,
		RehearsalAge:     90 * 24 * time.Hour,
		StormWindow:      time.Minute,
		QuarantineAfter:  3,
		QuarantineWindow: time.Hour,
		QuarantineTime:   10 * time.Minute,
	}
	defaultNode     = Node{Role: Member, Watchdog: WatchdogOff}
	defaultDevice   = Device{Timeout: 20 * time.Second, Settle: 100 * time.Millisecond, Identity: IdentityCheck}
	defaultGroup    = Group{Weight: 1, Failback: "never", Restarts: 1, RestartWindow: 10 * time.Minute, FailureExpiry: 10 * time.Minute}
	defaultResource = Resource{
		StartTimeout:    60 * time.Second,
		StopTimeout:     60 * time.Second,
		MonitorInterval: 10 * time.Second,
		MonitorTimeout:  20 * time.Second,
		OnFail:          OnFailRestart,
	}
)

// PlugSet is a fence device and one node's plugs at it.
type PlugSet struct {
	Device Device
	Plugs  []string // [""] where the device serves one machine
}

// Node returns the node of that name.
func (c *Config) Node(name string) (Node, bool) {
	i := slices.IndexFunc(c.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return c.Nodes[i], true
}

// Device returns the fence device of that name.
func (c *Config) Device(name string) (Device, bool) {
	i := slices.IndexFunc(c.Devices, func(d Device) bool { return d.Name == name })
	if i < 0 {
		return Device{}, false
	}
	return c.Devices[i], true
}

// Members are the names of the nodes that run groups.
func (c *Config) Members() []string {
	var names []string
	for _, n := range c.Nodes {
		if n.Role == Member {
			names = append(names, n.Name)
		}
	}
	return names
}

// Voters are the names of the nodes that vote: members and witnesses.
func (c *Config) Voters() []string { return c.NodeNames() }

// NodeNames are the names of all nodes.
func (c *Config) NodeNames() []string {
	names := make([]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		names = append(names, n.Name)
	}
	return names
}

// Endpoints are the node's "host:port", one per link; nil for an unknown node.
func (c *Config) Endpoints(node string) []string {
	n, _ := c.Node(node)
	var endpoints []string
	for _, a := range n.Addresses {
		endpoints = append(endpoints, net.JoinHostPort(a, strconv.Itoa(c.Cluster.Port)))
	}
	return endpoints
}

// Levels are the node's fencing levels in the order in which they are tried, each
// with its devices and the node's plugs at them. Node.WatchdogLevel is none of them.
func (c *Config) Levels(node string) [][]PlugSet {
	n, _ := c.Node(node)
	var levels [][]PlugSet
	for i, names := range n.Fencing {
		if i+1 == n.WatchdogLevel() {
			continue
		}
		var level []PlugSet
		for _, name := range names {
			d, _ := c.Device(name)
			plugs := []string{""}
			if d.Plugs != nil {
				plugs = d.Plugs[node]
			}
			level = append(level, PlugSet{Device: d, Plugs: plugs})
		}
		levels = append(levels, level)
	}
	return levels
}
