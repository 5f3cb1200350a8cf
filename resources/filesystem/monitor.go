package filesystem

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Probe implements resources.Resource. A disk that does not answer is told from a mount that
// is not there: what is mounted is known without the disk.
func (f *filesystem) Probe(ctx context.Context) (resources.State, string, error) {
	v, err := pass(ctx, f.calls, "look at "+f.opts.Mountpoint, f.look)
	if err != nil {
		return resources.Unknown, "", err
	}
	state, detail := f.judge(v)
	if state != resources.Active {
		return state, detail, nil
	}
	within, cancel := context.WithTimeout(ctx, f.opts.DiskTimeout)
	defer cancel()
	err = f.tests.enter(within, "read and write", func() error { return f.test(v) })
	switch {
	case err == nil:
		return state, detail, nil
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return state, detail + "; full, so nothing could be written to test it", nil
	case ctx.Err() != nil:
		return resources.Unknown, "", err
	case within.Err() != nil:
		return resources.Failed, fmt.Sprintf("%s does not answer within %s: %v", f.opts.Device, f.opts.DiskTimeout, err), nil
	}
	// What changed meanwhile is no failure of the disk.
	if now, lookErr := pass(ctx, f.calls, "look at "+f.opts.Mountpoint, f.look); lookErr == nil && !now.ours {
		state, detail = f.judge(now)
		return state, detail, nil
	}
	return resources.Failed, err.Error(), nil
}

func (f *filesystem) judge(v view) (resources.State, string) {
	switch {
	case v.lost != "":
		return resources.Failed, fmt.Sprintf("%s is mounted, and its device %s %s", v.top, f.opts.Device, v.lost)
	case v.ours && v.top.broken() != "":
		return resources.Failed, fmt.Sprintf("the file system gave up after errors (%s); see the kernel's log", v.top.broken())
	case v.ours && v.top.readOnly() && f.flags&unix.MS_RDONLY == 0:
		return resources.Failed, "has become read-only, as after errors of the disk; see the kernel's log"
	case v.ours:
		return resources.Active, v.top.String()
	case len(v.elsewhere) > 0:
		return resources.Failed, fmt.Sprintf("the device is mounted elsewhere: %s", v.elsewhere[0])
	case v.holder != "":
		return resources.Failed, "the device is held by " + v.holder
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

// test reads from the file system and from its disk, and writes if asked to. It touches
// nothing but the mount that was looked at.
func (f *filesystem) test(v view) error {
	root, err := unix.Open(f.opts.Mountpoint, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) { // of another owner, and the server does not take us for root
		root, err = unix.Open(f.opts.Mountpoint, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", f.opts.Mountpoint, fault(err))
	}
	defer unix.Close(root)
	if id, _, err := mountID(root, ""); err != nil || id != v.top.id {
		return fmt.Errorf("%s is not what it was a moment ago: %w", f.opts.Mountpoint, errors.Join(err, errTorn))
	}
	if err := unix.Fstatfs(root, new(unix.Statfs_t)); err != nil {
		return fmt.Errorf("statfs of %s: %w", f.opts.Mountpoint, fault(err))
	}
	if _, err := unix.ReadDirent(root, make([]byte, 1024)); err != nil && !errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("read directory %s: %w", f.opts.Mountpoint, fault(err))
	}
	if v.block && len(v.members) == 1 { // of several, a btrfs may do without one
		if err := readDisk(v.path); err != nil {
			return fmt.Errorf("read %s: %w", v.path, fault(err))
		}
	}
	if !f.opts.MonitorWrite || f.env.Token == 0 {
		return nil // without a grant it may only be looked at
	}
	if err := writeTest(root, f.env); err != nil {
		return fmt.Errorf("write %s/%s: %w", f.opts.Mountpoint, testFile, fault(err))
	}
	return nil
}

// blockSize is that of all disks, and of nearly all file systems.
const blockSize = 4096

// readDisk reads the first block from the disk itself: what the file system reads may be in memory.
func readDisk(device string) error {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_DIRECT|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Pread(fd, aligned(), 0)
	if err == nil && n == 0 {
		return fmt.Errorf("it has no size any more: %w", unix.ENXIO)
	}
	return err
}

// aligned gives a block that may be read into, or written, past the page cache (O_DIRECT of open(2)).
func aligned() []byte {
	b := make([]byte, 2*blockSize)
	skip := -uintptr(unsafe.Pointer(&b[0])) % blockSize
	return b[skip : skip+blockSize]
}

const testFile = ".hamgr-write-test"

// writeTest writes one block and waits for the disk. Users of the file system may put what they
// like in the file's place: nothing but a plain file without other names is written to.
func writeTest(root int, env resources.Env) error {
	fd, err := unix.Openat(root, testFile, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return fmt.Errorf("%w: not a plain file; remove it", resources.ErrSetup)
	}
	block := aligned()
	copy(block, fmt.Sprintf("hamgr: node %s, token %d, resource %s of group %s\n", env.Node, env.Token, env.Resource, env.Group))
	if _, err := unix.Pwrite(fd, block, 0); err != nil {
		return err
	}
	return unix.Fdatasync(fd)
}
