package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Start implements resources.Resource.
func (f *filesystem) Start(ctx context.Context) error {
	if err := f.start(ctx); err != nil {
		return fmt.Errorf("mount %s (%s) at %s: %w", f.opts.Device, f.opts.Fstype, f.opts.Mountpoint, err)
	}
	return nil
}

func (f *filesystem) start(ctx context.Context) error {
	v, err := pass(ctx, f.calls, "look", f.look)
	if err != nil {
		return err
	}
	if v.ours && v.lost == "" {
		state, detail, err := f.Probe(ctx)
		if err == nil && state != resources.Active {
			err = fmt.Errorf("%w: mounted already, but %s", resources.ErrNode, detail)
		}
		if err != nil {
			return err
		}
		return f.record(*v.top)
	}
	err = f.calls.enter(ctx, "prepare", func() error {
		if err := f.mayMount(v); err != nil {
			return err
		}
		if f.opts.CreateMountpoint {
			return os.MkdirAll(f.opts.Mountpoint, 0o755)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := f.fsck(ctx); err != nil {
		return err
	}
	if err := f.calls.enter(ctx, "mount", func() error { return f.mountWithin(ctx) }); err != nil {
		return f.explain(ctx, err)
	}
	v, err = pass(ctx, f.calls, "look", f.look)
	if err == nil && !v.ours {
		err = errors.New("the kernel does not show it")
	}
	if err == nil {
		err = f.record(*v.top)
	}
	if err != nil {
		return fmt.Errorf("mounted, but %w", err)
	}
	return nil
}

// mayMount refuses what would cover, double or be covered by something. What is not there is a fault of this node, not
// of the setup: it may lie in a file system that is mounted before this one.
func (f *filesystem) mayMount(v view) error {
	switch {
	case v.lost != "":
		return fmt.Errorf("%w: still mounted from before, and its device %s", resources.ErrNode, v.lost)
	case v.top != nil:
		return fmt.Errorf("%w: something else is mounted there: %s; unmount it first", resources.ErrSetup, v.top)
	case v.missing && f.bind():
		return fmt.Errorf("%w: there is no directory %s to bind", resources.ErrNode, f.opts.Device)
	case v.missing:
		return f.errMissing()
	case len(v.elsewhere) > 0:
		return fmt.Errorf("%w: the device is mounted elsewhere: %s; unmount it first", resources.ErrElsewhere, v.elsewhere[0])
	case v.holder != "":
		return fmt.Errorf("%w: the device is held by %s", resources.ErrElsewhere, v.holder)
	}
	if v.block {
		if loop := loopOn(v.dev); loop != "" {
			return fmt.Errorf("%w: the loop device %s is set up on it; release it with: losetup --detach /dev/%s", resources.ErrElsewhere, loop, loop)
		}
	}
	info, err := os.Lstat(f.opts.Mountpoint)
	switch {
	case errors.Is(err, os.ErrNotExist) && f.opts.CreateMountpoint:
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: mount point %s is missing; set create_mountpoint, or create it with: mkdir -p '%s'", resources.ErrNode, f.opts.Mountpoint, f.opts.Mountpoint)
	case err != nil:
		return fmt.Errorf("mount point: %w", fault(err))
	case info.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%w: mount point %s is a symbolic link; name the directory itself", resources.ErrSetup, f.opts.Mountpoint)
	case !info.IsDir() && !f.bind():
		return fmt.Errorf("%w: mount point %s is no directory", resources.ErrSetup, f.opts.Mountpoint)
	}
	return nil
}

// mountWithin leaves nothing mounted that comes too late: nobody waits for it any more.
func (f *filesystem) mountWithin(ctx context.Context) error {
	err := f.mount(ctx)
	if err == nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), unix.Unmount(f.opts.Mountpoint, unix.UMOUNT_NOFOLLOW))
	}
	return err
}

// mount calls mount(2), or for NFS its program, which speaks with the server. The kernel ignores
// every flag beside MS_BIND when it binds, so those are set by a second call.
func (f *filesystem) mount(ctx context.Context) error {
	switch {
	case f.network():
		_, err := runProgram(ctx, f.mountProgram()...)
		return nfsFault(err)
	case !f.bind():
		return unix.Mount(f.path(), f.opts.Mountpoint, f.opts.Fstype, f.flags, f.data)
	}
	if err := unix.Mount(f.path(), f.opts.Mountpoint, "", unix.MS_BIND, ""); err != nil {
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

// mountNFS is the program of nfs-common (nfs-utils).
const mountNFS = "mount.nfs"

// mountProgram is the command line of mount.nfs(8), which takes all options by their names.
func (f *filesystem) mountProgram() []string {
	argv := []string{mountNFS}
	if f.opts.Fstype == "nfs4" {
		argv[0] = "mount.nfs4"
	}
	argv = append(argv, f.opts.Device, f.opts.Mountpoint)
	var options []string
	for option := range strings.SplitSeq(strings.Join(f.opts.Options, ","), ",") {
		if !ignored(option) {
			options = append(options, option)
		}
	}
	if len(options) > 0 {
		argv = append(argv, "-o", strings.Join(options, ","))
	}
	return argv
}

// nfsFault tells by the words of mount.nfs whose fault a refusal is: its exit code (32) is the same for all.
func nfsFault(err error) error {
	var failed *programError
	if !errors.As(err, &failed) {
		return err
	}
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(strings.ToLower(failed.output), w) {
				return true
			}
		}
		return false
	}
	switch {
	case says("access denied", "no such file", "incorrect mount option", "invalid argument", "unknown filesystem type", "protocol not supported"):
		return fmt.Errorf("%w: %w", resources.ErrSetup, err)
	case says("timed out", "no route to host", "unreachable", "connection refused"):
		return fmt.Errorf("%w: %w", resources.ErrNode, err)
	}
	return err
}

// explain adds what the kernel's one word for a refused mount means.
func (f *filesystem) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		v, lookErr := pass(ctx, f.calls, "look", f.look)
		if lookErr == nil && v.holder != "" {
			return fmt.Errorf("%w: the device is held by %s: %w", resources.ErrElsewhere, v.holder, err)
		}
	case errors.Is(err, unix.ENODEV) && !f.network():
		return fmt.Errorf("%w: this kernel does not know the file system %s: %w", resources.ErrSetup, f.opts.Fstype, err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (an option that %s does not know, another file system on the device, or a damaged one; see the kernel's log)", err, f.opts.Fstype)
	}
	return fault(err)
}
