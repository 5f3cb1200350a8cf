package filesystem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// view is what the kernel says of the mount point and of the device.
type view struct {
	top  *entry // the topmost mount at the mount point; nil if nothing is mounted there
	ours bool   // top is what is configured, or what this resource mounted
	lost string // why the device can no longer be found that ours is of
	// Of the rest, only what is not ours is looked at.
	source
	elsewhere []entry // other mounts of the block device, in this mount namespace
	holder    string  // who on this host has the block device for itself
}

// look reads the view. It may hang with the disk.
func (f *filesystem) look() (view, error) {
	top, err := f.top()
	if err != nil {
		return view{}, fmt.Errorf("look at %s: %w", f.opts.Mountpoint, fault(err))
	}
	v := view{top: top}
	if v.source, err = f.source(); err != nil {
		return view{}, err
	}
	if top != nil {
		v.ours = f.isOurs(*top, v.source)
		if !v.ours && f.recorded(*top) {
			v.ours, v.lost = true, "was replaced by another one of that name"
			if v.missing {
				v.lost = "has vanished"
			}
		}
	}
	if v.ours || !v.block {
		return v, nil
	}
	table, err := readTable(ownTable, 0, false)
	if err != nil {
		return view{}, err
	}
	for _, e := range table {
		if v.holds(e) && (top == nil || e.id != top.id) {
			v.elsewhere = append(v.elsewhere, e)
		}
	}
	v.holder, err = v.heldBy()
	return v, err
}

// top gives the topmost mount at the mount point, nil if there is none.
func (f *filesystem) top() (*entry, error) {
	if f.network() {
		return f.topByName()
	}
	var e entry
	err := errTorn
	for i := 0; i < tries && errors.Is(err, errTorn); i++ { // mounts may go between the questions
		st, root, statErr := mountOf(unix.AT_FDCWD, f.opts.Mountpoint, statxMountIDUnique)
		if errors.Is(statErr, os.ErrNotExist) || statErr == nil && !root {
			return nil, nil
		}
		if statErr != nil { // as by an XFS that gave up
			return f.topByName()
		}
		err = errNoStatmount
		if st.Mask&statxMountIDUnique != 0 {
			e, err = statmount(st.Mnt_id)
		}
		if errors.Is(err, errNoStatmount) {
			e, err = f.topInTable()
		}
	}
	if err != nil {
		return nil, err
	}
	return &e, nil
}

// topInTable is for kernels that do not tell single mounts.
func (f *filesystem) topInTable() (entry, error) {
	id, _, err := mountID(unix.AT_FDCWD, f.opts.Mountpoint)
	if err != nil {
		return entry{}, err
	}
	table, err := readTable(ownTable, id, true)
	if err != nil {
		return entry{}, err
	}
	for _, e := range table {
		if e.id == id {
			return e, nil
		}
	}
	return entry{}, errTorn
}

// topByName finds the mount in the table by its path, without touching it: to ask a network
// file system for its mount ID would ask its server, and a broken one answers with an error.
func (f *filesystem) topByName() (*entry, error) {
	above, err := filepath.EvalSymlinks(filepath.Dir(f.opts.Mountpoint))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	table, err := wholeTable()
	if err != nil {
		return nil, err
	}
	return topmost(table, filepath.Join(above, filepath.Base(f.opts.Mountpoint))), nil
}

// topmost is the mount at a path that no other one at that path is mounted on.
func topmost(table []entry, path string) *entry {
	covered := map[uint64]bool{}
	for _, e := range table {
		if e.mountpoint == path {
			covered[e.parent] = e.parent != e.id
		}
	}
	for _, e := range table {
		if e.mountpoint == path && !covered[e.id] {
			return &e
		}
	}
	return nil
}

// mountOf asks for the mount that a path leads into, and whether the path is its root.
func mountOf(dirfd int, path string, mask int) (st unix.Statx_t, root bool, err error) {
	flags := unix.AT_STATX_DONT_SYNC
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dirfd, path, flags, mask, &st); err != nil {
		return st, false, err
	}
	if st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return st, false, errOldKernel
	}
	return st, st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

var errOldKernel = errors.New("the kernel does not tell mount IDs (Linux 5.8 or later is needed)")

// mountID gives the ID of that mount as the mount table shows it.
func mountID(dirfd int, path string) (id uint64, root bool, err error) {
	st, root, err := mountOf(dirfd, path, unix.STATX_MNT_ID)
	if err == nil && st.Mask&unix.STATX_MNT_ID == 0 {
		err = errOldKernel
	}
	return st.Mnt_id, root, err
}

// heldMount gives the ID of the mount that an open file or a link of /proc leads into, even if the file system is
// broken: an open for the path alone (O_PATH) does not ask it.
func heldMount(dirfd int, path string) (uint64, error) {
	id, _, err := mountID(dirfd, path)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return id, err
	}
	fd, err := unix.Openat(dirfd, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(b), "mnt_id:")
	line, _, _ := strings.Cut(after, "\n")
	return strconv.ParseUint(strings.TrimSpace(line), 10, 64)
}

// The record names the mount that this resource made: while it is there it is ours, wherever
// its device has gone.
func (f *filesystem) recordFile() string { return filepath.Join(f.env.Dir, "mount") }

func recordOf(e entry) string {
	return fmt.Sprintf("mount %d of %d:%d at %s\n", e.id, unix.Major(e.dev), unix.Minor(e.dev), e.mountpoint)
}

func (f *filesystem) recorded(e entry) bool {
	if f.env.Dir == "" {
		return false
	}
	b, err := os.ReadFile(f.recordFile())
	return err == nil && string(b) == recordOf(e)
}

func (f *filesystem) record(e entry) error {
	if f.env.Dir == "" {
		return nil
	}
	return os.WriteFile(f.recordFile(), []byte(recordOf(e)), 0o600)
}

func (f *filesystem) forget() error {
	if f.env.Dir == "" {
		return nil
	}
	if err := os.Remove(f.recordFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
