package sim

import (
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Crash panics the kernel of a host. Its power stays on, and nothing comes back by itself.
func (c *Cluster) Crash(name string) {
	c.note("crash of %s", name)
	c.hosts[name].die()
}

// CutPower takes the power from a host, and its BMC, which has a battery, tells so. Boot gives it back.
func (c *Cluster) CutPower(name string) {
	c.note("%s has no power", name)
	c.BMC[name].SetPower("", agents.Off)
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
