package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/agents/redfish/redfishsim"
	"github.com/hamgr/hamgr/e2e/history"
)

// host is a node's machine: a network namespace, a folder for a disk, and whatever runs there between power-on and
// power-off. What a boot has started is known by the boot's ID, which all of it carries.
type host struct {
	l       *lab
	name    string
	number  byte
	space   *space
	id      string // of the namespace
	log     *os.File
	machine *redfishsim.ProcessPower
	guest   *guest // nil: it shares this host's kernel

	mu        sync.Mutex // one change of the power at a time
	gone      bool       // for good
	restarted []*exec.Cmd
}

func (l *lab) newHost(name string, number byte) (_ *host, err error) {
	h := &host{l: l, name: name, number: number}
	if h.space, err = newSpace(); err != nil {
		return nil, err
	}
	if h.id, err = h.space.id(); err == nil && name == l.shape.guest {
		err = h.newGuest()
	} else if err == nil {
		err = l.wires.attach(h.space, name, number)
	}
	if err == nil {
		h.log, err = os.OpenFile(l.file(name+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err != nil {
		if h.guest != nil {
			h.guest.close()
		}
		h.space.close()
		return nil, err
	}
	h.machine = redfishsim.NewProcessPower(h.daemon)
	return h, nil
}

func (h *host) data() string   { return h.l.file(h.name) }
func (h *host) config() string { return h.l.file(h.name + ".toml") }
func (h *host) socket() string { return h.l.file(h.name + ".sock") }

// daemon is what the machine starts. Its log goes straight to a file: through a pipe of ours it would wait for us.
func (h *host) daemon(boot string) *exec.Cmd {
	socket := h.socket()
	if h.guest != nil {
		socket = guestSocket
	}
	cmd := exec.Command(hamgr, "run", "--config", h.config(), "--node", h.name, "--data-dir", h.data(),
		"--socket", socket, "--boot-id", boot, "--log-format", "json")
	if h.guest != nil {
		return h.boots(cmd)
	}
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1", "RUNTIME_DIRECTORY="+h.l.file(h.name+".run"))
	cmd.Stdout, cmd.Stderr = h.log, h.log
	return cmd
}

// powerTime bounds what the machine itself takes to be switched.
const powerTime = 60 * time.Second

func (h *host) on() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return errors.New("the lab is over")
	}
	ctx, cancel := context.WithTimeout(context.Background(), powerTime)
	defer cancel()
	h.l.wires.plug(h.name, true)
	began, was := h.l.seen.now(), h.machine.Boot()
	err := h.space.do(func() error { return h.machine.On(ctx) })
	if boot := h.machine.Boot(); boot != was {
		h.l.seen.sawAt(began, history.PowerOn, h.name, boot)
		h.l.seen.sawAt(began, history.Boot, h.name, boot)
	}
	return err
}

// off is the end of a boot. Nothing that dies can say so: the wires are dead before.
func (h *host) off() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), powerTime)
	defer cancel()
	h.l.wires.plug(h.name, false)
	boot := h.machine.Boot()
	err := h.machine.Off(ctx)
	if boot != "" && err == nil {
		h.l.seen.saw(history.Killed, h.name, boot)
	}
	for _, cmd := range h.restarted {
		cmd.Wait() // it was killed with its machine
	}
	h.restarted = nil
	return err
}

// freeze makes the whole host stand still. Its kernel would go on answering, so its wires are dead meanwhile.
func (h *host) freeze(ctx context.Context) error {
	h.l.wires.plug(h.name, false)
	err := h.machine.Signal(ctx, syscall.SIGSTOP)
	h.l.seen.saw(history.Frozen, h.name, h.machine.Boot())
	return err
}

// thaw ends freeze, if that boot still stands there: it wakes with its old beliefs.
func (h *host) thaw(ctx context.Context, boot string) (was bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.machine.Boot() != boot {
		return false, nil
	}
	h.l.wires.plug(h.name, true)
	h.l.seen.saw(history.Thawed, h.name, boot)
	return true, h.machine.Signal(ctx, syscall.SIGCONT)
}

// pid is the process of the daemon, without what it has started.
func (h *host) pid() (int, error) {
	pids, err := h.machine.Processes()
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := bytes.Split(text, []byte{0}); err == nil && len(words) > 1 && string(words[1]) == "run" {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no daemon runs on %s", h.name)
}

// signal is for the daemon alone.
func (h *host) signal(sig syscall.Signal) error {
	pid, err := h.pid()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, sig)
}

// kill ends the daemon at once, and leaves alone what it has started.
func (h *host) kill() error {
	pid, err := h.pid()
	if err != nil {
		return err
	}
	h.l.seen.saw(history.Killed, h.name, h.machine.Boot())
	return h.end(pid, syscall.SIGKILL)
}

// end sends a signal and waits until all threads of the process are gone, and with them its files: a port is free only
// then. That nobody has reaped it yet does no harm (pidfd_open(2)).
func (h *host) end(pid int, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("the daemon of %s: %w", h.name, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("%v to the daemon of %s: %w", sig, h.name, err)
	}
	for end := time.Now().Add(powerTime); time.Now().Before(end); {
		switch n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(powerTime.Milliseconds())); {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return err
		}
	}
	return fmt.Errorf("the daemon of %s survives %v", h.name, sig)
}

// stop ends the daemon as a service manager would that says nothing: what it runs goes on.
func (h *host) stop() error {
	pid, err := h.pid()
	if err != nil {
		return err
	}
	return h.end(pid, syscall.SIGTERM)
}

// restart starts the daemon again after its end, in the same boot.
func (h *host) restart() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	boot := h.machine.Boot()
	if boot == "" {
		return fmt.Errorf("%s is off", h.name)
	}
	cmd := h.daemon(boot)
	cmd.Env = append(cmd.Env, redfishsim.MachineVariable+"="+boot)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := h.space.do(cmd.Start); err != nil {
		return err
	}
	h.restarted = append(h.restarted, cmd)
	return nil
}

// remove ends the host for good.
func (h *host) remove() error {
	h.mu.Lock()
	h.gone = true
	h.mu.Unlock()
	err := h.off()
	if h.guest != nil {
		h.guest.close()
	}
	h.space.close()
	return errors.Join(err, h.log.Close())
}

// retire keeps the host from ever being on again.
func (h *host) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
}
