package netns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guestName is this program as the first process of a guest, whose arguments are the daemon's.
	guestName = "guest"
	// guestVariable gives it the host's number, powerVariable the power device's socket. The kernel hands them on.
	guestVariable = "HAMGR_NETNS_GUEST"
	powerVariable = "HAMGR_NETNS_POWER"
	guestSocket   = "/run/hamgr.sock"
)

// firstOfGuest is the first process of a kernel of its own. It makes that a host, starts the daemon, and reaps whom nobody
// else does. It ends with the kernel, whose power is cut.
func firstOfGuest() int {
	daemon := slices.DeleteFunc(os.Args[1:], func(arg string) bool { return strings.HasPrefix(arg, "console=") }) // the kernel's
	if err := boot(daemon); err != nil {
		fmt.Println("GUEST:", err)
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		return 1
	}
	for {
		var status unix.WaitStatus
		if pid, err := unix.Wait4(-1, &status, 0, nil); errors.Is(err, unix.ECHILD) {
			time.Sleep(pollEvery) // the daemon has ended, and all that it started
		} else if err == nil && status.Signaled() {
			fmt.Printf("GUEST: process %d ended by %v\n", pid, status.Signal())
		}
	}
}

func boot(daemon []string) error {
	number, err := strconv.ParseUint(os.Getenv(guestVariable), 10, 8)
	if err != nil {
		return err
	}
	for _, m := range [][3]string{{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"tmpfs", "/run", ""}, {"hostfs", "/dev/shm", "/dev/shm"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, m[2]); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	if dir := filepath.Dir(os.Args[0]); dir != programs {
		if err := unix.Mount(dir, programs, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("programs: %w", err)
		}
	}
	if err := errors.Join(os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), os.Setenv("RUNTIME_DIRECTORY", "/run/hamgr")); err != nil {
		return err
	}
	config := []string{"link set lo up"}
	for device, address := range []string{address(0, byte(number)), address(1, byte(number)), guestAddress} {
		config = append(config, fmt.Sprintf("link set vec%d up", device), fmt.Sprintf("addr add %s/24 dev vec%d", address, device))
	}
	if err := command(strings.Join(config, "\n")+"\n", "ip", "-batch", "-"); err != nil {
		return err
	}
	if err := serveGuest(); err != nil {
		return err
	}
	cmd := exec.Command(hamgr, daemon...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Start()
}

// serveGuest joins this kernel with the lab.
func serveGuest() error {
	var forever sync.WaitGroup
	ctx := context.Background()
	power, err := net.Listen("unix", "/run/power.sock")
	if err != nil {
		return err
	}
	if err := unix.Mount("/run/power.sock", os.Getenv(powerVariable), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("the power device's socket: %w", err)
	}
	join(ctx, &forever, power, func() (net.Conn, error) { return net.Dial("tcp4", net.JoinHostPort(labAddress, powerPort)) })
	operators, err := net.Listen("tcp4", net.JoinHostPort(guestAddress, daemonPort))
	if err != nil {
		return err
	}
	join(ctx, &forever, operators, func() (net.Conn, error) { return net.Dial("unix", guestSocket) })
	steps, err := net.Listen("tcp4", net.JoinHostPort(guestAddress, clockPort))
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := steps.Accept()
			if err != nil {
				fmt.Println("GUEST:", err)
				return
			}
			if err := stepClock(conn); err != nil && !errors.Is(err, io.EOF) {
				fmt.Println("GUEST:", err)
			}
			conn.Close()
		}
	}()
	return nil
}

// stepClock steps the wall clock by what is asked for, and answers with what the wall clock and the monotonic one show.
func stepClock(conn net.Conn) error {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	by, err := time.ParseDuration(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	var wall, mono unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &wall); err != nil {
		return err
	}
	if by != 0 {
		wall = unix.NsecToTimespec(wall.Nano() + int64(by))
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &wall); err != nil {
			return fmt.Errorf("step the clock by %v: %w", by, err)
		}
	}
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_REALTIME, &wall), unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(conn, wall.Nano(), mono.Nano())
	return err
}

// join joins each connection at a listener with one that dial makes, until ctx ends.
func join(ctx context.Context, done *sync.WaitGroup, listener net.Listener, dial func() (net.Conn, error)) {
	context.AfterFunc(ctx, func() { listener.Close() })
	done.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer near.Close()
				far, err := dial()
				if err != nil {
					return
				}
				pair, end := context.WithCancel(ctx)
				context.AfterFunc(pair, func() { near.Close(); far.Close() })
				done.Go(func() {
					defer end()
					io.Copy(far, near)
				})
				defer end()
				io.Copy(near, far)
			})
		}
	})
}
