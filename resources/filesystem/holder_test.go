package filesystem

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// wantError checks an error: which sentinel it wraps (nil: none of them), and its words.
func wantError(err, sentinel error, words string) error {
	for _, s := range []error{resources.ErrNode, resources.ErrSetup, resources.ErrElsewhere} {
		if errors.Is(err, s) != (s == sentinel) {
			return fmt.Errorf("error %v: is %v: %v", err, s, errors.Is(err, s))
		}
	}
	if err == nil || !strings.Contains(err.Error(), words) {
		return fmt.Errorf("error %v lacks %q", err, words)
	}
	return nil
}

// Whatever has the device for itself is named, and nothing is mounted.
func TestHolders(t *testing.T) {
	for name, test := range map[string]struct {
		want string
		hold func(t *testing.T, device string) (letGo func())
	}{
		"swap": {"swapoff", func(t *testing.T, device string) func() {
			run(t, "mkswap", device)
			run(t, "swapon", "--priority", "0", device)
			return func() { run(t, "swapoff", device) }
		}},
		"program": {"opened it exclusively", func(t *testing.T, device string) func() {
			fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL, 0)
			if err != nil {
				t.Fatal(err)
			}
			return func() { unix.Close(fd) }
		}},
		"detached mount": {"detached", func(t *testing.T, device string) func() {
			path := t.TempDir()
			if err := unix.Mount(device, path, "ext4", 0, ""); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Open(path, unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			return func() { unix.Close(fd) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			device := disk(t)
			f := unmounted(t, Options{Device: device, Mountpoint: t.TempDir(), Fstype: "ext4"})
			letGo := test.hold(t, device)
			wantDetail(t, f, resources.Failed, test.want)
			for what, err := range map[string]error{"start": f.Start(deadline(t, time.Minute)), "check": f.Check(deadline(t, time.Minute))} {
				if err := wantError(err, resources.ErrElsewhere, test.want); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := f.Stop(deadline(t, time.Second)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("stop: %v", err)
			}
			letGo()
			eventually(t, "the device is free", func() bool {
				state, _, err := f.Probe(t.Context())
				return err == nil && state == resources.Inactive
			})
			mustStop(t, f)
		})
	}
}

// A loop device claims nothing of what it is on; it is found all the same.
func TestLoopDeviceAbove(t *testing.T) {
	f := unmounted(t, Options{Device: disk(t), Mountpoint: t.TempDir(), Fstype: "ext4"})
	loop(t, f.opts.Device)
	if err := wantError(f.Start(deadline(t, time.Minute)), resources.ErrElsewhere, "losetup --detach"); err != nil {
		t.Error(err)
	}
	if err := wantError(f.Check(deadline(t, time.Minute)), resources.ErrElsewhere, "losetup --detach"); err != nil {
		t.Error(err)
	}
	mustStop(t, f)
}
