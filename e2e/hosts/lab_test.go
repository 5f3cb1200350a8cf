//go:build systemdhost

package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// lab is a network of hosts with a shared disk, fence devices and a client.
type lab struct {
	t     testing.TB
	dir   string // all of it, and its name
	root  string // the Debian below the hosts' disks
	cg    string
	hosts []*host

	detection   time.Duration // of the cluster on the hosts
	unreachable atomic.Bool   // no fence device can be reached
}

// newLab makes hosts n1, n2, ... that are off. It is gone when the test is.
func newLab(t testing.TB, hosts int) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", labPrefix)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir}
	lock, err := claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	leave, err := hire(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, h := range l.hosts {
			h.give(func(p *power) { p.plugged = false })
		}
		if err := sweep(dir); err != nil {
			t.Error(err)
		}
		lock.Close()
		leave()
	})
	t.Setenv("TMPDIR", dir) // what the fence devices leave when the test is killed
	if err := l.prepare(hosts); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) prepare(hosts int) error {
	root, err := exec.Command("../systemd/root.sh").Output()
	if err != nil {
		return fmt.Errorf("build the root of the hosts: %w: %s", err, stderr(err))
	}
	l.root = strings.TrimSpace(string(root))
	base, err := cgroupBase(l.dir)
	if err != nil {
		return fmt.Errorf("cgroup2: %w", err)
	}
	l.cg = filepath.Join(base, filepath.Base(l.dir))
	if err := os.Mkdir(l.cg, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(l.watched(), 0o755); err != nil {
		return err
	}
	if err := newDisk(l.disk()); err != nil {
		return err
	}
	if err := l.newNetwork(hosts); err != nil {
		return err
	}
	for i := range hosts {
		h, err := l.newHost(i + 1)
		if err != nil {
			return err
		}
		l.hosts = append(l.hosts, h)
	}
	return l.newDevices()
}

func (l *lab) disk() string { return filepath.Join(l.dir, "shared.img") }

// watched is a folder of the test's that every host sees as /watched: what is written there survives all hosts.
func (l *lab) watched() string { return filepath.Join(l.dir, "watched") }

// host gives one by its name.
func (l *lab) host(name string) *host {
	for _, h := range l.hosts {
		if h.name == name {
			return h
		}
	}
	panic(fmt.Sprintf("no host %q", name))
}

// other gives the first host that is none of these.
func (l *lab) other(names ...string) *host {
	for _, h := range l.hosts {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+h.name+" ") {
			return h
		}
	}
	panic(fmt.Sprintf("no host but %v", names))
}

// until waits for a condition, and tells what is not as it should be when the time is over.
func until(t testing.TB, within time.Duration, what string, ok func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, within, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func stderr(err error) []byte {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.Stderr
	}
	return nil
}
