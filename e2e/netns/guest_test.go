package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kernel is user-mode Linux: a kernel as a process of this host, whose root is this host's.
const kernel = "/usr/bin/linux.uml"

// guest is a host with a kernel of its own, for what a namespace has not: a wall clock. Its links end in the same switch
// as all others (Documentation/virt/uml/user_mode_linux_howto_v2.rst, BESS transport). A third device leads to the lab: by
// that it asks the power device and is asked by operators, as the others do by sockets in the file system, which two
// kernels do not share.
type guest struct {
	programs string // the folder of what runs there
	lines    [links]*line
	younger  time.Duration // than this host's kernel is its kernel, or little more
	steps    []clockStep
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// clockStep is one that the wall clock made, when the host's log was that long. The first is by how much it was ahead of
// this host's from the beginning.
type clockStep struct {
	at int
	by time.Duration
}

// steppedBefore is by how much the wall clock is off in a line of the log. Of a host that is no guest, nothing.
func (g *guest) steppedBefore(at int) (by time.Duration) {
	if g != nil {
		for _, s := range g.steps {
			if s.at <= at {
				by += s.by
			}
		}
	}
	return by
}

// The network between a guest and the lab, on the lab's side in the guest's namespace.
const (
	labDevice    = "lab"
	labAddress   = "10.89.0.1"
	guestAddress = "10.89.0.2"
	powerPort    = "1" // the lab's: the power device
	daemonPort   = "2" // the guest's: its daemon's socket
	clockPort    = "3" // the guest's: steps of its wall clock
)

// guestPrograms is the folder of the programs that run in guests. Those of the race detector ask for more address space than
// such a kernel has.
var guestPrograms = sync.OnceValues(func() (string, error) {
	if !raceDetector {
		return programs, nil
	}
	dir := filepath.Join(programs, "guests")
	for _, args := range [][]string{{"build", "-o", filepath.Join(dir, filepath.Base(hamgr)), "../../cmd/hamgr"}, {"test", "-c", "-o", filepath.Join(dir, guestName), "."}} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s: %w: %s", args[0], err, out)
		}
	}
	return dir, os.Symlink(guestName, filepath.Join(dir, fenceName))
})

func (h *host) newGuest() error {
	if _, err := os.Stat(kernel); err != nil {
		return fmt.Errorf("%s is missing: install the Debian package user-mode-linux", kernel)
	}
	dir, err := guestPrograms()
	if err != nil {
		return err
	}
	if err := h.space.ip("link set lo up", "tuntap add dev "+labDevice+" mode tap",
		"link set "+labDevice+" up", "addr add "+labAddress+"/24 dev "+labDevice); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &guest{programs: dir, cancel: cancel}
	h.guest = g
	for link := range g.lines {
		line, err := listenLine(h.line(link))
		if err != nil {
			return err
		}
		g.lines[link] = line
		h.l.wires.join(&port{link: link, node: h.name, number: h.number, end: line})
	}
	var power net.Listener
	err = h.space.do(func() (err error) {
		power, err = net.Listen("tcp4", net.JoinHostPort(labAddress, powerPort))
		return err
	})
	if err != nil {
		return err
	}
	join(ctx, &g.done, power, func() (net.Conn, error) { return net.Dial("unix", h.l.device.socket()) })
	socket, err := net.Listen("unix", h.socket())
	if err != nil {
		return err
	}
	join(ctx, &g.done, socket, func() (net.Conn, error) { return h.dialGuest(daemonPort) })
	return nil
}

func (h *host) line(link int) string { return h.l.file(fmt.Sprintf("%s.link%d", h.name, link)) }

func (g *guest) close() {
	g.cancel()
	g.done.Wait()
}

func (h *host) dialGuest(port string) (conn net.Conn, err error) {
	err = h.space.do(func() error {
		conn, err = net.DialTimeout("tcp4", net.JoinHostPort(guestAddress, port), 5*time.Second)
		return err
	})
	return conn, err
}

// boots is the kernel that the machine starts, which starts the daemon.
func (h *host) boots(daemon *exec.Cmd) *exec.Cmd {
	args := []string{"mem=256M", "rootfstype=hostfs", "rootflags=/", "root=/dev/root", "ro", "quiet", "panic=-1", "devtmpfs.mount=0",
		"init=" + filepath.Join(h.guest.programs, guestName), "con=null", "con0=null,fd:1", "umid=" + h.name + "-kernel", "uml_dir=" + h.l.dir}
	for link := range h.guest.lines {
		args = append(args, fmt.Sprintf("vec%d:transport=bess,dst=%s,mac=%s", link, h.line(link), mac(link, h.number)))
	}
	args = append(args, fmt.Sprintf("vec%d:transport=tap,ifname=%s", links, labDevice),
		guestVariable+"="+fmt.Sprint(h.number), powerVariable+"="+h.l.device.socket(),
		"GODEBUG=asyncpreemptoff=1", // a signal is dear there
		"--")
	cmd := exec.Command(kernel, append(args, daemon.Args[1:]...)...)
	cmd.Env = []string{"HOME=" + h.l.dir, "TMPDIR=/dev/shm", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = h.log, h.log
	return cmd
}

// booted waits until a guest is up, and learns what its monotonic clock shows.
func (l *lab) booted(h *host) {
	l.t.Helper()
	const often = 20
	l.until(patience, "user-mode Linux boots (it needs ptrace(2), which a container may forbid: add the capability SYS_PTRACE)", func(context.Context) error {
		for range often { // an answer is on its way for a while: the one for which that was shortest is right
			c, err := h.step(0)
			if err != nil {
				return err
			}
			if younger := monotonic() - c.mono; h.guest.younger == 0 || younger < h.guest.younger {
				h.guest.younger = younger
			}
		}
		c, err := h.step(0)
		if err == nil {
			h.guest.steps = []clockStep{{by: l.ahead(h, c)}}
		}
		return err
	})
}

// ahead is by how much a guest's wall clock is ahead of this host's, by what its clocks showed at one time.
func (l *lab) ahead(h *host, c clock) time.Duration {
	return c.wall.Sub(l.seen.wall.Add(c.mono + h.guest.younger - l.seen.mono))
}

// monotonic is what this host's clock of that kind shows.
func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// clock is what a guest's clocks show.
type clock struct {
	wall time.Time
	mono time.Duration // since its kernel's start
}

// step steps a guest's wall clock, and gives what its clocks show then.
func (h *host) step(by time.Duration) (c clock, err error) {
	conn, err := h.dialGuest(clockPort)
	if err != nil {
		return c, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(conn, by); err != nil {
		return c, err
	}
	var wall, mono int64
	if _, err := fmt.Fscanln(conn, &wall, &mono); err != nil {
		return c, fmt.Errorf("%s does not step its clock: %w", h.name, err)
	}
	return clock{wall: time.Unix(0, wall), mono: time.Duration(mono)}, nil
}

// line is the end of a guest's link: each boot of its kernel connects anew.
type line struct {
	listener *net.UnixListener

	mu   sync.Mutex
	conn *net.UnixConn // nil: the kernel is not there
}

func listenLine(path string) (*line, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return &line{listener: l}, nil
}

// Read gives the next frame of this boot or the next one. Only one goroutine reads.
func (l *line) Read(frame []byte) (int, error) {
	for {
		l.mu.Lock()
		conn := l.conn
		l.mu.Unlock()
		if conn == nil {
			next, err := l.listener.AcceptUnix()
			if err != nil {
				return 0, err
			}
			l.mu.Lock()
			l.conn = next
			l.mu.Unlock()
			continue
		}
		if n, err := conn.Read(frame); err == nil {
			return n, nil
		}
		l.mu.Lock()
		conn.Close()
		l.conn = nil
		l.mu.Unlock()
	}
}

// Write never waits: a frame that finds no room is lost, as on a wire.
func (l *line) Write(frame []byte) (int, error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return 0, os.ErrClosed
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		sent = unix.Send(int(fd), frame, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return len(frame), errors.Join(err, sent)
}

func (l *line) Close() error {
	err := l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
	return err
}

// stepped steps a guest's clock, and sees from inside that it did, and that this host's did not.
func (l *lab) stepped(h *host, by time.Duration) {
	l.t.Helper()
	began := time.Now()
	before, err := h.step(0)
	if err != nil {
		l.t.Fatal(err)
	}
	info, err := h.log.Stat()
	if err != nil {
		l.t.Fatal(err)
	}
	after, err := h.step(by)
	if err != nil {
		l.t.Fatal(err)
	}
	// By what it really was: to set a clock takes time.
	h.guest.steps = append(h.guest.steps, clockStep{at: int(info.Size()), by: l.ahead(h, after) - l.ahead(h, before)})
	took := after.mono - before.mono
	if got := after.wall.Sub(before.wall) - took; (got - by).Abs() > time.Second {
		l.t.Fatalf("the wall clock of %s stepped by %v, not %v", h.name, got, by)
	}
	if here := time.Now().Round(0).Sub(began.Round(0)) - time.Since(began); here.Abs() > time.Second {
		l.t.Fatalf("this host's wall clock stepped by %v", here)
	}
}
