// Package sim runs whole clusters in virtual time: real daemons (package node) on
// hosts, a network, BMCs and shared storage that are simulated. It must be used
// inside a testing/synctest bubble.
//
// Three judges watch every step. The storage (resources/fake) sees who may write at
// each instant; the invariants of package state are checked over every entry that any
// node applies; and the nodes must agree on the state after each entry.
package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
	bmc "github.com/hamgr/hamgr/agents/fake"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/link/linktest"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/resources"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// Options shape a cluster.
type Options struct {
	Nodes     []string          // members; default alpha, beta, gamma
	Groups    []string          // default db
	Prefer    []string          // of every group
	Detection time.Duration     // default 3s
	BootTime  time.Duration     // from power on to the daemon's start; default 10s
	Resource  string            // further TOML keys of every resource
	Keys      map[string]string // further TOML keys of a group
	Cluster   string            // further TOML keys of [cluster]; default: neither storm brake nor quarantine
	Text      bool              // the log carries the configuration, as the hosts' files said when the cluster was made
	Spares    []string          // hosts that are there, and not in the configuration
	Site      *site             // what the file says, instead of Groups, Prefer, Keys and Resource
	Witness   witness           // who looks on; it must be quick
	Seed      uint64
}

// witness sees what the cluster goes through.
type witness interface {
	entry(before, after *state.State) // each one of the log, once
	line(log []byte)                  // of the hosts' logs
}

// Cluster is a simulated cluster.
type Cluster struct {
	Options
	Net     *linktest.Network
	Storage *storage.World
	BMC     map[string]*bmc.Device

	t     testing.TB
	dir   string
	key   link.Key
	hosts map[string]*Host
	wg    sync.WaitGroup
	logs  bytes.Buffer

	mu       sync.Mutex
	errs     []error
	file     string           // what every host's file says, with Options.Text
	digests  map[place]string // of the state after each entry
	newest   *state.State
	timeline []string
	triggers []*trigger
	slow     map[string]time.Duration
	quick    map[string]chan struct{}       // closed when the host's pace changes
	edits    map[string]func(string) string // of a host's file, when its daemon starts next
	blind    map[string]bool                // "host node": the host does not reach the node's device
	dark     map[string]bool                // nodes whose BMC has no power either
}

// place is an entry of the log. A forced quorum may have another one at the same index.
type place struct {
	forced int
	index  uint64
}

// trigger does something once, when a host applies a certain step.
type trigger struct {
	host  string
	at    func(before, after *state.State) bool
	do    func()
	fired bool
}

// New makes a cluster whose hosts are off. The cluster is taken down, and judged, when the test
// ends.
func New(t testing.TB, o Options) *Cluster {
	if o.Site != nil {
		o.Text, o.Nodes, o.Groups, o.Detection = true, o.Site.names(), []string{}, o.Site.detection
		for _, g := range o.Site.groups {
			o.Groups = append(o.Groups, g.name)
		}
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{"alpha", "beta", "gamma"}
	}
	if o.Groups == nil {
		o.Groups = []string{"db"}
	}
	if o.Detection == 0 {
		o.Detection = 3 * time.Second
	}
	if o.BootTime == 0 {
		o.BootTime = 10 * time.Second
	}
	if o.Cluster == "" {
		o.Cluster = "storm_window = \"0s\"\nquarantine_window = \"0s\"\n"
	}
	c := &Cluster{
		Options: o, Net: linktest.New(o.Seed), Storage: storage.NewWorld(),
		BMC: map[string]*bmc.Device{}, t: t, hosts: map[string]*Host{},
		slow: map[string]time.Duration{}, quick: map[string]chan struct{}{}, blind: map[string]bool{}, dark: map[string]bool{}, digests: map[place]string{}, edits: map[string]func(string) string{}, newest: &state.State{},
	}
	var err error
	if c.key, err = link.GenerateKey(); err != nil {
		t.Fatal(err)
	}
	c.dir = t.TempDir() // before the cleanup below, so that it goes after the daemons
	c.Net.Delay(200*time.Microsecond, 600*time.Microsecond)
	for i, name := range slices.Concat(o.Nodes, o.Spares) {
		c.hosts[name] = newHost(c, name, i+1)
		c.BMC[name] = bmc.New()
		c.BMC[name].OnPower = func(_ string, s agents.PowerState) { c.hosts[name].power(s) }
		c.BMC[name].Behave(bmc.Behavior{Answer: 2 * time.Millisecond})
		if o.Site != nil {
			c.plugIn(name)
		}
	}
	switch {
	case o.Site != nil:
		c.file = o.Site.text()
	case o.Text:
		c.file = c.generate()
	}
	t.Cleanup(c.close)
	return c
}

// Start boots all hosts at once, and waits until all are in the cluster and every group runs.
func (c *Cluster) Start() {
	c.t.Helper()
	for _, name := range c.Nodes {
		c.Boot(name)
	}
	c.WaitRunning(20 * c.Detection)
	c.WaitFor(20*c.Detection, "all nodes are in", func() bool {
		s := c.State()
		return !slices.ContainsFunc(c.Nodes, func(n string) bool { return s.Nodes[n] == nil || !s.Nodes[n].Up })
	})
}

// generate gives the text of the cluster's file.
func (c *Cluster) generate() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[cluster]\nname = \"sim\"\nkey_file = \"/etc/hamgr/cluster.key\"\ndetection_time = \"%s\"\n%s", c.Detection, c.Cluster)
	for i, n := range c.Nodes {
		fmt.Fprintf(&b, "[[node]]\nname = %q\naddresses = [\"10.0.0.%d\", \"10.1.0.%d\"]\nfencing = [[\"%s-bmc\"]]\n", n, i+1, i+1, n)
		fmt.Fprintf(&b, "[[fence_device]]\nname = \"%s-bmc\"\nagent = \"fake\"\nmachine = true\ndevice = %q\n", n, n)
	}
	prefer := ""
	if len(c.Prefer) > 0 {
		prefer = fmt.Sprintf("prefer = [\"%s\"]\n", strings.Join(c.Prefer, `", "`))
	}
	for _, g := range c.Groups {
		fmt.Fprintf(&b, "[[group]]\nname = %q\n%s%s\n", g, prefer, c.Keys[g])
		for _, r := range []string{"data", "app"} {
			fmt.Fprintf(&b, "[[group.resource]]\nname = %q\nkind = \"fake\"\n%s\n", r, c.Resource)
		}
	}
	return b.String()
}

// text is what a host's file says.
func (c *Cluster) text(host string) string {
	text := c.file
	if text == "" {
		text = c.generate()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if edit := c.edits[host]; edit != nil {
		text = edit(text)
	}
	return text
}

// config is a text as the given host understands it.
func (c *Cluster) config(host, text string) *config.Config {
	cfg, err := config.Parse("sim.toml", []byte(text), c.kinds(host))
	if err != nil {
		c.t.Errorf("%v\n%s", err, text)
	}
	return cfg
}

// Edit changes a host's file; its daemon reads it when it starts next.
func (c *Cluster) Edit(host string, edit func(text string) string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edits[host] = edit
}

func (c *Cluster) kinds(host string) config.Kinds {
	return config.Kinds{
		Agents:    c.agents(host),
		Resources: resources.NewRegistry(storage.Kind(c.Storage, host)),
	}
}

// applied is called for every entry that any node applies.
func (c *Cluster) applied(host string, index uint64, before, after *state.State) {
	err := errors.Join(state.CheckStep(before, after), state.Check(after))
	b, e := json.Marshal(after)
	sum := sha256.Sum256(b)
	digest := string(sum[:8])
	c.mu.Lock()
	pause, changed := c.slow[host], c.quick[host]
	c.mu.Unlock()
	select {
	case <-time.After(pause):
	case <-changed:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = errors.Join(err, e); err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s applied entry %d: %w", host, index, err))
	}
	at := place{len(after.Forced), index}
	other, ok := c.digests[at]
	if ok && other != digest {
		c.errs = append(c.errs, fmt.Errorf("%s has another state than the others after entry %d: %s", host, index, b))
	}
	if !ok && c.Witness != nil {
		c.Witness.entry(before, after)
	}
	c.digests[at] = digest
	if forced := len(after.Forced) - len(c.newest.Forced); forced > 0 || forced == 0 && after.Applied > c.newest.Applied {
		c.newest = after
	}
	for _, tr := range c.triggers {
		if !tr.fired && (tr.host == host || tr.host == "") && tr.at(before, after) {
			tr.fired = true
			c.wg.Go(tr.do)
		}
	}
}

// judgeShot is called when a command to take a host's power is sent. Once the log says in which boot that host is, only an order
// against that very boot may do so (S8). What a device does later than it was told to is nobody's fault.
func (c *Cluster) judgeShot(executor, device string) {
	target := strings.TrimSuffix(device, outletOf)
	h := c.hosts[target]
	h.mu.Lock()
	boot, on := fmt.Sprintf("%s-boot%d", target, h.boots), h.on
	h.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newest.Nodes[target]
	if !on || n == nil || n.Boot != boot || c.newest.TwoNode {
		return // of two nodes, one may have no order yet
	}
	var newest uint64
	for id, o := range c.newest.Operations {
		if o.Node == target && o.Action != state.FenceOn {
			newest = max(newest, id)
		}
	}
	if o := c.newest.Operations[newest]; o == nil || o.Boot != boot {
		c.errs = append(c.errs, fmt.Errorf("S8: %s sends an off to %s, which is in boot %s by the log; the newest order against it is %+v", executor, target, boot, o))
	}
}

// slowApply makes the host pause before each entry takes effect there.
func (c *Cluster) slowApply(host string, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q := c.quick[host]; q != nil {
		close(q)
	}
	c.slow[host], c.quick[host] = pause, make(chan struct{})
}

// when does something once, as soon as the host, or with "" any of them, applies a certain step, and gives a function that tells
// whether that has happened.
func (c *Cluster) when(host string, at func(before, after *state.State) bool, do func()) (fired func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tr := &trigger{host: host, at: at, do: do}
	c.triggers = append(c.triggers, tr)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return tr.fired
	}
}

// State is the newest state that any node applied.
func (c *Cluster) State() *state.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// Owner is the node that holds the group by the newest state; empty if none does.
func (c *Cluster) Owner(group string) string {
	if g := c.State().Groups[group]; g != nil && g.Grant != nil {
		return g.Grant.Node
	}
	return ""
}

// Coordinator is the host that leads; empty if none does.
func (c *Cluster) Coordinator() string {
	for _, name := range c.Nodes {
		if n := c.hosts[name].daemon(); n != nil && !c.hosts[name].mute() && n.Coordinates() {
			return name
		}
	}
	return ""
}

// WaitRunning waits until every group runs completely on one host, by the storage's
// word and by the replicated state's.
func (c *Cluster) WaitRunning(limit time.Duration) {
	c.t.Helper()
	c.WaitFor(limit, "every group runs once", func() bool {
		for _, g := range c.Groups {
			if !c.Runs(g) {
				return false
			}
		}
		return true
	})
}

// Runs reports whether the group runs completely where it was granted.
func (c *Cluster) Runs(group string) bool {
	g := c.State().Groups[group]
	if g == nil || g.Grant == nil || g.Grant.Phase != state.Started {
		return false
	}
	n, all := 0, 2
	if c.Site != nil {
		all = len(c.Site.group(group).disks)
	}
	for _, h := range c.Storage.Active() {
		if h.Group == group && h.Host == g.Grant.Node && h.Token == g.Grant.Token && h.Started {
			n++
		}
	}
	return n == all
}

// WaitFor waits, in virtual time, until the condition holds.
func (c *Cluster) WaitFor(limit time.Duration, what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(limit); ; {
		if holds() {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("not within %s: %s\n%s", limit, what, c.Report())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Problems are the breaches that the judges saw so far.
func (c *Cluster) Problems() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := slices.Clone(c.errs)
	for _, v := range c.Storage.Violations() {
		errs = append(errs, fmt.Errorf("S1: %s", v))
	}
	return errors.Join(errs...)
}

// Report is what a person needs to understand a failure.
func (c *Cluster) Report() string {
	var b strings.Builder
	c.mu.Lock()
	fmt.Fprintf(&b, "faults:\n  %s\n", strings.Join(c.timeline, "\n  "))
	c.mu.Unlock()
	if s, err := json.MarshalIndent(c.State(), "", " "); err == nil {
		fmt.Fprintf(&b, "state: %s\n", s)
	}
	fmt.Fprintf(&b, "storage: %v\n", c.Storage.Active())
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		if d := c.hosts[name].daemon(); d != nil {
			if st, err := d.Operator().Status(context.Background()); err == nil {
				fmt.Fprintf(&b, "%s: quorate %v, coordinator %q, waits for %q, %v vote\n", name, st.Quorate, st.Coordinator, st.Waiting, d.Voting())
			}
		}
	}
	c.mu.Lock()
	lines := strings.Split(c.logs.String(), "\n")
	c.mu.Unlock()
	if len(lines) > 400 {
		lines = lines[len(lines)-400:]
	}
	fmt.Fprintf(&b, "log:\n%s\n", strings.Join(lines, "\n"))
	return b.String()
}

// logged counts the lines of the hosts' logs that say something.
func (c *Cluster) logged(message string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Count(c.logs.String(), message)
}

// note adds a line to the timeline of faults.
func (c *Cluster) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timeline = append(c.timeline, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// Write collects the hosts' logs.
func (c *Cluster) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Witness != nil {
		c.Witness.line(p)
	}
	return c.logs.Write(p)
}

func (c *Cluster) logger(host string) *slog.Logger {
	level := slog.LevelInfo
	return slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: level})).With("host", host)
}

func (c *Cluster) close() {
	if err := c.Problems(); err != nil {
		c.t.Errorf("%v\n%s", err, c.Report())
	}
	c.Net.HealAll()
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		for _, device := range c.devices(name) {
			c.BMC[device].Behave(bmc.Behavior{})
			c.BMC[device].Release()
		}
		c.Net.Thaw(name)
		c.Storage.Thaw(name)
		c.hosts[name].halt()
	}
	c.wg.Wait()
	// memberlist leaves probes in flight; a bubble must not end before they do.
	time.Sleep(time.Minute)
}
