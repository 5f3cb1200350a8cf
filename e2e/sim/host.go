package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/node"
	"github.com/hamgr/hamgr/cluster/state"
)

// Host is one simulated machine: its kernel boots, its daemon, its disk.
type Host struct {
	c      *Cluster
	name   string
	net    link.Network
	stores *consensus.Stores // the disk: survives boots
	dog    *dog              // nil for none

	mu      sync.Mutex
	boots   int
	on      bool // the kernel runs
	booted  time.Time
	kept    string // the configuration that the cluster last had the daemon run with; on the disk
	closed  bool   // the cluster is being taken down
	pulled  int    // how many hold its plug in their hands: it does not boot
	frozen  bool
	cut     bool
	trouble trouble // of the disk
	speaks  int     // the newest version of the log's format that its daemon knows; 0: the newest there is
	process *process
	dying   *process    // what is left of the last boot's daemon
	goes    *departure  // under way; nil for none
	timer   *time.Timer // a boot that is under way

	turn chan struct{} // holds one while a daemon is being started
}

// process is one run of the daemon. Who takes it from its host ends it.
type process struct {
	*node.Node
	setup node.Setup
	fatal chan error     // why it must not go on
	again chan node.Next // what it is to begin anew with
	ended chan struct{}  // closed when nothing of it is left
}

// end ends the run as stop does. Where the disk hangs, something of it stays behind.
func (p *process) end(stop func(context.Context) error) error {
	defer close(p.ended)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return stop(ctx)
}

func newHost(c *Cluster, name string, number int) *Host {
	return &Host{
		c: c, name: name, stores: consensus.MemoryStores(), turn: make(chan struct{}, 1),
		net: c.Net.Host(name, fmt.Sprintf("10.0.0.%d", number), fmt.Sprintf("10.1.0.%d", number), fmt.Sprintf("10.2.0.%d", number)),
	}
}

// machineID is a host's system UUID.
func machineID(name string) string {
	sum := sha256.Sum256([]byte(name))
	x := hex.EncodeToString(sum[:16])
	return strings.Join([]string{x[:8], x[8:12], x[12:16], x[16:20], x[20:]}, "-")
}

// Operator is an operator at one host.
func (c *Cluster) Operator(host string) api.Backend { return c.hosts[host].daemon().Operator() }

func (h *Host) daemon() *node.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.process == nil {
		return nil
	}
	return h.process.Node
}

// take gives the running daemon to who ends it; nil if there is none.
func (h *Host) take() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.process
	h.process = nil
	return p
}

func (h *Host) mute() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen || h.cut
}

// still reports whether the host stands still.
func (h *Host) still() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.frozen
}

// Boot starts the kernel and the daemon of a host that is off.
func (c *Cluster) Boot(name string) {
	h := c.hosts[name]
	h.mu.Lock()
	if h.on || h.closed || h.pulled > 0 {
		h.mu.Unlock()
		return
	}
	h.on, h.booted = true, time.Now()
	h.boots++
	boots := h.boots
	h.mu.Unlock()
	c.note("boot %d of %s", boots, name)
	c.feed(name)
	c.BMC[name].SetPower("", agents.On)
	c.Storage.PowerOn(name)
	c.Net.Up(name)
	h.start()
}

// start starts the daemon in the present boot.
func (h *Host) start() {
	h.mu.Lock()
	boot := h.boots
	h.mu.Unlock()
	if !h.tryStart(boot) {
		h.restart(boot)
	}
}

// tryStart reports whether there is nothing more to do: the daemon runs, or this boot is over.
func (h *Host) tryStart(boot int) bool {
	c := h.c
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.mu.Lock()
	booted, dying, ill, runs := h.booted, h.dying, h.trouble.on(), h.process != nil
	if h.goes != nil {
		dying = h.goes.p
	}
	h.mu.Unlock()
	if runs {
		return true // somebody else asked for a start, too
	}
	if dying != nil {
		<-dying.ended // it has no time of its own in a machine that lost its power
	}
	h.mu.Lock()
	stores := h.stores
	if h.on && h.boots == boot {
		h.trouble.begin(stores)
	}
	h.mu.Unlock()
	p, err := h.begin(h.setup(boot, booted, stores))
	h.mu.Lock()
	defer h.mu.Unlock()
	present := h.on && h.boots == boot // else it lost power meanwhile
	switch {
	case errors.Is(err, consensus.ErrRolledBack):
		c.note("%s: %v: an operator moves it away", h.name, err)
		h.stores, h.kept = consensus.MemoryStores(), ""
		return !present
	case err != nil && present && (ill || h.trouble.on()):
		return false
	case err != nil && present:
		c.t.Errorf("start %s: %v", h.name, err)
		return true
	case err != nil:
		return true
	}
	if !present {
		h.dying = p
		c.wg.Go(func() { _ = p.end(p.Halt) })
		return true
	}
	h.process = p
	c.wg.Go(func() { h.supervise(p, boot) })
	return true
}

// setup is what a daemon of the present boot is made of.
func (h *Host) setup(boot int, booted time.Time, stores *consensus.Stores) node.Setup {
	c := h.c
	h.mu.Lock()
	text, speaks := h.kept, h.speaks
	h.mu.Unlock()
	if text == "" {
		text = c.text(h.name)
	}
	s := node.Setup{
		Config: c.config(h.name, text), Kinds: c.kinds(h.name), Self: h.name, Boot: fmt.Sprintf("%s-boot%d", h.name, boot), Keys: link.KeyRing{c.key},
		Machine: state.Machine{UUID: machineID(h.name)},
		DataDir: filepath.Join(c.dir, h.name), RunDir: filepath.Join(c.dir, h.name, fmt.Sprint(boot)), Version: "sim", Log: c.logger(h.name),
		Network: h.net,
		Stores:  stores,
		Speaks:  speaks,
		OnApply: func(i uint64, before, after *state.State) { c.applied(h.name, i, before, after) },
		Uptime:  func() time.Duration { return time.Since(booted) },
	}
	if h.dog != nil {
		s.Watchdog = h.dog.Open
	}
	if c.Options.Text {
		s.Text = text
	}
	return s
}

// begin starts a daemon. One that finds that it was dismissed starts as a newcomer the next time.
func (h *Host) begin(s node.Setup) (*process, error) {
	p := &process{setup: s, fatal: make(chan error, 1), again: make(chan node.Next, 1), ended: make(chan struct{})}
	s.Fatal = func(err error) { p.fatal <- err }
	s.Again = func(next node.Next) { p.again <- next }
	n, err := node.Start(context.Background(), s)
	if errors.Is(err, consensus.ErrDismissed) {
		h.c.note("%s: %v", h.name, err)
		n, err = node.Start(context.Background(), s)
	}
	p.Node = n
	return p, err
}

// anew has the daemon begin anew within its process, as node.Run does.
func (h *Host) anew(p *process, boot int, next node.Next) {
	began, err := h.beginAnew(p, boot, next)
	switch {
	case err != nil:
		h.c.note("%s does not begin anew: %v", h.name, err)
		h.restart(boot)
	case began != nil:
		h.supervise(began, boot)
	}
}

func (h *Host) beginAnew(p *process, boot int, next node.Next) (*process, error) {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	h.c.note("%s begins anew: %s", h.name, next.Reason)
	err := p.end(func(ctx context.Context) error { return p.Restart(ctx, next.Reason) })
	if err != nil {
		h.c.note("%s: not all ended in order: %v", h.name, err)
	}
	h.mu.Lock()
	over := !h.on || h.boots != boot
	h.mu.Unlock()
	if over {
		return nil, nil
	}
	s := p.setup
	s.Pace = p.Pace
	if next.Config != nil {
		s.Config, s.Text = next.Config, next.Text
	}
	began, err := h.begin(s)
	switch {
	case err == nil && next.Config != nil:
		h.set(func(h *Host) { h.kept = next.Text })
	case err != nil && next.Config != nil && node.MayBlameText(err):
		h.c.note("%s does not start with the new configuration: %v", h.name, err)
		reason := err
		if began, err = h.begin(p.setup); err == nil {
			began.Refuse(next.Text, reason)
		}
	}
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.on || h.boots != boot {
		h.dying = began
		h.c.wg.Go(func() { _ = began.end(began.Halt) })
		return nil, nil
	}
	h.process = began
	return began, nil
}

// supervise is systemd: it starts a daemon again that could not go on.
func (h *Host) supervise(p *process, boot int) {
	var err error
	var next node.Next
	select {
	case <-p.ended:
		return
	case err = <-p.fatal:
	case next = <-p.again:
	}
	h.mu.Lock()
	mine := h.process == p
	if mine {
		h.process = nil
		h.trouble.lock()
	}
	h.mu.Unlock()
	if !mine {
		return // somebody ends it already
	}
	if err == nil {
		h.anew(p, boot, next)
		return
	}
	h.c.note("%s: its daemon ends: %v", h.name, err)
	_ = p.end(p.Stop) // what it could not do it has said in its log
	h.restart(boot)
}

// restartPause is the unit's RestartSec.
const restartPause = 100 * time.Millisecond

// restart starts the daemon again as often as it takes, as long as the boot lasts.
func (h *Host) restart(boot int) {
	for {
		time.Sleep(restartPause)
		h.mu.Lock()
		over := !h.on || h.boots != boot || h.process != nil
		locked := h.trouble.locked
		h.mu.Unlock()
		if over || !locked && h.tryStart(boot) {
			return
		}
	}
}

// power is called when the BMC really switched the host.
func (h *Host) power(s agents.PowerState) {
	if s == agents.Off {
		h.c.note("%s: power off", h.name)
		h.die()
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on || h.timer != nil {
		return
	}
	h.timer = time.AfterFunc(h.c.BootTime, func() {
		h.mu.Lock()
		h.timer = nil
		h.mu.Unlock()
		h.c.Boot(h.name)
	})
}

// die ends the kernel: everything that it ran is gone at once, and peers see silence.
func (h *Host) die() {
	h.c.Storage.PowerOff(h.name)
	h.c.Net.Down(h.name)
	if h.dog != nil {
		h.dog.off()
	}
	h.mu.Lock()
	p := h.process
	h.on, h.frozen, h.process = false, false, nil
	if p != nil {
		h.dying = p
	}
	if h.goes != nil {
		h.dying = h.goes.p
		h.goes.cancel()
	}
	h.trouble.reset()
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	h.mu.Unlock()
	h.c.Net.Thaw(h.name)
	if p != nil {
		h.c.wg.Go(func() {
			if err := p.end(p.Halt); err != nil {
				h.c.note("%s: halt: %v", h.name, err)
			}
		})
	}
}

func (h *Host) halt() {
	if h.dog != nil {
		h.dog.off()
	}
	h.mu.Lock()
	p := h.process
	h.on, h.process, h.closed = false, nil, true
	h.trouble.reset()
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	if p != nil {
		h.c.wg.Go(func() { _ = p.end(p.Halt) })
	}
}

// RestartDaemon kills the daemon and starts it again in the same boot; what runs on the host runs on.
func (c *Cluster) RestartDaemon(name string, away time.Duration) {
	c.note("restart of %s's daemon, away for %s", name, away)
	h := c.hosts[name]
	h.mu.Lock()
	p, boot := h.process, h.boots
	h.process = nil
	if p != nil {
		h.trouble.lock()
	}
	h.mu.Unlock()
	if p == nil {
		return
	}
	if err := p.end(p.Halt); err != nil && !h.ill() {
		c.t.Errorf("halt %s: %v", name, err)
	}
	time.Sleep(away)
	h.mu.Lock()
	present := h.on && h.boots == boot
	h.mu.Unlock()
	if present {
		h.start()
	}
}

// StopDaemon stops the daemon in order, as systemctl stop does. The host runs on.
func (c *Cluster) StopDaemon(name string) {
	c.note("stop of %s's daemon", name)
	p := c.hosts[name].take()
	if err := p.end(p.Stop); err != nil {
		c.t.Errorf("stop %s: %v", name, err)
	}
}

// ill reports whether the disk is in trouble.
func (h *Host) ill() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trouble.on()
}

func (h *Host) set(f func(*Host)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// departure is a daemon that is being stopped.
type departure struct {
	p      *process
	cancel context.CancelFunc // its host has died
}

// Depart stops the daemon as a stop of its service does: its groups leave first. The host runs on.
func (c *Cluster) Depart(name string) {
	c.note("%s departs", name)
	h := c.hosts[name]
	h.mu.Lock()
	p := h.process
	if p == nil {
		h.mu.Unlock()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.DepartureBudget())
	defer cancel()
	goes := &departure{p, cancel}
	h.process, h.goes = nil, goes
	h.mu.Unlock()
	defer func() {
		h.set(func(h *Host) {
			if h.goes == goes {
				h.goes = nil
			}
		})
		close(p.ended)
	}()
	if err := p.Node.Depart(ctx); err != nil {
		c.note("%s departed, and not all ended in order: %v", name, err)
	}
}
