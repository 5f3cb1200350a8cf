package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	mu     sync.Mutex
	boots  int
	on     bool // the kernel runs
	booted time.Time
	closed bool // the cluster is being taken down
	frozen bool
	cut    bool
	node   *node.Node
	timer  *time.Timer // a boot that is under way
}

func newHost(c *Cluster, name string, number int) *Host {
	return &Host{
		c: c, name: name, stores: consensus.MemoryStores(),
		net: c.Net.Host(name, fmt.Sprintf("10.0.0.%d", number), fmt.Sprintf("10.1.0.%d", number)),
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
	return h.node
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
	if h.on || h.closed {
		h.mu.Unlock()
		return
	}
	h.on, h.booted = true, time.Now()
	h.boots++
	boots := h.boots
	h.mu.Unlock()
	c.note("boot %d of %s", boots, name)
	c.BMC[name].SetPower("", agents.On)
	c.Storage.PowerOn(name)
	c.Net.Up(name)
	h.start()
}

// start starts the daemon in the present boot.
func (h *Host) start() {
	c := h.c
	h.mu.Lock()
	boot, booted := h.boots, h.booted
	h.mu.Unlock()
	n, err := node.Start(context.Background(), node.Setup{
		Config: c.config(h.name), Kinds: c.kinds(h.name), Self: h.name, Boot: fmt.Sprintf("%s-boot%d", h.name, boot), Key: c.key,
		Machine: state.Machine{UUID: machineID(h.name)},
		DataDir: filepath.Join(c.dir, h.name), RunDir: filepath.Join(c.dir, h.name, fmt.Sprint(boot)), Version: "sim", Log: c.logger(h.name),
		Network: h.net,
		Stores:  h.stores, Fatal: func(error) {},
		OnApply: func(i uint64, before, after *state.State) { c.applied(h.name, i, before, after) },
		Uptime:  func() time.Duration { return time.Since(booted) },
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if h.on { // else it lost power meanwhile
			c.t.Errorf("start %s: %v", h.name, err)
		}
		return
	}
	if !h.on {
		h.c.wg.Go(func() { n.Halt(context.Background()) })
		return
	}
	h.node = n
}

// power is called when the BMC really switched the host.
func (h *Host) power(s agents.PowerState) {
	if s == agents.Off {
		h.c.note("%s: power off by its BMC", h.name)
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
	h.mu.Lock()
	n := h.node
	h.on, h.frozen, h.node = false, false, nil
	if h.timer != nil {
		h.timer.Stop()
		h.timer = nil
	}
	h.mu.Unlock()
	h.c.Net.Thaw(h.name)
	if n != nil {
		h.c.wg.Go(func() {
			if err := n.Halt(context.Background()); err != nil {
				h.c.note("%s: halt: %v", h.name, err)
			}
		})
	}
}

func (h *Host) halt() {
	h.mu.Lock()
	n := h.node
	h.on, h.node, h.closed = false, nil, true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.mu.Unlock()
	if n != nil {
		h.c.wg.Go(func() { _ = n.Halt(context.Background()) })
	}
}

// Crash panics the kernel of a host. Its power stays on, and nothing comes back by itself.
func (c *Cluster) Crash(name string) {
	c.note("crash of %s", name)
	c.hosts[name].die()
}

// Reboot is a crash that the host comes back from by itself after a while.
func (c *Cluster) Reboot(name string, after time.Duration) {
	c.note("reboot of %s, back in %s", name, after)
	h := c.hosts[name]
	h.die()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(after, func() {
		h.mu.Lock()
		h.timer = nil
		h.mu.Unlock()
		c.Boot(name)
	})
}

// Freeze holds a host still, and everything to and from it; Thaw wakes it with its old
// beliefs.
func (c *Cluster) Freeze(name string) {
	c.note("freeze of %s", name)
	c.hosts[name].set(func(h *Host) { h.frozen = true })
	c.Storage.Freeze(name)
	c.Net.Freeze(name)
}

// Thaw ends Freeze.
func (c *Cluster) Thaw(name string) {
	c.note("thaw of %s", name)
	c.hosts[name].set(func(h *Host) { h.frozen = false })
	c.Storage.Thaw(name)
	c.Net.Thaw(name)
}

// Cut takes a host off the network; it runs on. Its BMC stays reachable.
func (c *Cluster) Cut(name string) {
	c.note("cut of %s", name)
	c.hosts[name].set(func(h *Host) { h.cut = true })
	c.Net.Isolate(name)
}

// Heal ends Cut.
func (c *Cluster) Heal(name string) {
	c.note("heal of %s", name)
	c.hosts[name].set(func(h *Host) { h.cut = false })
	c.Net.Rejoin(name)
}

// RestartDaemon kills the daemon and starts it again in the same boot; what runs on the host runs on.
func (c *Cluster) RestartDaemon(name string, away time.Duration) {
	c.note("restart of %s's daemon, away for %s", name, away)
	h := c.hosts[name]
	h.mu.Lock()
	n := h.node
	h.node = nil
	h.mu.Unlock()
	if n == nil {
		return
	}
	if err := n.Halt(context.Background()); err != nil {
		c.t.Errorf("halt %s: %v", name, err)
	}
	time.Sleep(away)
	h.mu.Lock()
	on := h.on
	h.mu.Unlock()
	if on {
		h.start()
	}
}

// StopDaemon stops the daemon in order, as systemctl stop does. The host runs on.
func (c *Cluster) StopDaemon(name string) {
	c.note("stop of %s's daemon", name)
	h := c.hosts[name]
	n := h.daemon()
	if err := n.Stop(context.Background()); err != nil {
		c.t.Errorf("stop %s: %v", name, err)
	}
	h.set(func(h *Host) { h.node = nil })
}

func (h *Host) set(f func(*Host)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}
