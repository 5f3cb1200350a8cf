package filesystem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// Check implements resources.Checker.
func (f *filesystem) Check(ctx context.Context) error {
	return f.calls.enter(ctx, "look", func() error {
		v, err := f.look()
		if err == nil && !v.ours {
			err = f.mayMount(v)
		}
		return errors.Join(err, f.checkPrograms(), f.checkKernel(), f.checkFstab(v.source))
	})
}

func (f *filesystem) checkPrograms() error {
	var argv []string
	switch {
	case f.network():
		argv = f.mountProgram()
	default:
		argv = f.fsckProgram()
	}
	if argv == nil {
		return nil
	}
	if _, err := programPath(argv[0]); err != nil {
		cure := `install it, or set fsck = "never"`
		if f.network() {
			cure = "install it (Debian: nfs-common)"
		}
		return fmt.Errorf("%w: %w; %s", resources.ErrSetup, err, cure)
	}
	return nil
}

// checkKernel asks whether the kernel knows the type, or could load a module for it (its alias is fs-TYPE).
func (f *filesystem) checkKernel() error {
	if f.bind() {
		return nil
	}
	fstype, _, _ := strings.Cut(f.opts.Fstype, ".")
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(known)) {
		if _, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); name == fstype {
			return nil
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	modules := "/lib/modules/" + unix.ByteSliceToString(name.Release[:]) + "/modules."
	for _, file := range []string{"alias", "builtin.alias"} {
		aliases, _ := os.ReadFile(modules + file)
		if bytes.Contains(aliases, []byte("alias fs-"+fstype+" ")) {
			return nil
		}
	}
	return fmt.Errorf("%w: this kernel does not know the file system %s, and has no module for it", resources.ErrSetup, fstype)
}

// checkFstab refuses what the host mounts by itself at boot: it would be mounted on two nodes.
func (f *filesystem) checkFstab(s source) error {
	b, err := os.ReadFile("/etc/fstab")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(b), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || len(fields) > 3 && has(fields[3], "noauto") {
			continue
		}
		device, mountpoint := unescape(fields[0]), unescape(fields[1])
		other := filesystem{opts: Options{Device: device}}
		n, isBlock := blockNumber(other.path())
		if mountpoint != f.opts.Mountpoint && device != f.opts.Device && (!s.block || !isBlock || n != s.dev) {
			continue
		}
		return fmt.Errorf("%w: line %d of /etc/fstab mounts %s at boot; remove it, or add noauto to its options", resources.ErrSetup, i+1, device)
	}
	return nil
}
