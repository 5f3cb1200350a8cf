package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
	"github.com/hamgr/hamgr/cluster/api"
)

// ClusterConfig says what cluster is built.
type ClusterConfig struct {
	Executable    string // of hamgr
	Parent        string // where its folder is made, on the disk to be tested; see DefaultParent
	DetectionTime time.Duration
	Prefer        []string // the group's preferred nodes, best first
}

// Cluster is three daemons as real processes, a BMC for each, and a group that writes to a ledger.
// It belongs to one goroutine; Events is for all.
type Cluster struct {
	layout
	executable string
	detection  time.Duration
	machines   map[string]*redfishsim.ProcessPower
	bmcs       []*redfishsim.BMC
	logs       map[string]*os.File // what the daemons write to, over all boots
	survivor   *exec.Cmd
	restarted  []*exec.Cmd // daemons, besides those that the machines started

	// Events follows the daemons' logs.
	Events *Events
}

const bmcUser = "fencer"

// StartCluster makes the files, the BMCs and the machines, and switches power on. Kill ends it.
func StartCluster(ctx context.Context, cfg ClusterConfig) (_ *Cluster, err error) {
	l, err := newLayout(cfg.Parent)
	if err != nil {
		return nil, err
	}
	c := &Cluster{layout: l, executable: cfg.Executable, detection: cfg.DetectionTime, machines: map[string]*redfishsim.ProcessPower{}, logs: map[string]*os.File{}}
	paths := map[string]string{}
	for _, n := range nodeNames {
		paths[n] = l.log(n)
	}
	c.Events = follow(paths)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Kill(), c.Remove())
		}
	}()
	for _, n := range nodeNames {
		if c.logs[n], err = os.OpenFile(l.log(n), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return nil, err
		}
	}
	access, err := c.startBMCs()
	if err != nil {
		return nil, err
	}
	if err := c.writeFiles(ctx, cfg, access); err != nil {
		return nil, err
	}
	for _, n := range nodeNames {
		if err := c.machines[n].On(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
	}
	return c, nil
}

func (c *Cluster) startBMCs() ([]bmcAccess, error) {
	password := rand.Text()
	if err := os.WriteFile(c.bmcPassword(), []byte(password), 0o600); err != nil {
		return nil, err
	}
	var access []bmcAccess
	for _, n := range nodeNames {
		m := redfishsim.NewProcessPower(func(boot string) *exec.Cmd { return c.daemon(n, boot) })
		c.machines[n] = m
		bmc, err := redfishsim.Start(redfishsim.Config{Address: c.bmcAddress(n) + ":0", Username: bmcUser, Password: password, Power: m})
		if err != nil {
			return nil, fmt.Errorf("BMC of %s: %w", n, err)
		}
		c.bmcs = append(c.bmcs, bmc)
		if err := os.WriteFile(c.bmcCA(n), bmc.CAPEM(), 0o600); err != nil {
			return nil, err
		}
		access = append(access, bmcAccess{node: n, url: bmc.URL(), username: bmcUser, system: bmc.SystemURI("1")})
	}
	return access, nil
}

func (c *Cluster) writeFiles(ctx context.Context, cfg ClusterConfig, access []bmcAccess) error {
	if err := os.Mkdir(c.guard(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(c.config(), []byte(c.toml(cfg.Executable, cfg.DetectionTime, cfg.Prefer, access)), 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, cfg.Executable, "init", "--key-file", c.key()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("hamgr init: %w: %s", err, strings.TrimSpace(string(out)))
	}
	key, err := os.ReadFile(c.key())
	if err != nil {
		return err
	}
	for _, n := range nodeNames { // each host has a copy
		if err := os.WriteFile(c.keyOf(n), key, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Placement is who does what in a cluster that is whole.
type Placement struct {
	Coordinator string
	Holder      string // of the group
	Token       uint64
	Boot        string // the holder's
	Proof       string // of the newest fencing, in words; empty if there was none
}

// readyEvery is how often the nodes are asked.
const readyEvery = 20 * time.Millisecond

// Ready waits until all nodes see all nodes alive and agree on the coordinator, the group
// runs, and its newest holder has written.
func (c *Cluster) Ready(ctx context.Context, within time.Duration) (Placement, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("the cluster was not ready within %s", within))
	defer cancel()
	for n := 0; ; n++ {
		at, why := c.placement(ctx)
		if why == "" {
			return at, nil
		}
		if n%25 == 24 { // it costs a look at every process of the host
			if err := c.daemonEnded(); err != nil {
				return Placement{}, err
			}
		}
		if pause(ctx, readyEvery) != nil {
			return Placement{}, fmt.Errorf("%w: %s", context.Cause(ctx), why)
		}
	}
}

// daemonEnded is an error if nothing runs on a machine that is on: there is nothing to wait for.
func (c *Cluster) daemonEnded() error {
	for _, n := range nodeNames {
		m := c.machines[n]
		if pids, err := m.Processes(); err != nil || len(pids) == 0 && m.State() {
			return errors.Join(fmt.Errorf("the daemon of %s has ended", n), err)
		}
	}
	return nil
}

// placement asks every node, and says in words what is still missing.
func (c *Cluster) placement(ctx context.Context) (at Placement, why string) {
	for _, n := range nodeNames {
		s, err := c.Status(ctx, n)
		if err != nil {
			return at, fmt.Sprintf("%s: %v", n, err)
		}
		if !s.Quorate || s.Coordinator == "" {
			return at, n + " sees no quorum: " + s.Waiting + s.Note
		}
		if at.Coordinator != "" && at.Coordinator != s.Coordinator {
			return at, "the nodes name different coordinators"
		}
		at.Coordinator = s.Coordinator
		for _, other := range s.Nodes {
			if other.State != api.NodeAlive || other.Unclean {
				return at, fmt.Sprintf("%s sees %s as %s %s", n, other.Name, other.State, other.UncleanReason)
			}
			if other.Boot != c.Boot(other.Name) {
				return at, fmt.Sprintf("%s knows %s in boot %q", n, other.Name, short(other.Boot))
			}
		}
		if len(s.Groups) != 1 || s.Groups[0].State != api.GroupRunning {
			return at, fmt.Sprintf("the group does not run, says %s: %+v", n, s.Groups)
		}
		if at.Token != 0 && at.Token != s.Groups[0].Token {
			return at, "the nodes know different tokens"
		}
		at.Holder, at.Token = s.Groups[0].Node, s.Groups[0].Token
		for i := len(s.Operations) - 1; i >= 0; i-- { // newest first, and it shall win
			if s.Operations[i].Proof != "" {
				at.Proof = s.Operations[i].Proof
			}
		}
	}
	at.Boot = c.Boot(at.Holder)
	return at, ""
}

// Status asks one node's daemon.
func (c *Cluster) Status(ctx context.Context, node string) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := api.NewClient(api.DialUnix(c.socket(node)))
	defer client.Close()
	return client.Status(ctx)
}

// Boot is the node's boot as its machine knows it.
func (c *Cluster) Boot(node string) string { return c.machines[node].Boot() }

// Strike sends the signal to every process of the node at once, and returns them.
func (c *Cluster) Strike(ctx context.Context, node string, sig syscall.Signal) (processes, error) {
	return strike(ctx, c.machines[node], sig)
}

// Move is what an operator at one of the nodes does who moves the group.
func (c *Cluster) Move(ctx context.Context, at, to string) error {
	client := api.NewClient(api.DialUnix(c.socket(at)))
	defer client.Close()
	_, err := client.Change(ctx, api.ChangeRequest{Verb: api.ChangeMove, Group: groupName, Node: to, By: "the demo"})
	return err
}

// PowerOn is what an operator does who presses the button.
func (c *Cluster) PowerOn(ctx context.Context, node string) error { return c.machines[node].On(ctx) }

// StartSurvivor starts a second writer under the holder's token, which no BMC of the demo can kill, and waits
// until it has written. Kill ends it.
func (c *Cluster) StartSurvivor(ctx context.Context, at Placement) error {
	c.survivor = survivor(c.layout, c.executable, at)
	if err := c.survivor.Start(); err != nil {
		return fmt.Errorf("surviving writer: %w", err)
	}
	return c.awaitEntry(ctx, c.ledger(), "the surviving writer's first write", func(e Entry) bool {
		return e.PID == c.survivor.Process.Pid
	})
}

// AwaitRefusal waits until the guard has refused a write.
func (c *Cluster) AwaitRefusal(ctx context.Context) error {
	return c.awaitEntry(ctx, c.refused(), "a refused write", func(Entry) bool { return true })
}

// awaitEntry looks for a line in a file that grows, whose last line may be incomplete.
func (c *Cluster) awaitEntry(ctx context.Context, path, what string, match func(Entry) bool) error {
	ctx, cancel := context.WithTimeout(ctx, within(c.detection))
	defer cancel()
	for {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if e, err := ParseEntry(strings.TrimSuffix(line, "\n")); err == nil && match(e) {
				return nil
			}
		}
		if pause(ctx, readyEvery) != nil {
			return fmt.Errorf("%s: %w", what, errNotSeen)
		}
	}
}

// Ledger is everything that was written so far, up to the last whole line.
func (c *Cluster) Ledger() ([]Entry, error) {
	text, err := os.ReadFile(c.ledger())
	if err != nil {
		return nil, err
	}
	return parseLedger(string(text[:bytes.LastIndexByte(text, '\n')+1]))
}

// Kill ends every process and BMC of the cluster. The files stay. It works without a context,
// because it is what remains to be done when everything else was called off.
func (c *Cluster) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var errs []error
	// No BMC may switch power on again behind us.
	for _, bmc := range c.bmcs {
		bmc.Stop()
	}
	if c.survivor != nil && c.survivor.Process != nil {
		_ = c.survivor.Process.Kill()
		_ = c.survivor.Wait()
	}
	for _, m := range c.machines {
		errs = append(errs, m.Off(ctx))
	}
	for _, cmd := range c.restarted {
		_ = cmd.Wait() // it was killed with its machine
	}
	for _, log := range c.logs {
		errs = append(errs, log.Close())
	}
	c.Events.Close()
	return errors.Join(errs...)
}

// Remove deletes the cluster's folder.
func (c *Cluster) Remove() error { return os.RemoveAll(c.dir) }
