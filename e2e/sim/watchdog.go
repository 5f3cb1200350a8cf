package sim

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/stonith/watchdog"
)

// dog is a host's hardware watchdog: it outlives the daemon, and resets the host whether that stands still or not.
type dog struct {
	h     *Host
	stays bool // the host does not come back after the reset

	mu      sync.Mutex
	broken  bool // it never fires
	boot    int  // counts the losses of power: a handle of an earlier one is dead
	open    bool
	runs    bool
	timeout time.Duration
	last    time.Time
	timer   *time.Timer
	fired   []time.Time
}

var errNoPower = errors.New("the host was reset")

// watchdogs gives every host a watchdog, which is its last fencing level; call it before the hosts boot.
func (c *Cluster) watchdogs(tested bool) {
	c.giveDogs(tested)
	for name := range c.hosts {
		c.Edit(name, func(text string) string {
			for _, n := range c.Nodes {
				bmc := `fencing = [["` + n + `-bmc"]`
				text = strings.ReplaceAll(text, bmc+"]", bmc+`, ["watchdog"]]`+"\nwatchdog = \"/dev/watchdog0\"")
			}
			return text
		})
	}
}

// giveDogs gives every host a watchdog, and leaves the configuration as it is.
func (c *Cluster) giveDogs(tested bool) {
	for _, h := range c.hosts {
		h.dog = &dog{h: h, timeout: time.Minute}
		if tested {
			h.passTest()
		}
	}
}

// passTest records that the watchdog was seen to work.
func (h *Host) passTest() {
	dir := filepath.Join(h.c.dir, h.name)
	b, err := json.Marshal(watchdog.Test{Verdict: watchdog.Passed, Device: "/dev/watchdog0", Identity: "iTCO_wdt", Boot: "before"})
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, watchdog.TestFile), b, 0o600)
	}
	if err != nil {
		h.c.t.Fatal(err)
	}
}

// Open is Setup.Watchdog.
func (d *dog) Open(context.Context) (watchdog.Device, error) {
	d.mu.Lock()
	k := &leash{d, d.boot}
	d.mu.Unlock()
	return k, k.do(func() error {
		if d.open {
			return watchdog.ErrBusy
		}
		d.open, d.runs = true, true
		d.ping()
		return nil
	})
}

// ping needs the lock.
func (d *dog) ping() {
	d.last = time.Now()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer = time.AfterFunc(d.timeout, d.fire)
}

func (d *dog) fire() {
	d.mu.Lock()
	if !d.runs || d.broken || time.Since(d.last) < d.timeout {
		d.mu.Unlock()
		return
	}
	d.fired = append(d.fired, time.Now())
	d.mu.Unlock()
	if d.stays {
		d.h.c.note("%s: reset by its watchdog, and hangs at its start", d.h.name)
		d.h.die()
		return
	}
	d.h.c.note("%s: reset by its watchdog", d.h.name)
	d.h.c.Reboot(d.h.name, d.h.c.BootTime)
}

// off is the loss of power, or a reset.
func (d *dog) off() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boot++
	d.open, d.runs = false, false
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *dog) resets() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fired
}

func (d *dog) armed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs
}

// leash is the open device of one daemon.
type leash struct {
	d    *dog
	boot int
}

// do waits while the host stands still, as everything on it does.
func (l *leash) do(f func() error) error {
	for {
		still := l.d.h.still()
		l.d.mu.Lock()
		switch {
		case l.d.boot != l.boot:
			l.d.mu.Unlock()
			return errNoPower
		case !still:
			defer l.d.mu.Unlock()
			return f()
		}
		l.d.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *leash) Info() watchdog.Info {
	return watchdog.Info{Name: "iTCO_wdt", Options: unix.WDIOF_SETTIMEOUT | unix.WDIOF_KEEPALIVEPING | unix.WDIOF_MAGICCLOSE}
}

func (l *leash) SetTimeout(t time.Duration) (time.Duration, error) {
	return t, l.do(func() error {
		l.d.timeout = t
		l.d.ping()
		return nil
	})
}

func (l *leash) Feed() error {
	return l.do(func() error {
		l.d.ping()
		return nil
	})
}

func (l *leash) Disarm() error {
	return l.do(func() error {
		l.d.open, l.d.runs = false, false
		l.d.timer.Stop()
		return nil
	})
}

// Close feeds once more, as the kernel does.
func (l *leash) Close() error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.boot == l.boot {
		l.d.open = false
		l.d.ping()
	}
	return nil
}
