package sim

import (
	"github.com/hamgr/hamgr/agents"
	bmc "github.com/hamgr/hamgr/agents/fake"
)

// outletOf completes a node's name to that of its outlet at a PDU, which feeds the host and its BMC.
const outletOf = "-outlet"

// plugIn gives a host an outlet, whether its configuration names it or not.
func (c *Cluster) plugIn(name string) {
	o := bmc.New()
	c.BMC[name+outletOf] = o
	o.Behave(bmc.Behavior{})
	o.OnPower = func(_ string, s agents.PowerState) {
		if s == agents.Off {
			c.note("%s: its outlet is off", name)
			c.loseFeed(name)
			return
		}
		c.note("%s: its outlet is on", name)
		c.light(name)
		c.BMC[name].SetPower("", agents.On)
		c.hosts[name].power(agents.On)
	}
}

// loseFeed takes the power from a host and its BMC, which answers nobody from now on.
func (c *Cluster) loseFeed(name string) {
	c.mu.Lock()
	c.dark[name] = true
	c.mu.Unlock()
	c.BMC[name].SetPower("", agents.Off)
	c.hosts[name].die()
}

// light lets the BMC answer again.
func (c *Cluster) light(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.dark, name)
}

// feed has the outlet of a host on.
func (c *Cluster) feed(name string) {
	c.light(name)
	if o := c.BMC[name+outletOf]; o != nil {
		o.SetPower("", agents.On)
	}
}

// devices are the names of a host's devices.
func (c *Cluster) devices(name string) []string {
	if c.BMC[name+outletOf] == nil {
		return []string{name}
	}
	return []string{name, name + outletOf}
}

// CutFeed takes the power from a host and its BMC: a cable, not the outlet, which still says on. Boot gives it back.
func (c *Cluster) CutFeed(name string) {
	c.note("%s and its BMC have no power", name)
	c.loseFeed(name)
}

// Pull takes a host's power for good, as somebody does who stands in front of it; Plug gives it back.
func (c *Cluster) Pull(name string) {
	c.note("the plug of %s is pulled", name)
	c.hosts[name].set(func(h *Host) { h.pulled++ })
	c.loseFeed(name)
}

// Plug ends Pull, and starts the host if nobody else pulled it.
func (c *Cluster) Plug(name string) {
	c.note("%s is plugged in", name)
	c.hosts[name].set(func(h *Host) { h.pulled-- })
	c.Boot(name)
}
