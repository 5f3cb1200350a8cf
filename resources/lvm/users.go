package lvm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// mostNamed bounds how many devices, and users of one, are named to operators.
const mostNamed = 5

// users names who keeps a mapped device open, as far as it can be seen: the devices above it, mounts in any mount namespace,
// swap, processes.
func (v *volumeGroup) users(d device) (string, error) {
	number, err := readAttribute(filepath.Join(v.sys, d.kernel, "dev"))
	if isGone(err) {
		return "gone by now", nil
	}
	if err != nil {
		return "", err
	}
	above, err := os.ReadDir(filepath.Join(v.sys, d.kernel, "holders"))
	if err != nil {
		return "", err
	}
	var who []string
	for _, e := range above {
		who = append(who, "below "+e.Name())
	}
	swaps, err := os.ReadFile("/proc/swaps")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without swap
		return "", err
	}
	if swapsOn(swaps, number) {
		who = append(who, "swap")
	}
	opened, err := openedBy(number)
	if err != nil {
		return "", err
	}
	who = append(who, opened...)
	switch {
	case len(who) == 0:
		return "in use, and not by a process or mount that can be seen: a loop device, an export over the network", nil
	case len(who) > mostNamed:
		who = append(who[:mostNamed], "and more")
	}
	return strings.Join(who, ", "), nil
}

// openedBy names the mounts of a device, and the processes that have it open.
func openedBy(number string) ([]string, error) {
	all, err := process.All()
	if err != nil {
		return nil, err
	}
	var who []string
	spaces := map[string]bool{}
	for _, p := range all {
		dir := filepath.Join("/proc", strconv.Itoa(p.PID))
		if space, err := os.Readlink(filepath.Join(dir, "ns/mnt")); err == nil && !spaces[space] {
			spaces[space] = true
			table, _ := os.ReadFile(filepath.Join(dir, "mountinfo")) // a process that has ended has none
			for _, point := range mountsOf(table, number) {
				if s := "mounted at " + point; !slices.Contains(who, s) {
					who = append(who, s)
				}
			}
		}
		if hasOpen(filepath.Join(dir, "fd"), number) {
			who = append(who, "open in "+p.String())
		}
	}
	return who, nil
}

func hasOpen(dir, number string) bool {
	fds, _ := os.ReadDir(dir) // a process that has ended has none
	return slices.ContainsFunc(fds, func(e os.DirEntry) bool {
		path := filepath.Join(dir, e.Name())
		// Only what is a device node is asked: a file on a network may hang.
		target, err := os.Readlink(path)
		return err == nil && strings.HasPrefix(target, "/dev/") && isDevice(path, number)
	})
}

// mountsOf gives the mount points of a device in a mountinfo table (proc_pid_mountinfo(5)). A file system with a number
// of its own (btrfs) is known by the device that it names.
func mountsOf(table []byte, number string) []string {
	var points []string
	for line := range bytes.Lines(table) {
		fields := strings.Fields(string(line))
		dash := slices.Index(fields, "-")
		if dash < 6 || len(fields) < dash+3 {
			continue
		}
		if fields[2] == number || strings.HasPrefix(fields[2], "0:") && strings.HasPrefix(fields[dash+2], "/dev/") && isDevice(fields[dash+2], number) {
			points = append(points, fields[4])
		}
	}
	return points
}

func swapsOn(table []byte, number string) bool {
	for line := range bytes.Lines(table) {
		if path, _, ok := bytes.Cut(line, []byte(" ")); ok && bytes.HasPrefix(path, []byte("/dev/")) && isDevice(string(path), number) { // a swap file may be on a network that hangs
			return true
		}
	}
	return false
}

// isDevice reports whether the path leads to the node of the block device.
func isDevice(path, number string) bool {
	var st unix.Stat_t
	return filepath.IsAbs(path) && unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK &&
		fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)) == number
}
