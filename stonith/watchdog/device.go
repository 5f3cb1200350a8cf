package watchdog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// wdiosDisableCard stops the timer (WDIOS_DISABLECARD).
const wdiosDisableCard = unix.WDIOS_DISABLECARD

// card is a device of the kernel.
type card struct {
	path string
	fd   int
	info Info
}

// Open opens the device, and thereby arms it with whatever timeout the driver has. If ctx ends while the driver
// hangs, a device that opens later is disarmed again.
func Open(ctx context.Context, path string) (Device, error) {
	type result struct {
		c   *card
		err error
	}
	opened := make(chan result, 1)
	go func() {
		c, err := open(path)
		select {
		case opened <- result{c, err}:
		case <-ctx.Done():
			if c != nil {
				_ = c.Disarm() // nobody is there who could feed it
			}
		}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, r.err
		}
		return r.c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("open watchdog %s: %w", path, ctx.Err())
	}
}

func open(path string) (*card, error) {
	// A path that is no device must not be opened for writing.
	if _, err := deviceNumber(path); err != nil {
		return nil, fmt.Errorf("open watchdog: %w", err)
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	}
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("open watchdog %s: %w", path, busy(path))
	}
	if err != nil {
		return nil, fmt.Errorf("open watchdog %s: %w", path, err)
	}
	c := &card{path: path, fd: fd}
	if err := c.ask(); err != nil {
		// It is armed, if it is a watchdog at all.
		return nil, errors.Join(fmt.Errorf("open watchdog %s: %w", path, err), c.Disarm())
	}
	return c, nil
}

// busy names who has the device, if /proc tells.
func busy(path string) error {
	if h, ok := FindHolder("/proc", path); ok {
		return fmt.Errorf("%w by %s", ErrBusy, h)
	}
	return ErrBusy
}

func (c *card) ask() error {
	info, err := unix.IoctlGetWatchdogInfo(c.fd)
	if err != nil {
		return fmt.Errorf("WDIOC_GETSUPPORT: %w", err)
	}
	c.info = Info{Name: printable(unix.ByteSliceToString(info.Identity[:])), Options: info.Options, Firmware: info.Version}
	if info.Options&unix.WDIOF_PRETIMEOUT != 0 {
		if s, err := unix.IoctlGetInt(c.fd, unix.WDIOC_GETPRETIMEOUT); err == nil && s > 0 {
			c.info.Pretimeout = time.Duration(s) * time.Second
		}
	}
	return nil
}

func (c *card) Info() Info { return c.info }

func (c *card) SetTimeout(d time.Duration) (time.Duration, error) {
	if c.info.Options&unix.WDIOF_SETTIMEOUT != 0 {
		if err := unix.IoctlSetPointerInt(c.fd, unix.WDIOC_SETTIMEOUT, int(d/time.Second)); err != nil {
			return 0, fmt.Errorf("watchdog %s: set a timeout of %s: %w", c.path, d, err)
		}
	}
	s, err := unix.IoctlGetInt(c.fd, unix.WDIOC_GETTIMEOUT)
	if err != nil {
		return 0, fmt.Errorf("watchdog %s: read the timeout back: %w", c.path, err)
	}
	return time.Duration(s) * time.Second, c.Feed()
}

func (c *card) Feed() error {
	var err error
	if c.info.Options&unix.WDIOF_KEEPALIVEPING != 0 {
		err = unix.IoctlWatchdogKeepalive(c.fd)
	} else {
		// Any byte feeds; it must not be the letter that allows the close.
		_, err = unix.Write(c.fd, []byte{0})
	}
	if err != nil {
		return fmt.Errorf("feed watchdog %s: %w", c.path, err)
	}
	return nil
}

// Disarm asks in three ways, because each of them alone may be without effect: WDIOS_DISABLECARD is the only one that says
// whether it had any, drivers without it stop at a close after a V, and those that know no V stop at any close.
func (c *card) Disarm() error {
	err := unix.IoctlSetPointerInt(c.fd, unix.WDIOC_SETOPTIONS, wdiosDisableCard)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("watchdog %s: %w: it was set up with nowayout", c.path, ErrNoWayOut)
	case err == nil || c.info.MagicClose():
	default:
		return fmt.Errorf("watchdog %s: %w: the driver knows neither WDIOS_DISABLECARD (%v) nor the magic close", c.path, ErrNoWayOut, err)
	}
	if _, werr := unix.Write(c.fd, []byte("V")); werr != nil && err != nil {
		return errors.Join(fmt.Errorf("watchdog %s: magic close: %w", c.path, werr), c.Close())
	}
	if err := c.Close(); err != nil {
		return err
	}
	if id, err := Identify(c.path); err == nil && id.State == StateActive {
		return fmt.Errorf("watchdog %s: it was told to stop, and runs on", c.path)
	}
	return nil
}

func (c *card) Close() error {
	if c.fd < 0 {
		return nil
	}
	fd := c.fd
	c.fd = -1
	if err := unix.Close(fd); err != nil {
		return fmt.Errorf("close watchdog %s: %w", c.path, err)
	}
	return nil
}

// deviceNumber gives the number of a character device.
func deviceNumber(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, fmt.Errorf("%s is no character device", path)
	}
	return uint64(st.Rdev), nil
}
