package ocf

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// real makes a resource of an agent of Debian's resource-agents.
func real(t testing.TB, agent string, params map[string]string) *ocf {
	t.Helper()
	if _, err := os.Stat(defaultRoot + "/resource.d/heartbeat/Dummy"); err != nil {
		t.Fatalf("no agents are installed (Debian package resource-agents): %v", err)
	}
	o := Kind().Options().(*Options)
	o.Agent, o.Params = "ocf:heartbeat:"+agent, params
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	boot := "boot-" + newMark()
	res, err := o.New(resources.Env{
		Group: "g-" + strings.ToLower(newMark()), Resource: "r", Node: "alpha", Boot: boot, Token: 7, Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup((&scripted{TB: t, boot: boot}).nothingLeft)
	return res.(*ocf)
}

func command(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Real agents do real things, and the kernel says so.
func TestRealAgents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, d := range []string{"mnt", "rsync"} {
		must(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	must(t, os.WriteFile(dir+"/rsyncd.conf", []byte("pid file = "+dir+"/rsyncd.pid\nport = 8730\naddress = 127.0.0.1\nuse chroot = no\n[data]\npath = "+dir+"/rsync\n"), 0o600))
	said := func(words string, args ...string) func() bool {
		return func() bool {
			out, _ := exec.Command(args[0], args[1:]...).CombinedOutput()
			return bytes.Contains(out, []byte(words))
		}
	}
	there := func(path string) func() bool {
		return func() bool { _, err := os.Lstat(path); return err == nil }
	}
	for _, c := range []struct {
		agent  string
		params map[string]string
		active func() bool // the real thing, seen without the agent
	}{
		{"Dummy", map[string]string{"state": dir + "/dummy"}, there(dir + "/dummy")},
		{"dummypy", map[string]string{"state": dir + "/dummypy"}, there(dir + "/dummypy")},
		{"Delay", map[string]string{"startdelay": "0", "stopdelay": "0", "mondelay": "0"}, nil},
		{"symlink", map[string]string{"link": dir + "/link", "target": dir + "/mnt"}, there(dir + "/link")},
		{"anything", map[string]string{"binfile": "/bin/sleep", "cmdline_options": "4711"}, said("sleep 4711", "ps", "-eo", "args")},
		{"Filesystem", map[string]string{"device": loop(t), "directory": dir + "/mnt", "fstype": "ext4"}, said(dir+"/mnt ", "cat", "/proc/mounts")},
		{"IPaddr2", map[string]string{"ip": "10.77.0.100", "cidr_netmask": "24", "nic": "eth9"}, said("10.77.0.100/24", "ip", "address")},
		{"IPaddr", map[string]string{"ip": "10.77.0.101", "cidr_netmask": "24", "nic": "eth9"}, said("10.77.0.101/24", "ip", "address")},
		{"Route", map[string]string{"destination": "10.78.0.0/24", "device": "eth9"}, said("10.78.0.0/24 dev eth9", "ip", "route")},
		{"iface-macvlan", map[string]string{"device": "eth9", "name": "mac9"}, said("mac9@eth9", "ip", "link")},
		{"rsyncd", map[string]string{"binpath": "/usr/bin/rsync", "conffile": dir + "/rsyncd.conf"}, said(dir+"/rsyncd.conf", "ps", "-eo", "args")},
		{"SendArp", map[string]string{"ip": "10.77.0.1", "nic": "eth9"}, nil},
	} {
		t.Run(c.agent, func(t *testing.T) {
			began := time.Now()
			r := real(t, c.agent, c.params)
			wantState(t, r, resources.Inactive)
			must(t, r.Check(within(t, 20*time.Second)))
			must(t, r.Stop(within(t, 20*time.Second)))
			must(t, r.Start(within(t, 20*time.Second)))
			wantState(t, r, resources.Active)
			if c.active != nil && !c.active() {
				t.Error("it is not there")
			}
			must(t, r.Start(within(t, 20*time.Second)))
			must(t, r.Stop(within(t, 20*time.Second)))
			if c.active != nil && c.active() {
				t.Error("it is still there")
			}
			wantState(t, r, resources.Inactive)
			must(t, r.Stop(within(t, 20*time.Second)))
			t.Logf("%v", time.Since(began).Round(time.Millisecond))
		})
	}
}

// loop is a loop device with an ext4 on it.
func loop(t testing.TB) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 8<<20))
	command(t, "mkfs.ext4", "-q", image)
	device := strings.TrimSpace(command(t, "losetup", "--find", "--show", image))
	t.Cleanup(func() { command(t, "losetup", "--detach", device) })
	return device
}

// What an agent says of itself, and what real failures look like.
func TestRealFailures(t *testing.T) {
	t.Parallel()
	for _, agent := range []string{"Stateful", "pgsql"} {
		r := real(t, agent, nil)
		wantErr(t, r.Start(within(t, 20*time.Second)), resources.ErrSetup, "promoted role")
	}
	r := real(t, "IPaddr2", map[string]string{"ip": "10.0.0.1", "cidr_netmasks": "24"})
	wantErr(t, r.Check(within(t, 20*time.Second)), resources.ErrSetup, `did you mean "cidr_netmask"?`)
	r = real(t, "IPaddr2", map[string]string{"ip": "no address", "nic": "eth9"})
	wantErr(t, r.Check(within(t, 20*time.Second)), resources.ErrSetup, "findif")
	r = real(t, "Filesystem", map[string]string{"device": "/dev/nonexistent", "directory": t.TempDir(), "fstype": "ext4"})
	wantErr(t, r.Start(within(t, 20*time.Second)), resources.ErrNode, "/dev/nonexistent")
	must(t, r.Stop(within(t, 20*time.Second)))

	// The process of a service dies: the agent's monitor says so, and stop cleans up.
	r = real(t, "anything", map[string]string{"binfile": "/bin/sleep", "cmdline_options": "4712"})
	must(t, r.Start(within(t, 20*time.Second)))
	command(t, "pkill", "-KILL", "-f", "^/bin/sleep 4712$")
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if s, _, _ := r.Probe(within(t, 5*time.Second)); s == resources.Failed {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the monitor does not notice")
		}
	}
	must(t, r.Stop(within(t, 20*time.Second)))
	wantState(t, r, resources.Inactive)
}
