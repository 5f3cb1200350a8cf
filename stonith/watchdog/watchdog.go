// Package watchdog drives the host's hardware watchdog: a timer that resets the machine unless it is fed in time. It is
// armed only while the node holds something, fed only while the daemon makes progress, and disarmed only after
// everything that was held is proven stopped. So a node that can neither stop nor be stopped ends by itself.
//
// Guard is the state machine, Device the kernel's interface to the timer, Identify what can be known of it without
// arming it. Fire and Tested are the test that it really resets the host. Decide says when others may
// count on it (proof (e)).
//
// The facts about the kernel are from its own documentation: Documentation/watchdog/watchdog-api.rst and
// watchdog-kernel-api.rst, and Documentation/ABI/testing/sysfs-class-watchdog.
package watchdog

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// What stands in the configuration in place of a device's path.
const (
	Off = "off"
	// Fake is a watchdog that never resets anything: for development.
	Fake = "fake"
)

var (
	// ErrBusy: another process has the device open, and the kernel lets in only one.
	ErrBusy = errors.New("watchdog is in use")
	// ErrNoWayOut: once it is armed, nothing stops it until the host is reset.
	ErrNoWayOut = errors.New("watchdog cannot be disarmed")
	// ErrUnfit: the device does not do what is needed of it.
	ErrUnfit = errors.New("watchdog is not fit for use")
	// ErrStarved: it may not be fed now, so nothing may begin under its guard.
	ErrStarved = errors.New("watchdog may not be fed")
	// ErrStopped: the guard does not work any more, or not yet.
	ErrStopped = errors.New("watchdog's guard is stopped")
	// ErrNoReset: it was not fed for longer than its timeout, and the host still runs.
	ErrNoReset = errors.New("the watchdog DOES NOT WORK")
)

// Info is what a driver says of itself once the device is open (WDIOC_GETSUPPORT).
type Info struct {
	Name     string // "identity" in the kernel's words
	Options  uint32 // WDIOF_*
	Firmware uint32
	// Pretimeout is how long before the reset the driver takes notice, 0 for not at all.
	Pretimeout time.Duration
}

// softwareName is the identity of the kernel's own softdog (drivers/watchdog/softdog.c). It hangs with its kernel.
const softwareName = "Software Watchdog"

// Hardware tells whether it is a timer outside of the kernel, as far as its name tells.
func (i Info) Hardware() bool { return i.Name != "" && i.Name != softwareName }

// MagicClose tells whether the driver can be told that a close is meant (the letter V).
func (i Info) MagicClose() bool { return i.Options&unix.WDIOF_MAGICCLOSE != 0 }

// Device is an armed watchdog: it was armed by being opened. Its methods block for as long as the driver does.
type Device interface {
	Info() Info
	// SetTimeout has it fire that long after the last feeding, and gives what the driver made of that. It feeds, too.
	SetTimeout(time.Duration) (time.Duration, error)
	Feed() error
	// Disarm stops and closes it. After an ErrNoWayOut it runs on, is still open, and wants to be fed; after any other
	// error it is closed and may run on.
	Disarm() error
	// Close leaves it armed. The kernel feeds it once more at that (watchdog_release in watchdog_dev.c), as it
	// does when the process ends.
	Close() error
}

// Now is the clock of this package: the time since the host's boot, suspended times included, because what others
// measure goes on while this host sleeps.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("watchdog: CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
	}
	return time.Duration(ts.Nano())
}
