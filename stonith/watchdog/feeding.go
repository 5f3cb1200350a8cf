package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// mayFeed says why the watchdog must not be fed.
func (g *Guard) mayFeed(now time.Duration) error {
	if !g.real() {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if age := now - g.yes; age > g.terms.Timing.Fresh {
		why := fmt.Errorf("%w: the daemon made no progress for %s", ErrStarved, age.Round(time.Millisecond))
		if g.no != nil {
			why = fmt.Errorf("%w: %w", why, g.no)
		}
		return why
	}
	// Who holds nothing does no harm, however alone it is.
	if !g.terms.LetsGo || len(g.held) == 0 || g.excuse.holds() {
		return nil
	}
	if age := now - g.heard; age > g.terms.Timing.Patience {
		return fmt.Errorf("%w: no coordinator answered for %s, and what this node holds is not stopped", ErrStarved, age.Round(time.Millisecond))
	}
	return nil
}

// arm opens the device, which arms it.
func (g *Guard) arm(ctx context.Context) {
	now := g.Now()
	if g.claimed {
		g.checkLate(now)
	}
	// Opening feeds.
	if g.starve(g.mayFeed(now)) {
		return
	}
	if err := g.note(true, now); err != nil {
		g.fail(err)
		return
	}
	takenOver := g.claimed
	dev, err := g.Open(ctx)
	if err != nil {
		g.fail(err)
		return
	}
	g.dev, g.fed, g.claimed = dev, g.Now(), true
	if g.timeout, err = fit(dev, g.terms.Timing); err != nil {
		g.fail(err)
		if takenOver {
			return // it was good enough, others count on it, and it has the timeout that it had
		}
		// A timer that nobody relies upon must not reset the host.
		if err := g.disarm(); err != nil {
			g.Log.Error("watchdog: it is fed from now on, only to keep it from resetting the host", "device", g.Path, "err", err)
		}
		return
	}
	if g.trouble != nil && !errors.Is(g.trouble, ErrNoReset) {
		g.Log.Info("watchdog works again", "device", g.Path)
		g.trouble = nil
	}
	if !g.real() {
		return
	}
	g.Log.Info("watchdog armed", "device", g.Path, "identity", dev.Info().Name, "timeout", g.timeout)
}

// adopt puts the terms of this daemon's own configuration in force once a coordinator knows them, or while nobody can
// count on others.
func (g *Guard) adopt() {
	g.mu.Lock()
	agreed := g.agreed
	g.mu.Unlock()
	wanted := terms{g.Timing, g.LetsGo}
	if g.terms == wanted || !agreed && (g.dev != nil || g.claimed) {
		return
	}
	if g.dev != nil {
		if g.mayFeed(g.Now()) != nil {
			return // a new timeout feeds
		}
		timeout, err := fit(g.dev, wanted.Timing)
		if err != nil {
			g.fail(err) // it goes on by the terms that it has
			return
		}
		g.timeout = timeout
	}
	g.terms = wanted
}

// fit sets the timeout, and says why the device is not good enough.
func fit(dev Device, t Timing) (time.Duration, error) {
	info := dev.Info()
	got, err := dev.SetTimeout(t.Timeout)
	switch {
	case err != nil:
		return got, fmt.Errorf("%w: %w", ErrUnfit, err)
	case info.Options&unix.WDIOF_ALARMONLY != 0:
		return got, fmt.Errorf("%w: %s only raises an alarm", ErrUnfit, info.Name)
	case got > t.Timeout:
		return got, fmt.Errorf("%w: %s was asked to reset after %s, and does it after %s", ErrUnfit, info.Name, t.Timeout, got)
	case got < t.Least:
		return got, fmt.Errorf("%w: %s resets after %s, and a restart of hamgr may take %s", ErrUnfit, info.Name, got, t.Least)
	}
	return got, nil
}

func (g *Guard) feed() {
	now := g.Now()
	g.checkLate(now)
	if g.starve(g.mayFeed(now)) {
		return
	}
	if err := g.dev.Feed(); err != nil {
		g.fail(err)
		return
	}
	g.fed = g.Now()
	if err := g.note(true, g.fed); err != nil {
		g.Log.Warn("watchdog", "device", g.Path, "err", err)
	}
}

// checkLate finds a host that should be dead. It runs, so others must not rely on its watchdog, even if it was only asleep.
func (g *Guard) checkLate(now time.Duration) {
	late := g.terms.Timing.Late(g.pretimeout())
	if !g.real() || errors.Is(g.trouble, ErrNoReset) || now-g.fed <= late {
		return
	}
	g.trouble = fmt.Errorf("%w: it was not fed for %s with a timeout of %s, and the host runs", ErrNoReset, (now - g.fed).Round(time.Millisecond), g.terms.Timing.Timeout)
	g.Log.Error(g.trouble.Error(), "device", g.Path)
	test, err := discredit(g.DataDir, g.trouble.Error())
	if err != nil {
		g.Log.Error("the watchdog's test", "device", g.Path, "err", err)
	}
	g.mu.Lock()
	g.tested = test
	g.mu.Unlock()
}

func (g *Guard) pretimeout() time.Duration {
	if g.dev == nil {
		return 0
	}
	return g.dev.Info().Pretimeout
}

// starve notes why it is not fed, says so once, and reports whether that is so.
func (g *Guard) starve(why error) bool {
	if !g.real() {
		return false
	}
	if why != nil && g.starved == nil {
		g.Log.Error("the watchdog is NOT FED any more, and resets this host", "device", g.Path, "timeout", g.timeout, "err", why)
	}
	if why == nil && g.starved != nil {
		g.Log.Warn("the watchdog is fed again", "device", g.Path)
	}
	g.starved = why
	return why != nil
}

// fail notes that nothing is guarded, and says so once.
func (g *Guard) fail(err error) {
	if g.trouble == nil || g.trouble.Error() != err.Error() {
		g.Log.Error("the watchdog GUARDS NOTHING", "device", g.Path, "err", err)
	}
	if !errors.Is(g.trouble, ErrNoReset) {
		g.trouble = err
	}
}

// disarm is for when everything is proven stopped.
func (g *Guard) disarm() error {
	if g.dev == nil {
		if g.claimed {
			return nil // the next turn takes it over, and then disarms it
		}
		return g.note(false, g.fed)
	}
	if err := g.dev.Disarm(); err != nil {
		if errors.Is(err, ErrNoWayOut) {
			g.claimed = false // as far as it goes, this is done
			return nil
		}
		g.fail(err)
		g.dev, g.claimed = nil, true // it may run on: the next turn takes it over, and tries again
		return err
	}
	g.dev, g.claimed, g.starved = nil, false, nil
	if g.real() {
		g.Log.Info("watchdog disarmed", "device", g.Path)
	}
	return g.note(false, g.fed)
}

func (g *Guard) note(armed bool, fed time.Duration) error {
	if !g.real() {
		return nil // there is nothing to take over
	}
	g.mu.Lock()
	n := note{Armed: armed, Path: g.Path, Heard: g.heard, Fed: fed, Terms: &g.terms}
	if g.excuse.holds() {
		n.Excuse = g.excuse.why
	}
	g.mu.Unlock()
	if err := n.write(g.Dir); err != nil {
		return err
	}
	g.excused = n.Excuse
	return nil
}

// fake is a device that does nothing.
type fake struct{}

func (fake) Info() Info                                        { return Info{Name: "fake"} }
func (fake) SetTimeout(d time.Duration) (time.Duration, error) { return d, nil }
func (fake) Feed() error                                       { return nil }
func (fake) Disarm() error                                     { return nil }
func (fake) Close() error                                      { return nil }
