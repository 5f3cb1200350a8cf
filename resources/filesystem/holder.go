package filesystem

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// heldBy names who on this host has the block device for itself, in whatever mount
// namespace; nobody is "". The kernel's word decides: it refuses a second exclusive opening
// (O_EXCL of open(2)), even while a mount is still being made.
func (s source) heldBy() (string, error) {
	name := sysName(s.dev)
	if name == "" {
		return "", nil // it has left this host
	}
	claimed, err := claimed(s.path)
	if err != nil || !claimed {
		return "", err
	}
	if above, _ := os.ReadDir("/sys/class/block/" + name + "/holders"); len(above) > 0 {
		return aboveName(above[0].Name()), nil
	}
	if isSwap(s.dev) {
		return "swap; release it with: swapoff " + s.path, nil
	}
	if where := s.mountedAnywhere(); where != "" {
		return where, nil
	}
	return "this host, but not by a mount that can be seen: a detached mount in use, a mounted partition of it, or a program that opened it exclusively (fuser -v " + s.path + ")", nil
}

func claimed(device string) (bool, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("device %s: %w", device, fault(err))
	}
	return false, unix.Close(fd)
}

// aboveName tells what a device stacked on ours is: its maker writes what it is for into dm/uuid, as in LVM-... or mpath-....
func aboveName(name string) string {
	read := func(file string) string {
		b, _ := os.ReadFile("/sys/class/block/" + name + "/" + file)
		return strings.TrimSpace(string(b))
	}
	maker, _, _ := strings.Cut(read("dm/uuid"), "-")
	switch {
	case read("dm/name") != "":
		return strings.TrimSpace(fmt.Sprintf("the device-mapper device %s (%s) %s", read("dm/name"), name, maker))
	case read("md/level") != "":
		return fmt.Sprintf("the RAID %s (%s)", name, read("md/level"))
	default:
		return "the block device " + name
	}
}

func isSwap(dev uint64) bool {
	b, _ := os.ReadFile("/proc/swaps")
	for line := range strings.Lines(string(b)) {
		path, _, _ := strings.Cut(line, " ")
		path, _, _ = strings.Cut(path, "\t")
		if n, ok := blockNumber(unescape(path)); ok && n == dev {
			return true
		}
	}
	return false
}

// loopOn gives a loop device that is set up on the block device: the one user that claims nothing of what is below it.
func loopOn(dev uint64) string {
	names, _ := os.ReadDir("/sys/class/block")
	for _, n := range names {
		if !strings.HasPrefix(n.Name(), "loop") {
			continue
		}
		b, _ := os.ReadFile("/sys/class/block/" + n.Name() + "/loop/backing_file")
		if at, ok := blockNumber(strings.TrimSuffix(string(b), "\n")); ok && at == dev {
			return n.Name()
		}
	}
	return ""
}

func blockNumber(path string) (uint64, bool) {
	if !strings.HasPrefix(path, "/dev/") {
		return 0, false
	}
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Rdev, err == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK
}

// mountedAnywhere looks through the mount namespaces of all processes.
func (s source) mountedAnywhere() string {
	all, _ := namespaces()
	for _, n := range all {
		for _, e := range n.table() {
			if s.holds(e) {
				return fmt.Sprintf("a mount: %s in %s", e, n)
			}
		}
	}
	return ""
}
