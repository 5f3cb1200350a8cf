package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// Start implements resources.Resource.
func (f *filesystem) Start(ctx context.Context) error {
	v, err := bounded(ctx, f.look)
	if err != nil {
		return fmt.Errorf("mount %s: %w", f.opts.Device, err)
	}
	if v.ours {
		return nil
	}
	if err := f.mayMount(v); err != nil {
		return fmt.Errorf("mount %s: %w", f.opts.Device, err)
	}
	pending := make(chan struct{})
	f.pending = pending
	_, err = bounded(ctx, func() (struct{}, error) {
		defer close(pending)
		err := f.mount()
		if err == nil && ctx.Err() != nil {
			// Nobody waits for it any more: it must not stay.
			err = errors.Join(ctx.Err(), unix.Unmount(f.opts.Mountpoint, unix.UMOUNT_NOFOLLOW))
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("mount %s (%s) at %s: %w", f.opts.Device, f.opts.Fstype, f.opts.Mountpoint, err)
	}
	v, err = bounded(ctx, f.look)
	if err == nil && !v.ours {
		err = errors.New("the kernel does not show it")
	}
	if err != nil {
		return fmt.Errorf("mount %s: mounted, but %w", f.opts.Device, err)
	}
	return nil
}

// mayMount refuses what would cover, double or be covered by something.
func (f *filesystem) mayMount(v view) error {
	switch {
	case v.missing:
		return fmt.Errorf("there is no %s on this node", f.opts.Device)
	case v.top != nil:
		return fmt.Errorf("something else is mounted there: %s; unmount it first", v.top)
	case len(v.elsewhere) > 0 && !f.bind():
		return fmt.Errorf("the device is mounted elsewhere: %s; unmount it first", v.elsewhere[0])
	case v.held && !f.bind():
		return errors.New("the device is held on this host: mounted in another mount namespace, or used by another driver")
	}
	info, err := os.Lstat(f.opts.Mountpoint)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("mount point %s is missing; create it with: mkdir -p '%s'", f.opts.Mountpoint, f.opts.Mountpoint)
	case err != nil:
		return fmt.Errorf("mount point: %w", err)
	case info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("mount point %s is a symbolic link; name the directory itself", f.opts.Mountpoint)
	case !info.IsDir() && !f.bind():
		return fmt.Errorf("mount point %s is no directory", f.opts.Mountpoint)
	}
	return nil
}

// mount calls mount(2). The kernel ignores every flag beside MS_BIND when it binds, so
// those are set by a second call.
func (f *filesystem) mount() error {
	if !f.bind() {
		return unix.Mount(f.opts.Device, f.opts.Mountpoint, f.opts.Fstype, f.flags, f.data)
	}
	if err := unix.Mount(f.opts.Device, f.opts.Mountpoint, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if f.flags == unix.MS_BIND {
		return nil
	}
	err := unix.Mount("", f.opts.Mountpoint, "", unix.MS_REMOUNT|f.flags, "")
	if err != nil {
		return errors.Join(err, unix.Unmount(f.opts.Mountpoint, unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

const (
	busyPause = 20 * time.Millisecond
	// releaseTime is how long the kernel may take to let go of a device after the
	// last unmount. What holds it longer is another mount.
	releaseTime = 2 * time.Second
)

// Stop implements resources.Resource. An unmount that succeeds proves that nobody used
// the mount; processes are looked for only when the kernel says that it is busy.
func (f *filesystem) Stop(ctx context.Context) error {
	if f.pending != nil { // a mount that hangs may still succeed
		select {
		case <-f.pending:
		case <-ctx.Done():
			return fmt.Errorf("unmount %s: the kernel still mounts it: %w", f.opts.Mountpoint, ctx.Err())
		}
	}
	var busy error // why the last unmount failed
	failed := func(err error) error {
		if busy != nil {
			err = fmt.Errorf("%w: %w", busy, err)
		}
		return fmt.Errorf("unmount %s: %w", f.opts.Mountpoint, err)
	}
	for {
		v, err := bounded(ctx, f.look)
		if err != nil {
			return failed(err)
		}
		if !v.ours {
			busy = nil
			if err := f.released(ctx, v); err != nil {
				return failed(err)
			}
			return nil
		}
		_, err = bounded(ctx, func() (struct{}, error) {
			return struct{}{}, unix.Unmount(f.opts.Mountpoint, unix.UMOUNT_NOFOLLOW)
		})
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

// endUsers ends who uses the mount. It returns what else keeps it busy if nobody does.
func (f *filesystem) endUsers(ctx context.Context, v view) (busy, err error) {
	find := func(ctx context.Context) ([]process.Process, error) {
		return bounded(ctx, func() ([]process.Process, error) { return users(*v.top) })
	}
	found, err := find(ctx)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		f.env.Log.Info("mount is busy, its users are ended", "group", f.env.Group, "resource", f.env.Resource,
			"mountpoint", f.opts.Mountpoint, "users", process.List(found))
		return nil, process.Ending{Find: find, Signal: unix.SIGTERM, Grace: f.opts.KillAfter}.End(ctx)
	}
	t := time.NewTimer(busyPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	if len(v.inside) > 0 {
		return fmt.Errorf("busy: %s is mounted inside", v.inside[0]), nil
	}
	return errors.New("busy, and not by a process that can be seen: a swap file, a loop device, an NFS export, or this daemon"), nil
}

// released makes sure that nothing of the device is mounted any more on this host.
func (f *filesystem) released(ctx context.Context, v view) error {
	for end := time.Now().Add(releaseTime); ; {
		switch {
		case v.top != nil && (v.missing || f.bind()):
			return fmt.Errorf("it cannot be told whether %s is of %s, which has vanished or was replaced", v.top, f.opts.Device)
		case len(v.elsewhere) > 0:
			return fmt.Errorf("the device is still mounted: %s", v.elsewhere[0])
		case !v.held:
			return nil
		case time.Now().After(end):
			return errors.New("the device is still held on this host: mounted in another mount namespace, or used by another driver")
		}
		t := time.NewTimer(busyPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		var err error
		if v, err = bounded(ctx, f.look); err != nil {
			return err
		}
	}
}
