package sim

import (
	"fmt"
	"syscall"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// trouble is what is wrong with a host's disk. Its host's lock guards it.
type trouble struct {
	hangs   bool
	slow    time.Duration // each write
	full    bool          // each write fails
	release func()        // lets the calls that hang go on; nil if none can hang
	locked  bool          // calls of a daemon that has ended hang in the kernel, which holds its files for it
}

func (t *trouble) on() bool { return t.hangs || t.slow > 0 || t.full }

// begin is called before a daemon opens the disk.
func (t *trouble) begin(s *consensus.Stores) {
	s.Delay(t.slow)
	s.Fail(nil)
	if t.full {
		s.Fail(errFull)
	}
	if t.hangs && t.release == nil {
		t.release = s.Hang()
	}
}

// lock is called when a daemon ends.
func (t *trouble) lock() { t.locked = t.release != nil }

// reset is called when the machine loses its power: what hung has reached the platters in the last moment, or has not.
func (t *trouble) reset() {
	if t.release != nil {
		t.release()
	}
	t.release, t.locked = nil, false
}

// HangDisk lets every call of the host's log store hang from now on.
func (c *Cluster) HangDisk(name string) {
	c.note("the disk of %s hangs", name)
	c.hosts[name].set(func(h *Host) {
		h.trouble.hangs = true
		if h.on {
			h.trouble.begin(h.stores)
		}
	})
}

// SlowDisk makes every write of the host's log store take that long.
func (c *Cluster) SlowDisk(name string, write time.Duration) {
	c.note("a write to the disk of %s takes %s", name, write)
	c.hosts[name].set(func(h *Host) {
		h.trouble.slow = write
		h.stores.Delay(write)
	})
}

var errFull = fmt.Errorf("write: %w", syscall.ENOSPC)

// FillDisk lets every write of the host's log store fail from now on.
func (c *Cluster) FillDisk(name string) {
	c.note("the disk of %s is full", name)
	c.hosts[name].set(func(h *Host) {
		h.trouble.full = true
		h.stores.Fail(errFull)
	})
}

// MendDisk ends HangDisk, SlowDisk and FillDisk: the calls that hung go through now, late.
func (c *Cluster) MendDisk(name string) {
	c.note("the disk of %s works", name)
	h := c.hosts[name]
	h.set(func(h *Host) {
		h.trouble.hangs, h.trouble.slow, h.trouble.full = false, 0, false
		h.stores.Delay(0)
		h.stores.Fail(nil)
		if h.trouble.release != nil {
			h.trouble.release()
			h.trouble.release = nil
		}
	})
	c.wg.Go(func() {
		time.Sleep(time.Millisecond) // until they have gone through
		h.set(func(h *Host) { h.trouble.locked = h.trouble.locked && h.trouble.release != nil })
	})
}

// WipeDisk gives the host an empty disk, which its daemon finds when it starts next.
func (c *Cluster) WipeDisk(name string) {
	c.note("the disk of %s is empty", name)
	c.hosts[name].set(func(h *Host) { h.stores, h.kept = consensus.MemoryStores(), "" })
}
