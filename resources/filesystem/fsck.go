package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/resources"
)

// The policies of the key fsck. There is none that only looks (fsck -n): such a look does not replay the
// journal, and so finds errors in every file system whose host was just fenced.
const (
	fsckAuto  = "auto"
	fsckNever = "never"
	fsckPreen = "preen"
	fsckFull  = "full"
)

// checkable reports whether the type has a fsck that repairs what is safe. XFS and btrfs have
// a program of that name that does nothing.
func checkable(fstype string) bool {
	return !network(fstype) && !slices.Contains([]string{"xfs", "btrfs", "none", "tmpfs", "zfs"}, fstype)
}

// fsckProgram is the check's command line without the device; nil if the policy wants none.
func (f *filesystem) fsckProgram() []string {
	program := "fsck." + f.opts.Fstype
	isExt := slices.Contains([]string{"ext2", "ext3", "ext4"}, f.opts.Fstype)
	switch {
	case f.opts.Fsck == fsckFull && isExt:
		return []string{program, "-p", "-f"}
	case f.opts.Fsck == fsckPreen, f.opts.Fsck == fsckFull, f.opts.Fsck == fsckAuto && isExt:
		return []string{program, "-p"}
	default:
		return nil
	}
}

// The exit codes of fsck(8), which are bits.
const (
	fsckCorrected   = 1
	fsckReboot      = 2 // only for a mounted root
	fsckUncorrected = 4
	fsckOperational = 8
)

// fsck checks the device before it is mounted, and refuses one with errors that are left.
func (f *filesystem) fsck(ctx context.Context) error {
	argv := f.fsckProgram()
	if argv == nil {
		return nil
	}
	code, err := pass(ctx, f.calls, argv[0], func() (int, error) { return runProgram(ctx, append(argv, f.path())...) })
	var failed *programError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: %w; install it (Debian: e2fsprogs has that of ext4), or set fsck = \"never\"", resources.ErrSetup, err)
	case !errors.As(err, &failed):
		return err
	case code > 0 && code&^(fsckCorrected|fsckReboot) == 0:
		f.env.Log.Warn("the file system was repaired", "group", f.env.Group, "resource", f.env.Resource, "device", f.opts.Device, "output", failed.output)
		return nil
	}
	return f.fsckFault(failed)
}

// fsckFault tells a broken disk, which is this node's, from a broken file system, which is the same everywhere.
func (f *filesystem) fsckFault(failed *programError) error {
	for _, sign := range []string{"Input/output error", "No such device or address", "No medium found", "Remote I/O error"} {
		if strings.Contains(failed.output, sign) {
			return fmt.Errorf("%w: %w", resources.ErrNode, failed)
		}
	}
	if failed.code > 0 && failed.code&(fsckUncorrected|fsckOperational) == fsckUncorrected {
		return fmt.Errorf("%w: errors are left that need an operator: fsck.%s '%s': %w", resources.ErrSetup, f.opts.Fstype, f.path(), failed)
	}
	return fmt.Errorf("not checked, so not mounted: %w", failed)
}
