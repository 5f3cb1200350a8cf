package filesystem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

const (
	busyPause = 20 * time.Millisecond
	// releaseTime is how long the kernel may take to let go of a device after the
	// last unmount. What holds it longer is another mount.
	releaseTime = 2 * time.Second
)

// Stop implements resources.Resource. An unmount that succeeds proves that nobody used
// the mount; processes are looked for only when the kernel says that it is busy. A mount or
// a check that still hangs in the kernel is waited for: it may yet write.
func (f *filesystem) Stop(ctx context.Context) error {
	var busy error // why the last unmount failed
	failed := func(err error) error {
		if busy != nil {
			err = fmt.Errorf("%w: %w", busy, err)
		}
		return fmt.Errorf("unmount %s: %w", f.opts.Mountpoint, err)
	}
	var last *entry
	dead := false // the server: asked once, as every question that hangs holds the mount
	for {
		v, err := pass(ctx, f.calls, "look", f.look)
		if err != nil {
			return failed(err)
		}
		if !v.ours {
			busy = nil
			if err := f.released(ctx, v, last); err != nil {
				return failed(err)
			}
			return f.forget()
		}
		last = v.top
		if f.network() && !dead {
			dead = !f.answers(ctx)
		}
		err = f.unmount(ctx, dead)
		if err == nil || errors.Is(err, unix.EINVAL) {
			continue // EINVAL: somebody else was faster
		}
		if !errors.Is(err, unix.EBUSY) {
			return failed(err)
		}
		why, err := f.endUsers(ctx, v)
		if err != nil {
			return failed(err)
		}
		busy = why
	}
}

// unmount calls umount(2). From a dead NFS server it would not come back, so that is asked before; calls that wait
// for a dead one are ended (MNT_FORCE), with the data that it can no longer take. That is not a lazy unmount: a
// mount in use stays. umount.nfs(8) would only add a farewell to the server, and wait for its answer.
func (f *filesystem) unmount(ctx context.Context, dead bool) error {
	flags := unix.UMOUNT_NOFOLLOW
	if dead {
		flags |= unix.MNT_FORCE
	}
	return f.calls.enter(ctx, "unmount", func() error { return unix.Unmount(f.opts.Mountpoint, flags) })
}

// answers asks the server, for no longer than a quarter of the time that there is.
func (f *filesystem) answers(ctx context.Context) bool {
	limit := f.opts.DiskTimeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/4)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f.tests.enter(within, "statfs", func() error { return unix.Statfs(f.opts.Mountpoint, new(unix.Statfs_t)) })
	if err == nil || within.Err() == nil && !errors.Is(err, unix.EIO) && !errors.Is(err, unix.ETIMEDOUT) {
		return true
	}
	f.env.Log.Warn("the server does not answer, its file system is unmounted by force", "group", f.env.Group,
		"resource", f.env.Resource, "mountpoint", f.opts.Mountpoint, "err", err)
	return false
}

// endUsers ends who uses the mount. It returns what else keeps it busy if nobody does.
func (f *filesystem) endUsers(ctx context.Context, v view) (busy, err error) {
	ended, err := f.end(ctx, *v.top, false)
	if err != nil || ended {
		return nil, err
	}
	process.Sleep(ctx, busyPause)
	inside, err := f.inside(ctx, *v.top)
	if err != nil {
		return nil, err
	}
	if inside != nil {
		return fmt.Errorf("busy: %s is mounted inside", inside), nil
	}
	return errors.New("busy, and not by a process that can be seen: a swap file, a loop device, an NFS export, or this daemon's own test that hangs"), nil
}

// end ends the users of a mount, or of what is left of it elsewhere, and tells whether there were any.
func (f *filesystem) end(ctx context.Context, mount entry, gone bool) (bool, error) {
	find := func(ctx context.Context) ([]process.Process, error) {
		return pass(ctx, f.calls, "look for users", func() ([]process.Process, error) { return users(mount, gone) })
	}
	found, err := find(ctx)
	if err != nil || len(found) == 0 {
		return false, err
	}
	f.env.Log.Info("mount is busy, its users are ended", "group", f.env.Group, "resource", f.env.Resource,
		"mountpoint", f.opts.Mountpoint, "users", process.List(found))
	return true, process.Ending{Find: find, Signal: unix.SIGTERM, Grace: f.opts.KillAfter}.End(ctx)
}

// unmountCopies unmounts what other mount namespaces took along, once the mount itself has gone.
func (f *filesystem) unmountCopies(ctx context.Context, mount entry) error {
	for {
		err := f.calls.enter(ctx, "unmount elsewhere", func() error { return unmountCopies(mount) })
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if ended, endErr := f.end(ctx, mount, true); endErr != nil || !ended {
			return errors.Join(err, endErr)
		}
	}
}

// inside gives a mount whose parent is this one.
func (f *filesystem) inside(ctx context.Context, top entry) (*entry, error) {
	return pass(ctx, f.calls, "look", func() (*entry, error) {
		table, err := readTable(ownTable, top.id, false)
		for _, e := range table {
			if e.parent == top.id && e.id != top.id {
				return &e, nil
			}
		}
		return nil, err
	})
}

// released makes sure that nothing of the device is mounted any more on this host. last is
// the mount that was ours: copies of it that other mount namespaces took along go with it.
func (f *filesystem) released(ctx context.Context, v view, last *entry) error {
	copies, holder := last != nil, ""
	still := func(err error) error { // what was found before the time was over
		if holder != "" {
			return fmt.Errorf("the device is still held by %s: %w", holder, err)
		}
		return err
	}
	for end := time.Now().Add(releaseTime); ; {
		if last != nil && !f.bind() && unix.Major(last.dev) != 0 && last.dev != v.dev && v.holder == "" {
			var err error // its name leads elsewhere by now, but it may be here still
			if v.holder, err = pass(ctx, f.calls, "look", numbered(last.dev).heldBy); err != nil {
				return still(err)
			}
		}
		holder = v.holder
		switch {
		case v.top != nil && last == nil && (v.missing || f.bind()):
			return fmt.Errorf("it cannot be told whether %s is of %s, which has vanished or was replaced", v.top, f.opts.Device)
		case len(v.elsewhere) > 0:
			return fmt.Errorf("the device is still mounted: %s", v.elsewhere[0])
		case copies && (v.holder != "" || !v.block): // a disk that nobody holds has none
			if err := f.unmountCopies(ctx, *last); err != nil {
				return err
			}
			copies = false
		case v.holder == "":
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the device is still held by %s", v.holder)
		default:
			process.Sleep(ctx, busyPause)
		}
		var err error
		if v, err = pass(ctx, f.calls, "look", f.look); err != nil {
			return still(err)
		}
	}
}
