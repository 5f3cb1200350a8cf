//go:build systemdhost

package hosts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// host is one host. Its disk is a folder, which survives its boots.
type host struct {
	l       *lab
	name    string
	number  int
	address string
	dir     string

	mu    sync.Mutex // one change of the power at a time
	power power
	boot  *boot // nil: off
}

// boot is one run of a host.
type boot struct {
	cmd    *exec.Cmd
	frozen bool
	gone   chan struct{} // closed when nothing of it is left
}

func (l *lab) newHost(number int) (*host, error) {
	h := &host{l: l, name: fmt.Sprintf("n%d", number), number: number, address: fmt.Sprintf(hostNet, number), power: power{plugged: true, outlet: true}}
	h.dir = filepath.Join(l.dir, h.name)
	for _, d := range []string{"upper/etc", "work", "root"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	return h, errors.Join(
		h.put("/etc/machine-id", fmt.Sprintf("%032x\n", number), 0o444),
		h.put("/etc/hostname", h.name+"\n", 0o644),
		h.put("/etc/hosts", "127.0.0.1 localhost "+h.name+"\n", 0o644),
		os.Link(l.disk(), h.disk()),
		os.WriteFile(filepath.Join(h.dir, "binds"), []byte(l.watched()+" /watched\n"), 0o644),
	)
}

// put writes a file on the disk of a host that is off.
func (h *host) put(path, text string, mode os.FileMode) error {
	path = filepath.Join(h.dir, "upper", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), mode)
}

// cg is the host's cgroup: its systemd's root.
func (h *host) cg() string { return filepath.Join(h.l.cg, h.name) }

// What no process of a host may have: the machine's clock, modules, kernel log, raw I/O, device nodes.
const noCapabilities = "-sys_time,-sys_module,-sys_rawio,-syslog,-wake_alarm,-block_suspend,-mknod"

// start boots the host. It holds mu.
func (h *host) start() error {
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return err
	}
	loop, err := attachLoop(h.disk())
	if err != nil {
		return fmt.Errorf("shared disk of %s: %w", h.name, err)
	}
	os.Remove(filepath.Join(h.dir, "pid"))
	console, err := os.OpenFile(filepath.Join(h.dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	err = errors.Join(
		os.MkdirAll(h.cg(), 0o755),
		os.WriteFile(filepath.Join(h.dir, "boot_id"), id, 0o444),
		os.WriteFile(filepath.Join(h.dir, "devices"), fmt.Appendf(nil, "shared0 7 %d\n", loop), 0o644),
		ip([]string{"netns", "add", h.l.space(h.name)}),
		h.l.plug(h.name, h.address, h.mac()),
	)
	if err != nil {
		return err
	}
	cmd := exec.Command("nsenter", "--net=/run/netns/"+h.l.space(h.name),
		"unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--propagation", "private",
		"bash", "../systemd/init.sh", h.dir, h.cg(), h.l.root, noCapabilities)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	b := &boot{cmd: cmd, gone: make(chan struct{})}
	h.boot = b
	go h.attend(b)
	return nil
}

// disk is the name under which this host's loop device knows the shared disk, so that it is told from the others'.
func (h *host) disk() string { return filepath.Join(h.dir, "shared.img") }

func (h *host) mac() string { return fmt.Sprintf("02:77:00:00:00:%02x", h.number) }

// attend waits until a boot ends, clears up after it, and boots again if the host itself asked for it.
func (h *host) attend(b *boot) {
	err := b.cmd.Wait()
	if left := h.clear(); left != nil {
		h.l.t.Errorf("after a boot of %s: %v", h.name, left)
	}
	close(b.gone)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot != b {
		return // it was cut off
	}
	h.boot = nil
	// The first process of a PID namespace that calls reboot(2) dies by SIGHUP for a restart and by SIGINT for a halt
	// (pid_namespaces(7)); unshare(1) then ends in the same way.
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGHUP {
		h.power.button = false
	}
	h.settle()
}

// clear removes what may be left of a boot.
func (h *host) clear() error {
	h.l.unplug(h.name)
	return errors.Join(endCgroup(h.cg()), detachLoops(h.dir), ip([]string{"netns", "del", h.l.space(h.name)}))
}

// pid1 is the running host's systemd, as the machine sees it. Before it is systemd nobody may enter: its root is the machine's.
func (h *host) pid1() (int, error) {
	text, err := os.ReadFile(filepath.Join(h.dir, "pid"))
	if err != nil {
		return 0, fmt.Errorf("%s is off", h.name)
	}
	var pid int
	var began string
	fmt.Sscan(string(text), &pid, &began)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if f := strings.Fields(string(stat)); err != nil || len(f) < 22 || f[21] != began || !strings.HasPrefix(f[1], "(systemd") {
		return 0, fmt.Errorf("%s is not up", h.name)
	}
	return pid, nil
}

// exec runs a shell command on the host.
func (h *host) exec(ctx context.Context, script string) (string, error) {
	pid, err := h.pid1()
	if err != nil {
		return "", err
	}
	cg := filepath.Join(h.cg(), "exec")
	if err := os.Mkdir(cg, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// In the host's cgroup, so that it goes where the host goes. It moves there by itself, after the fork: a child that is born
	// into a host that freezes just then would hold up this process too, for it cannot exec.
	cmd := exec.CommandContext(ctx, "sh", "-c", `echo 0 > "$1" && shift && exec "$@"`, "exec", filepath.Join(cg, "cgroup.procs"),
		"nsenter", "-t", fmt.Sprint(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd",
		"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
		"setpriv", "--bounding-set", noCapabilities, "sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("on %s: %s: %w: %s", h.name, script, err, strings.TrimSpace(errout.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// must runs a shell command that succeeds.
func (h *host) must(t *testing.T, script string) string {
	t.Helper()
	out, err := h.exec(t.Context(), script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// running is nil when the host's systemd has started all that it starts.
func (h *host) running(ctx context.Context) error {
	out, err := h.exec(ctx, "systemctl is-system-running")
	if err == nil && out != "running" {
		err = errors.New(out)
	}
	return err
}

// bootID is what the host's kernel calls its boot.
func (h *host) bootID() string {
	text, err := os.ReadFile(filepath.Join(h.dir, "boot_id"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// journal is what the host has logged, in all boots, also when it is off. Its times are those of the kernel that all share.
func (h *host) journal(args ...string) string {
	// By the journalctl of the hosts: the machine may have none.
	script := `mount --bind "$1" "$2/mnt" && cd / && exec chroot "$2" /usr/bin/journalctl --no-pager -D /mnt "${@:3}"`
	out, err := exec.Command("unshare", append([]string{"--mount", "bash", "-c", script, "journal", filepath.Join(h.dir, "upper/var/log/journal"), h.l.root}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v", out, err)
	}
	return string(out)
}
