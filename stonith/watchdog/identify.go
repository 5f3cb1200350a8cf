package watchdog

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// The states of a watchdog in sysfs.
const (
	StateActive   = "active"
	StateInactive = "inactive"
)

// Identity is what can be known of a watchdog without arming it.
type Identity struct {
	Path   string
	Device string // "watchdog0"; empty for a driver that does not use the kernel's watchdog core
	// Known says that the kernel shows the rest (CONFIG_WATCHDOG_SYSFS). Without, it would have to be opened for that, which
	// arms it.
	Known bool
	Info
	Driver   string // of the device below; empty for one that is software
	State    string // StateActive, StateInactive
	NoWayOut bool
	Timeout  time.Duration
	TimeLeft time.Duration // 0: not known, or not running
	Longest  time.Duration // the longest timeout that the driver takes; 0: it does not say
	// BootStatus is what the driver says of the last boot (WDIOF_*); 0 for nothing, or for a driver that keeps nothing.
	BootStatus uint32
	HasBoot    bool // BootStatus was read
}

// CardReset tells whether the driver says that the watchdog caused the last boot.
func (i Identity) CardReset() bool { return i.BootStatus&unix.WDIOF_CARDRESET != 0 }

// KeepsReset tells whether the driver says that it would tell.
func (i Identity) KeepsReset() bool { return i.HasBoot && i.Options&unix.WDIOF_CARDRESET != 0 }

// Identify reads what sysfs says of the watchdog at that path. It does not open the device.
func Identify(path string) (Identity, error) {
	number, err := deviceNumber(path)
	if err != nil {
		return Identity{Path: path}, fmt.Errorf("identify watchdog: %w", err)
	}
	return identify("/sys", path, number)
}

// The device of the old interface, /dev/watchdog, is the first one of the core, unless an old driver has it.
const miscMajor, miscMinor = 10, 130

func identify(sys, path string, number uint64) (Identity, error) {
	id := Identity{Path: path}
	class := filepath.Join(sys, "class/watchdog")
	all, err := os.ReadDir(class)
	if err != nil && !os.IsNotExist(err) {
		return id, fmt.Errorf("identify watchdog: %w", err)
	}
	major, minor := unix.Major(number), unix.Minor(number)
	for _, e := range all {
		dev, err := attribute(filepath.Join(class, e.Name()), "dev")
		legacy := major == miscMajor && minor == miscMinor && e.Name() == "watchdog0"
		if legacy || err == nil && dev == fmt.Sprintf("%d:%d", major, minor) {
			id.Device = e.Name()
			break
		}
	}
	if id.Device == "" {
		if major == miscMajor && minor == miscMinor {
			return id, nil
		}
		return id, fmt.Errorf("identify watchdog: %s is device %d:%d, and that is no watchdog", path, major, minor)
	}
	return id, id.read(filepath.Join(class, id.Device))
}

// read fills in the attributes. Which ones there are depends on the kernel and the driver.
func (i *Identity) read(dir string) error {
	name, err := attribute(dir, "identity")
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("identify watchdog: %w", err)
	}
	i.Known, i.Name = true, printable(name)
	i.State, _ = attribute(dir, "state")
	i.NoWayOut = number(dir, "nowayout") != 0
	i.Options = uint32(number(dir, "options"))
	i.Firmware = uint32(number(dir, "fw_version"))
	i.Timeout, i.TimeLeft = seconds(dir, "timeout"), seconds(dir, "timeleft")
	i.Pretimeout, i.Longest = seconds(dir, "pretimeout"), seconds(dir, "max_timeout")
	if text, err := attribute(dir, "bootstatus"); err == nil {
		if n, err := parseNumber(text); err == nil {
			i.BootStatus, i.HasBoot = uint32(n), true
		}
	}
	if link, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
		i.Driver = printable(filepath.Base(link))
	}
	return nil
}

// attribute reads one of sysfs, at most a page.
func attribute(dir, name string) (string, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// number reads an attribute; 0 if there is none, or if it is no number.
func number(dir, name string) uint64 {
	text, err := attribute(dir, name)
	if err != nil {
		return 0
	}
	n, err := parseNumber(text)
	if err != nil {
		return 0
	}
	return n
}

func seconds(dir, name string) time.Duration {
	return time.Duration(number(dir, name)) * time.Second
}

// parseNumber reads what the kernel writes with %u, %d or 0x%x. All of it has 32 bits.
func parseNumber(s string) (uint64, error) {
	if hex, ok := strings.CutPrefix(s, "0x"); ok {
		return strconv.ParseUint(hex, 16, 32)
	}
	return strconv.ParseUint(s, 10, 32)
}

// printable keeps a driver's words to one line of print.
func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, " ")))
}

// Flags names the bits of options or of a boot status.
func Flags(bits uint32) []string {
	var names []string
	for _, f := range []struct {
		bit  uint32
		name string
	}{
		{unix.WDIOF_OVERHEAT, "overheat"}, {unix.WDIOF_FANFAULT, "fan fault"}, {unix.WDIOF_EXTERN1, "external relay 1"},
		{unix.WDIOF_EXTERN2, "external relay 2"}, {unix.WDIOF_POWERUNDER, "power bad"}, {unix.WDIOF_CARDRESET, "watchdog reset"},
		{unix.WDIOF_POWEROVER, "power over voltage"}, {unix.WDIOF_SETTIMEOUT, "set timeout"}, {unix.WDIOF_MAGICCLOSE, "magic close"},
		{unix.WDIOF_PRETIMEOUT, "pretimeout"}, {unix.WDIOF_ALARMONLY, "alarm only"}, {unix.WDIOF_KEEPALIVEPING, "keepalive"},
	} {
		if bits&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	return names
}
