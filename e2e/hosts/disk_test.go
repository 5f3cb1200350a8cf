//go:build systemdhost

package hosts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The shared disk is a file. Each boot of each host has it as a loop device of its own, with a cache of its own: two hosts that
// mount it at once ruin it, as in reality.

const diskMB = 32

// newDisk makes the shared disk, with an ext4 on it.
func newDisk(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(diskMB << 20); err != nil {
		return err
	}
	return command("mkfs.ext4", "-q", "-F", file)
}

// attachLoop makes a loop device of a file.
func attachLoop(file string) (number int, err error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer backing.Close()
	for {
		number, err = unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return 0, fmt.Errorf("a free loop device: %w", err)
		}
		err = func() error {
			dev, err := openLoop(number)
			if err != nil {
				return err
			}
			defer dev.Close()
			config := unix.LoopConfig{Fd: uint32(backing.Fd())}
			copy(config.Info.File_name[:63], file)
			_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dev.Fd(), unix.LOOP_CONFIGURE, uintptr(unsafe.Pointer(&config)))
			if errno != 0 {
				return errno
			}
			return nil
		}()
		if !errors.Is(err, syscall.EBUSY) { // somebody else took it
			return number, err
		}
	}
}

// openLoop opens a loop device, and makes its node where no udev does.
func openLoop(number int) (*os.File, error) {
	name := fmt.Sprintf("/dev/loop%d", number)
	if err := syscall.Mknod(name, syscall.S_IFBLK|0o660, 7<<8|number); err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.OpenFile(name, os.O_RDWR, 0)
}

// detachLoops detaches all loop devices on files below a folder, and waits until nothing holds them any more: until
// then something may be written.
func detachLoops(dir string) error {
	for end := time.Now().Add(sweepTime); ; time.Sleep(2 * time.Millisecond) {
		left := loopsOn(dir)
		if len(left) == 0 {
			return nil
		}
		for _, number := range left {
			detachLoop(number)
		}
		if time.Now().After(end) {
			return fmt.Errorf("loop devices %v on %s do not go", left, dir)
		}
	}
}

func detachLoop(number int) {
	if dev, err := openLoop(number); err == nil {
		unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0) // at the last close, where something holds it
		dev.Close()
	}
}

func loopsOn(path string) (numbers []int) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		backing, err := os.ReadFile(file)
		name, _, _ := strings.Cut(strings.TrimPrefix(file, "/sys/block/loop"), "/")
		number, bad := strconv.Atoi(name)
		if err == nil && bad == nil && strings.HasPrefix(string(backing), path+"/") {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// loseUnwritten makes the file systems that a host has on loop devices forget what they have not written, as a power cut
// does. Their journals stay for the next mount.
func loseUnwritten(pid int) {
	const (
		ext4Shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, the kernel's fs/ext4/ext4.h
		noLogFlush   = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
	)
	table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.HasPrefix(f[2], "7:") {
			continue
		}
		if d, err := os.Open(fmt.Sprintf("/proc/%d/root%s", pid, f[4])); err == nil {
			unix.IoctlSetPointerInt(int(d.Fd()), ext4Shutdown, noLogFlush)
			d.Close()
		}
	}
}
