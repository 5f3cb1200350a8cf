package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// view is what the kernel says of the mount point and of the device.
type view struct {
	top       *entry  // the topmost mount at the mount point; nil if nothing is mounted there
	ours      bool    // top is what is configured
	elsewhere []entry // other mounts of the block device, in this mount namespace
	held      bool    // something on this host has the block device for itself
	missing   bool    // there is no such device now
	inside    []entry // mounts whose parent is top
}

// look reads the view. It may hang with the disk.
func (f *filesystem) look() (view, error) {
	id, root, err := mountID(unix.AT_FDCWD, f.opts.Mountpoint)
	if errors.Is(err, os.ErrNotExist) {
		root, err = false, nil
	}
	if err != nil {
		return view{}, fmt.Errorf("look at %s: %w", f.opts.Mountpoint, err)
	}
	table, err := readTable(func() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") }, id, root)
	if err != nil {
		return view{}, fmt.Errorf("look at %s: %w", f.opts.Mountpoint, err)
	}
	var v view
	dev, block, err := f.device()
	if errors.Is(err, os.ErrNotExist) {
		v.missing, err = true, nil
	}
	if err != nil {
		return view{}, err
	}
	for _, e := range table {
		switch {
		case root && e.id == id:
			v.top = &e
			v.ours = f.isOurs(e, dev, block)
		case block && isOn(e, dev):
			v.elsewhere = append(v.elsewhere, e)
		}
		if root && e.parent == id && e.id != id {
			v.inside = append(v.inside, e)
		}
	}
	if block && !v.ours {
		v.held, err = claimed(f.opts.Device)
	}
	return v, err
}

// device gives the number of the block device, if the source is one. A source that is
// a path and leads nowhere is os.ErrNotExist.
func (f *filesystem) device() (dev uint64, block bool, err error) {
	if !filepath.IsAbs(f.opts.Device) {
		return 0, false, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(f.opts.Device, &st); err != nil {
		return 0, false, fmt.Errorf("device %s: %w", f.opts.Device, err)
	}
	return st.Rdev, st.Mode&unix.S_IFMT == unix.S_IFBLK, nil
}

func (f *filesystem) isOurs(e entry, dev uint64, block bool) bool {
	switch {
	case f.bind():
		return sameFile(f.opts.Device, f.opts.Mountpoint)
	case block:
		return e.fstype == f.opts.Fstype && isOn(e, dev)
	default:
		return e.fstype == f.opts.Fstype && e.source == f.opts.Device
	}
}

// isOn reports whether the entry's file system is on the block device. Some file systems
// (btrfs) have a number of their own; those are known by the device that they name.
func isOn(e entry, dev uint64) bool {
	if e.dev == dev {
		return true
	}
	var st unix.Stat_t
	return unix.Major(e.dev) == 0 && filepath.IsAbs(e.source) && unix.Stat(e.source, &st) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == dev
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// claimed reports whether a mounted file system, or another driver, has the block
// device for itself. The kernel refuses a second exclusive opening (O_EXCL of open(2)),
// whichever mount namespace the first one is in, and while a mount is still being made.
func claimed(device string) (bool, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("device %s: %w", device, err)
	}
	return false, unix.Close(fd)
}

// mountID gives the ID of the mount that a path leads into, and whether the path is
// its root.
func mountID(dirfd int, path string) (id uint64, root bool, err error) {
	var st unix.Statx_t
	err = unix.Statx(dirfd, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	if err != nil {
		return 0, false, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 || st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return 0, false, errors.New("the kernel does not tell mount IDs (Linux 5.8 or later is needed)")
	}
	return st.Mnt_id, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// tries is how often the mount table is read anew when it lacks a mount that the
// kernel has just named.
const tries = 20

var errTorn = errors.New("the mount table does not show a mount that is there")

// readTable reads the mount table. It comes in pieces that are not of one instant, so
// a table without the wanted mount is read again.
func readTable(read func() ([]byte, error), id uint64, wanted bool) ([]entry, error) {
	for range tries {
		b, err := read()
		if err != nil {
			return nil, err
		}
		table, err := parseTable(b)
		if err != nil {
			return nil, err
		}
		if !wanted || slices.ContainsFunc(table, func(e entry) bool { return e.id == id }) {
			return table, nil
		}
	}
	return nil, errTorn
}

// Probe implements resources.Resource.
func (f *filesystem) Probe(ctx context.Context) (resources.State, string, error) {
	v, err := bounded(ctx, f.look)
	if err != nil {
		return resources.Unknown, "", err
	}
	state, detail := f.judge(v)
	return state, detail, nil
}

func (f *filesystem) judge(v view) (resources.State, string) {
	switch {
	case v.ours && v.top.readOnly() && f.flags&unix.MS_RDONLY == 0:
		return resources.Failed, "has become read-only"
	case v.ours:
		return resources.Active, v.top.String()
	case len(v.elsewhere) > 0:
		return resources.Failed, fmt.Sprintf("the device is mounted elsewhere: %s", v.elsewhere[0])
	case v.held:
		return resources.Failed, "the device is held on this host: mounted in another mount namespace, or used by another driver"
	case v.top != nil && (v.missing || f.bind()):
		return resources.Failed, fmt.Sprintf("%s is mounted, and %s has vanished or was replaced", v.top, f.opts.Device)
	case v.top != nil:
		return resources.Inactive, fmt.Sprintf("something else is mounted: %s", v.top)
	case v.missing:
		return resources.Inactive, "the device is not there"
	default:
		return resources.Inactive, ""
	}
}

// bounded runs a call that may hang in the kernel, for as long as the context allows.
func bounded[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	done := make(chan result, 1)
	go func() {
		v, err := call()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("the kernel does not answer: %w", ctx.Err())
	}
}
