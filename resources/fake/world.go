// Package fake is a resource kind for cluster tests: instead of running anything it
// notes, in one World that all simulated hosts share, what is active where. The world
// is the judge: it knows at every instant who could write, and keeps a list of every
// moment at which the one-writer rule was broken.
//
// Delays and faults are configured per resource by Options, or set on the World while the
// test runs. All time is package time's, so in a synctest bubble it is virtual; the World must be
// made inside the bubble.
package fake

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Errors that calls on a resource return beside the context's.
var (
	ErrPoweredOff = errors.New("fake: the host has no power")
	ErrTold       = errors.New("fake: told to fail")
	ErrStale      = errors.New("fake: token is lower than one that was used before")
)

// Holding is one resource that may write on one host: from the beginning of its start
// to the end of a successful stop, or to the host's power-off. A frozen host holds on.
type Holding struct {
	Group    string
	Resource string
	Host     string
	Node     string
	Boot     string
	Token    uint64
	Since    time.Time
	Disk     string // what it writes to; empty: something of its own
	// Started is false while it starts, and after a start that failed.
	Started bool
}

func (h Holding) String() string {
	return fmt.Sprintf("%s/%s on %s (boot %s, token %d)", h.Group, h.Resource, h.Host, h.Boot, h.Token)
}

// Violation is one breach of a safety rule.
type Violation struct {
	At   time.Time
	What string // in words, with both sides
}

func (v Violation) String() string { return v.At.Format("15:04:05.000") + " " + v.What }

// Event is one change in the world, for timelines.
type Event struct {
	At   time.Time
	What string // "starting", "started", "start failed", "stopping", "stopped", "died", "power off", "power on", "freeze", "thaw", "refused"
	Holding
}

// World is what the simulated hosts share. It is safe for concurrent use.
type World struct {
	mu         sync.Mutex
	hosts      map[string]*host
	holdings   []*holding
	highest    map[string]uint64 // per group, the highest token that started anything
	events     []Event
	violations []Violation
}

type host struct {
	life   int // grows with each power-off; resources of an earlier life are dead
	off    bool
	dead   chan struct{} // closed by the power-off
	frozen chan struct{} // closed by the thaw; nil if not frozen
	faults map[fault]Mode
}

type fault struct{ group, resource, op string }

type holding struct {
	Holding
	died   chan struct{}
	reason error // why; set before died is closed
	timer  *time.Timer
}

// Mode is how an operation goes.
type Mode int

// The modes of Set.
const (
	Works Mode = iota
	Fails      // returns ErrTold; a failed start still holds
	Hangs      // blocks until its context or the host ends
)

// NewWorld makes an empty world.
func NewWorld() *World {
	return &World{hosts: map[string]*host{}, highest: map[string]uint64{}}
}

// Set overrides, from now on, how "start", "stop" or "probe" of one resource goes on
// one host.
func (w *World) Set(host, group, resource, op string, m Mode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.host(host).faults[fault{group, resource, op}] = m
}

// PowerOff makes everything of the host inactive at once. What its old daemon still
// calls, and every resource made before PowerOn, gets ErrPoweredOff.
func (w *World) PowerOff(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if h.off {
		return
	}
	h.off = true
	h.life++
	close(h.dead)
	w.thaw(h)
	w.note("power off", Holding{Host: name})
	for _, held := range slices.Clone(w.holdings) {
		if held.Host == name {
			w.release(held, ErrPoweredOff)
		}
	}
}

// PowerOn lets resources be made on the host again.
func (w *World) PowerOn(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.host(name)
	if !h.off {
		return
	}
	h.off, h.dead = false, make(chan struct{})
	w.note("power on", Holding{Host: name})
}

// Freeze stops all calls of the host where they are, and those that follow, until Thaw, PowerOff or the
// end of their context. What is active stays active.
func (w *World) Freeze(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.host(name); h.frozen == nil && !h.off {
		h.frozen = make(chan struct{})
		w.note("freeze", Holding{Host: name})
	}
}

// Thaw ends Freeze.
func (w *World) Thaw(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h := w.host(name); h.frozen != nil {
		w.thaw(h)
		w.note("thaw", Holding{Host: name})
	}
}

func (w *World) thaw(h *host) {
	if h.frozen != nil {
		close(h.frozen)
		h.frozen = nil
	}
}

// Kill makes one active resource die by itself, as a crashed process does. It reports
// whether it was active on that host.
func (w *World) Kill(host, group, resource string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.find(host, group, resource)
	if held == nil {
		return false
	}
	w.note("died", held.Holding)
	w.release(held, errors.New("fake: killed"))
	return true
}

// Active lists what may write now, in the order in which it came.
func (w *World) Active() []Holding {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Holding
	for _, held := range w.holdings {
		all = append(all, held.Holding)
	}
	return all
}

// Holders lists the hosts on which anything of the group may write now.
func (w *World) Holders(group string) []string {
	var hosts []string
	for _, h := range w.Active() {
		if h.Group == group && !slices.Contains(hosts, h.Host) {
			hosts = append(hosts, h.Host)
		}
	}
	return hosts
}

// Violations lists every breach so far; a test wants it empty.
func (w *World) Violations() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations)
}

// Events is everything that happened so far.
func (w *World) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

func (w *World) host(name string) *host {
	h := w.hosts[name]
	if h == nil {
		h = &host{dead: make(chan struct{}), faults: map[fault]Mode{}}
		w.hosts[name] = h
	}
	return h
}

func (w *World) find(host, group, resource string) *holding {
	for _, held := range w.holdings {
		if held.Host == host && held.Group == group && held.Resource == resource {
			return held
		}
	}
	return nil
}

// hold notes the beginning of a start, and judges it.
func (w *World) hold(h Holding) (*holding, error) {
	if top := w.highest[h.Group]; h.Token < top {
		w.note("refused", h)
		return nil, fmt.Errorf("%w: %s, after token %d", ErrStale, h, top)
	}
	w.highest[h.Group] = h.Token
	for _, other := range w.holdings {
		if other.Group == h.Group && other.Host != h.Host {
			w.violate("two hosts hold one group: %s starts while %s holds", h, other.Holding)
		}
		if h.Disk != "" && other.Disk == h.Disk {
			w.violate("two write to disk "+h.Disk+": %s starts while %s holds", h, other.Holding)
		}
	}
	for _, e := range w.events {
		if e.What == "starting" && e.Group == h.Group && e.Token == h.Token && (e.Host != h.Host || e.Boot != h.Boot) {
			w.violate("one token was granted twice: %s, and before that %s", h, e.Holding)
			break
		}
	}
	held := &holding{Holding: h, died: make(chan struct{})}
	w.holdings = append(w.holdings, held)
	w.note("starting", h)
	return held, nil
}

// release ends a holding, whoever waits for its death included.
func (w *World) release(held *holding, reason error) {
	i := slices.Index(w.holdings, held)
	if i < 0 {
		return
	}
	w.holdings = slices.Delete(w.holdings, i, i+1)
	held.reason = reason
	if held.timer != nil {
		held.timer.Stop()
	}
	close(held.died)
}

func (w *World) violate(format string, a, b Holding) {
	w.violations = append(w.violations, Violation{time.Now(), fmt.Sprintf(format, a, b)})
}

func (w *World) note(what string, h Holding) {
	w.events = append(w.events, Event{time.Now(), what, h})
}
