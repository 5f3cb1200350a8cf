// Package node is the whole daemon of one host: it joins links, membership, the
// replicated log, the coordinator, the operator's API and the local groups. It is the
// only place where all parts meet; several nodes can run in one process, on a network of
// their own, which is how clusters are tested in virtual time.
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/membership"
	"github.com/hamgr/hamgr/cluster/scheduler"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

// Setup is everything that a node is made of.
type Setup struct {
	Config  *config.Config
	Text    string // from which Config was made; empty: the log carries no text
	Kinds   config.Kinds
	Self    string
	Boot    string // kernel boot ID
	Machine state.Machine
	Keys    link.KeyRing // the accepted cluster keys, the active one first
	KeyFile string       // where they come from, and what is followed from then on; empty: they stay
	File    string       // the configuration file on this host; empty for none
	DataDir string       // the replicated log, identity
	RunDir  string       // what must survive a restart of the daemon, but not of the kernel
	Socket  string       // the operator's socket; empty for none
	Version string
	Single  bool // form a cluster alone, if none exists
	Log     *slog.Logger

	// Fatal is called once when the node must not go on (its log hangs). It is
	// called after the node has cut itself off the network.
	Fatal func(error)

	// Again is called once when the daemon has to begin anew, with what is in Next: see Restart.
	Again func(Next)

	// Pace is what the daemon measured before it began anew; nil: nothing.
	Pace *Pace

	// For tests; all may be nil.
	Speaks  int // the newest version of the log's format that this daemon knows; 0: state.Version
	Network link.Network
	Stores  *consensus.Stores
	OnApply func(index uint64, before, after *state.State)
	Uptime  func() time.Duration // since the kernel's start
	// Watchdog opens the host's watchdog, whatever its path says.
	Watchdog func(context.Context) (watchdog.Device, error)
}

// Node is one running daemon.
type Node struct {
	Setup
	session    string // names this run of the daemon
	text       string // digest of Text
	digest     string // of the configuration file
	fencing    string // the same, of what feeds each node
	link       *link.Link
	membership *membership.Membership
	replicated *consensus.Log
	replica    *replica
	fencer     *stonith.Fencer
	coord      *coordinator.Coordinator
	trust      *trust
	touch      *touch
	peers      *peers
	groups     *groups
	probes     *probes
	ready      *readiness
	configs    *configs
	keys       *keys
	removed    []removed
	progress   *progress
	dog        *dog
	survivor   *survivor
	refused    atomic.Pointer[string] // why the disk takes nothing more of the log; nil while it does
	isolation  *isolation

	ctx       context.Context // ends with Halt
	cancel    context.CancelFunc
	assembled chan struct{} // closed when all parts are there
	once      sync.Once     // Again is called once
	wg        sync.WaitGroup
	hush      context.CancelFunc // ends the greeting of coordinators
	hushed    chan struct{}      // closed when it has ended
}

// Start brings a node up. It returns when all parts run; joining the cluster goes on in the
// background. After an error nothing is left running.
func Start(ctx context.Context, s Setup) (*Node, error) {
	if _, ok := s.Config.Node(s.Self); !ok {
		return nil, fmt.Errorf("%s: no [[node]] is named %q; this host's name must be one of %v, or --node name it",
			s.Config.Path, s.Self, s.Config.NodeNames())
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n := &Node{Setup: s, session: rand.Text(), text: textDigest(s.Text), digest: seed(s.Config).Digest, fencing: fencingDigest(s.Config), ctx: run, cancel: cancel, assembled: make(chan struct{})}
	n.Speaks, n.Pace = cmp.Or(n.Speaks, state.Version), cmp.Or(n.Pace, &Pace{})
	if err := n.start(ctx, run); err != nil {
		return nil, errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
	}
	return n, nil
}

func (n *Node) start(ctx, run context.Context) (err error) {
	d := n.Config.Cluster.DetectionTime
	n.replica = newReplica(n.Speaks, n.OnApply, n.broken)
	n.fencer = stonith.New(n.Log)
	if n.link, err = link.Start(n.linkConfig()); err != nil {
		return err
	}
	n.keys = newKeys(n.KeyFile, n.Keys, n.link.SetKeys, n.Log.With("node", n.Self))
	n.removed = n.recallRemoved()
	n.membership, err = membership.Start(membership.Config{
		Self: n.Self, Nodes: n.Config.NodeNames(), Link: n.link,
		DetectionTime: d, Meta: []byte(n.Boot), Log: n.Log,
	})
	if err != nil {
		return err
	}
	n.peers = newPeers(n)
	n.probes = newProbes(n)
	n.groups = newGroups(n)
	n.ready = newReadiness(n)
	n.configs = newConfigs()
	n.survivor = &survivor{n: n}
	n.isolation = &isolation{n: n}
	n.progress = newProgress(n)
	if err := n.startDog(ctx); err != nil {
		return err
	}
	n.replicated, err = consensus.Start(ctx, consensus.Config{
		Self: n.Self, Voters: n.Config.Voters(), Dir: n.DataDir, Single: n.Single,
		Link: n.link, FSM: n.replica, DetectionTime: d, Stores: n.Stores,
		Fatal: n.broken, Log: n.Log,
		Had:       n.seen(),
		Wrote:     n.Pace.write,
		Parked:    n.parked,
		Dismissed: func(reason string) { n.again(Next{Reason: reason}) },
		Scratch:   func() consensus.FSM { return newReplica(n.Speaks, nil, func(error) {}) },
	})
	if err != nil {
		return errors.Join(n.replica.refused(), err)
	}
	n.trust = newTrust(d, n.uptime, n.Pace, n.Log) // what came before is no silence of others
	n.touch = &touch{n: n}
	n.coord = coordinator.New(n.coordinatorConfig())
	close(n.assembled)
	n.replica.onChange(n.wake)

	n.spawn(func() { n.trust.watch(run) })
	n.spawn(func() { n.noteSeen(run) })
	n.spawn(func() { watchClock(run, n.uptime, time.Now, n.Log.With("node", n.Self)) })
	n.spawn(func() { n.touch.watch(run) })
	n.spawn(func() { n.coord.Run(run) })
	n.spawn(func() { n.listen(run) })
	n.spawn(func() { n.probes.run(run) })
	n.spawn(func() { n.ready.run(run) })
	n.spawn(func() { n.keys.run(run) })
	greeting, hush := context.WithCancel(run)
	n.hush, n.hushed = hush, make(chan struct{})
	n.spawn(func() {
		defer close(n.hushed)
		n.greet(greeting)
	})
	n.spawn(func() { n.groups.run(run) })
	n.spawn(func() { n.reconfigure(run) })
	n.spawn(func() { n.survivor.run(run) })
	n.spawn(func() { n.isolation.run(run) })
	return n.serve(run)
}

func (n *Node) spawn(f func()) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		f()
	}()
}

// Halt ends the daemon without a word to anybody, as a crash would, but leaves nothing of it
// running.
func (n *Node) Halt(ctx context.Context) error {
	n.cancel()
	n.wg.Wait()
	var errs []error
	if n.dog != nil { // it stays armed for as long as a restart takes: nobody drives anything now
		errs = append(errs, n.dog.end(ctx))
	}
	n.closeDevices(ctx)
	if n.replicated != nil {
		errs = append(errs, n.replicated.Stop(ctx))
	}
	if n.membership != nil {
		n.membership.Stop()
	}
	if n.link != nil {
		n.link.Stop()
	}
	if n.peers != nil {
		n.peers.close()
	}
	return errors.Join(errs...)
}

// closeDevices waits for a moment until the fence devices are let go: a session that is left behind on a BMC
// is missing later.
func (n *Node) closeDevices(ctx context.Context) {
	if n.fencer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := n.fencer.Wait(ctx); err != nil {
		n.Log.Warn("left behind at the end", "err", err)
	}
}

// again has the daemon begin anew, once, where it can.
func (n *Node) again(next Next) {
	if n.Again != nil {
		n.once.Do(func() { go n.Again(next) })
	}
}

// broken has fatal called, in the background, once there is a whole node to end.
func (n *Node) broken(err error) {
	go func() {
		select {
		case <-n.assembled:
			n.fatal(err)
		case <-n.ctx.Done():
		}
	}()
}

// fatal ends what this node is to the log. A disk that refused is done with: the node lets go of its groups in order, and
// stays to say why. Of one that hangs nobody knows: then the network is cut before anything else, since a thread that
// hangs in the kernel may keep the process, and its sockets, alive after exit.
func (n *Node) fatal(err error) {
	if errors.Is(err, consensus.ErrStoreFailed) && !errors.Is(err, consensus.ErrStoreHung) {
		n.Log.Error("the disk refuses the replicated log; this node lets go of its groups, and holds none until hamgr is restarted", "node", n.Self, "err", err)
		why := err.Error()
		n.refused.Store(&why)
		n.resign("the replicated log has failed on this node: " + why)
		return
	}
	n.Log.Error("the replicated log has failed; this node stops", "node", n.Self, "err", err)
	n.link.Stop()
	if n.Fatal != nil {
		n.Fatal(err)
	}
}

// wake tells all that act on the replicated state that it changed.
func (n *Node) wake() {
	n.coord.Wake()
	n.groups.wake()
	n.configs.wake()
}

// listen turns what membership and consensus report into wake-ups.
func (n *Node) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.replicated.Changes():
			n.peers.coordinatorChanged()
		case <-n.membership.Events():
		}
		n.wake()
	}
}

func (n *Node) linkConfig() link.Config {
	c := link.Config{
		Cluster: n.Config.Cluster.Name, Self: n.Self, Keys: n.Keys,
		DetectionTime: n.Config.Cluster.DetectionTime, Network: n.Network, Log: n.Log,
	}
	for _, name := range n.Config.NodeNames() {
		c.Nodes = append(c.Nodes, link.Node{Name: name, Addresses: n.Config.Endpoints(name)})
	}
	return c
}

func (n *Node) coordinatorConfig() coordinator.Config {
	return coordinator.Config{
		Self: n.Self, Boot: n.Boot,
		DetectionTime:  n.Config.Cluster.DetectionTime,
		FenceAction:    state.FenceAction(n.Config.Cluster.FenceAction),
		Seed:           n.seed(),
		Speaks:         n.Speaks,
		Voters:         n.voting,
		Forced:         n.forced,
		ForceDone:      func() error { return n.forget(forceFile) },
		Shot:           n.shot,
		ShotDone:       func() error { return n.forget(shotFile) },
		Replicated:     n.replicated,
		Line:           func() string { return n.replicated.Status().Line },
		Fencer:         n.fencer,
		State:          n.replica.State,
		Look:           n.look,
		Elsewhere:      elsewhere{n},
		Machine:        n.Machine,
		Policy:         policy(n.Config.Cluster),
		HealthInterval: n.Config.Cluster.HealthInterval,
		Fencing:        n.fencing,
		Unarmed:        n.Config.Unarmed,
		Text:           n.text,
		Outdated:       outdated,
		Watchdog:       n.watchdogExpiry,
		Levels:         func(node string) [][]stonith.Device { return levels(n.Config, node, n.Log) },
		Log:            n.Log,
	}
}

// policy is when the cluster holds back by itself.
func policy(c config.Cluster) scheduler.Policy {
	return scheduler.Policy{
		StormWindow:      c.StormWindow.Milliseconds(),
		QuarantineAfter:  c.QuarantineAfter,
		QuarantineWindow: c.QuarantineWindow.Milliseconds(),
		QuarantineTime:   c.QuarantineTime.Milliseconds(),
	}
}

// Coordinates reports whether this node acts as the coordinator.
func (n *Node) Coordinates() bool { return n.replicated.IsCoordinator() }
