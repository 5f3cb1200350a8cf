package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	first(m)
	goleak.VerifyTestMain(m)
}

const (
	detection = 3 * time.Second
	slowStop  = 30 * time.Second
)

// dog is a watchdog as the kernel has it, in virtual time, with the ways in which one can lie.
type dog struct {
	mu      sync.Mutex
	isOpen  bool
	runs    bool
	timeout time.Duration
	last    time.Time
	timer   *time.Timer
	fired   time.Time // when it reset the host; zero if it did not
	feeds   []time.Time
	opens   int

	name     string
	noWayOut bool
	rounds   time.Duration // what it adds to a timeout
	dead     bool          // it never fires
	openErr  error
	feedErr  error
	// pause stands between what a caller saw and what becomes of it.
	pause func(op string)
	// reset is called when it fires.
	reset func()
}

func newDog() *dog {
	return &dog{name: "iTCO_wdt", timeout: 30 * time.Second, pause: func(string) {}, reset: func() {}}
}

func (d *dog) open(context.Context) (Device, error) {
	d.wait("open")
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.openErr != nil:
		return nil, d.openErr
	case d.isOpen:
		return nil, ErrBusy
	}
	d.isOpen, d.runs = true, true
	d.opens++
	d.ping()
	return d, nil
}

// ping needs the lock.
func (d *dog) ping() {
	if !d.fired.IsZero() || !d.runs {
		return
	}
	d.last = time.Now()
	d.feeds = append(d.feeds, d.last)
	if d.timer != nil {
		d.timer.Stop()
	}
	if !d.dead {
		d.timer = time.AfterFunc(d.timeout, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.runs && d.fired.IsZero() && time.Since(d.last) >= d.timeout {
				d.fired = time.Now()
				d.reset()
			}
		})
	}
}

func (d *dog) Info() Info {
	return Info{Name: d.name, Options: unix.WDIOF_SETTIMEOUT | unix.WDIOF_KEEPALIVEPING | unix.WDIOF_MAGICCLOSE}
}

func (d *dog) SetTimeout(t time.Duration) (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timeout = t + d.rounds
	d.ping()
	return d.timeout, nil
}

func (d *dog) Feed() error {
	d.wait("feed")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.feedErr != nil {
		return d.feedErr
	}
	d.ping()
	return nil
}

func (d *dog) Disarm() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noWayOut {
		return ErrNoWayOut
	}
	d.runs, d.isOpen = false, false
	if d.timer != nil {
		d.timer.Stop()
	}
	return nil
}

func (d *dog) Close() error {
	d.wait("close")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isOpen = false
	d.ping()
	return nil
}

// wait is outside of the lock.
func (d *dog) wait(op string) {
	d.mu.Lock()
	pause := d.pause
	d.mu.Unlock()
	pause(op)
}

// state gives what a test looks at.
func (d *dog) state() (runs bool, fired time.Time, last time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs, d.fired, d.last
}

func (d *dog) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// host is a daemon with its guard, in a bubble of virtual time.
type host struct {
	t     *testing.T
	dog   *dog
	o     Options
	guard *Guard

	mu    sync.Mutex
	alive func(context.Context) error
}

func newHost(t *testing.T) *host {
	t.Helper()
	start := time.Now()
	h := &host{t: t, dog: newDog(), alive: func(context.Context) error { return nil }}
	h.o = Options{
		Path: "/dev/no-watchdog", Timing: Derive(detection, slowStop), Dir: t.TempDir(), DataDir: t.TempDir(), Boot: "b1", LetsGo: true,
		Alive: func(ctx context.Context) error {
			h.mu.Lock()
			alive := h.alive
			h.mu.Unlock()
			return alive(ctx)
		},
		Log:  slog.New(slog.DiscardHandler),
		Open: h.dog.open,
		Now:  func() time.Duration { return time.Since(start) + time.Hour },
	}
	return h
}

func (h *host) start(held ...string) {
	h.t.Helper()
	h.o.Held = held
	g, err := Start(h.t.Context(), h.o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.guard = g
}

func (h *host) stop() {
	h.t.Helper()
	if err := h.guard.Stop(context.Background()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) become(alive func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.alive = alive
}

// hear has a coordinator answer one question.
func (h *host) hear() Claim {
	c, m := h.guard.Ask()
	h.guard.Heard(m)
	return c
}

// live has a coordinator answer for a time.
func (h *host) live(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		h.hear()
		time.Sleep(detection / 2)
	}
}

func (h *host) hold(name string) {
	h.t.Helper()
	if err := h.guard.Hold(context.Background(), name); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) release(name string) {
	h.t.Helper()
	if err := h.guard.Release(context.Background(), name); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) refuses(name string, want error) {
	h.t.Helper()
	if err := h.guard.Hold(context.Background(), name); !errors.Is(err, want) {
		h.t.Fatalf("hold: %v, want %v", err, want)
	}
}

func (h *host) mustRun() {
	h.t.Helper()
	if _, fired, _ := h.dog.state(); !fired.IsZero() {
		h.t.Fatalf("the host was reset at %s", fired)
	}
}

// mustEnd waits for the reset, and gives when it came, from since on.
func (h *host) mustEnd(since time.Time, atMost time.Duration) time.Duration {
	h.t.Helper()
	time.Sleep(time.Until(since.Add(atMost)) + time.Millisecond)
	_, fired, last := h.dog.state()
	if fired.IsZero() {
		h.t.Fatalf("after %s the host still runs, last fed after %s", atMost, last.Sub(since))
	}
	return fired.Sub(since)
}

// passedTest records a test of this device that went well.
func (h *host) passedTest() {
	h.t.Helper()
	test := Test{Verdict: Passed, Device: h.o.Path, Identity: h.dog.name, Boot: "b0", Timeout: h.o.Timing.Timeout}
	if err := test.write(h.o.DataDir); err != nil {
		h.t.Fatal(err)
	}
}

var errDown = fmt.Errorf("loop stands still")
