package ocf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// TestMain runs the tests in mount and network namespaces of their own, with a /run of their own: whatever an agent
// does, it does not reach the host.
func TestMain(m *testing.M) {
	if slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.fuzzworker") }) {
		os.Exit(m.Run()) // it runs no agent, and talks to its parent by descriptors
	}
	const inside = "OCF_TEST_INSIDE"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		if cmd.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "namespaces for the tests:", err)
			os.Exit(1)
		}
		os.Exit(cmd.ProcessState.ExitCode())
	}
	if err := isolate(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the namespaces:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func isolate() error {
	// What the test itself was handed is not what is tested.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "size=64m"); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil { // that of this network
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "eth9", "type", "veth", "peer", "name", "eth8"},
		{"address", "add", "10.77.0.1/24", "dev", "eth9"},
		{"link", "set", "eth8", "up"},
		{"link", "set", "eth9", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s (Debian package iproute2): %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

const testMetadata = `<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
<resource-agent name="test" version="1.0"><version>1.1</version>
<longdesc lang="en">For <b>tests</b>
 &amp; nothing else.</longdesc>
<shortdesc lang="en">A test</shortdesc>
<parameters>
<parameter name="file" required="1" unique-group="file"><longdesc lang="en">A file.</longdesc><shortdesc lang="en">File</shortdesc><content type="string"/></parameter>
<parameter name="port"><shortdesc lang="en">Port</shortdesc><content type="integer" default="80"/></parameter>
<parameter name="fast"><shortdesc lang="en">Fast</shortdesc><content type="boolean" default="no"/></parameter>
<parameter name="odd"><shortdesc lang="en">Odd</shortdesc><content type="integer" default="1s"/></parameter>
<parameter name="mode"><shortdesc lang="en">Mode</shortdesc><content type="select" default="dry"><option value="dry"/><option value="live"/></content></parameter>
<parameter name="passwd"><shortdesc lang="en">Password</shortdesc><content type="string"/></parameter>
<parameter name="path"><deprecated><replaced-with name="file"/></deprecated><shortdesc lang="en">File</shortdesc><content type="string"/></parameter>
</parameters>
<actions>
<action name="start" timeout="1s"/><action name="stop" timeout="1"/>
<action name="monitor" timeout="1s" interval="7s" depth="0"/><action name="monitor" timeout="2s" interval="70s" depth="10"/>
<action name="meta-data" timeout="5s"/><action name="validate-all" timeout="5s"/>
</actions>
</resource-agent>
`

// scripted is an agent in shell below an OCF root of its own. Its body runs with $d, the folder in which it notes what
// befell it, and $1, the action; what the body does not end is done as an honest agent would.
type scripted struct {
	testing.TB
	dir, boot string
}

func script(t testing.TB, body string) *scripted {
	t.Helper()
	s := &scripted{TB: t, dir: t.TempDir(), boot: "boot-" + newMark()}
	for _, dir := range []string{"resource.d/test", "private", "tmp"} {
		if err := os.MkdirAll(s.file(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.write("metadata", testMetadata)
	s.program(body)
	t.Cleanup(s.nothingLeft)
	return s
}

func (s *scripted) file(name string) string { return filepath.Join(s.dir, name) }

func (s *scripted) write(name, text string) {
	s.Helper()
	if err := os.WriteFile(s.file(name), []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// program writes the agent so that it can run at once: a child that is forked meanwhile would hold it
// open for writing, and no program can be started from such a file.
func (s *scripted) program(body string) {
	s.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(s.file("resource.d/test/test"), []byte(`#!/bin/sh
d=`+s.dir+`
echo "$1" >>$d/asked
`+body+`
case $1 in
meta-data) cat $d/metadata ;;
start) touch $d/up ;;
stop) rm -f $d/up ;;
monitor) [ -e $d/up ] || exit 7 ;;
validate-all) ;;
*) exit 3 ;;
esac
`), 0o755); err != nil {
		s.Fatal(err)
	}
}

func (s *scripted) read(name string) string {
	b, _ := os.ReadFile(s.file(name))
	return string(b)
}

func (s *scripted) has(name string) bool { _, err := os.Stat(s.file(name)); return err == nil }

// asked are the actions so far, but meta-data.
func (s *scripted) asked() string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s.read("asked"), "meta-data\n", "")), " ")
}

func (s *scripted) options() *Options {
	o := Kind().Options().(*Options)
	o.Agent, o.Root = "ocf:test:test", s.dir
	o.Params = map[string]string{"file": "/x"}
	return o
}

func (s *scripted) open(o *Options, token uint64) *ocf {
	s.Helper()
	if err := o.Validate(); err != nil {
		s.Fatal(err)
	}
	res, err := o.New(resources.Env{
		Group: "web", Resource: "app", Node: "alpha", Boot: s.boot, Token: token, Dir: s.file("private"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		s.Fatal(err)
	}
	r := res.(*ocf)
	r.tmp = s.file("tmp")
	return r
}

func (s *scripted) resource() *ocf { s.Helper(); return s.open(s.options(), 7) }

// nothingLeft waits until no process of this test is left, not even a zombie of ours, and no action that nobody waits for any more.
func (s *scripted) nothingLeft() {
	s.Helper()
	locked, _ := filepath.Glob(s.file("*/lock")) // of the private directories
	for _, path := range locked {
		held, err := lock(within(s, 20*time.Second), filepath.Dir(path))
		must(s, err)
		held.Close()
	}
	var left []process.Process
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if left = bearing("HAMGR_BOOT=" + s.boot); len(left) == 0 {
			return
		}
	}
	s.Errorf("left: %s", process.List(left))
	for _, p := range left {
		_ = p.Signal(unix.SIGKILL)
	}
}

// bearing are the processes with an entry in their environment, and our own zombies.
func bearing(entry string) []process.Process {
	all, _ := process.All()
	var found []process.Process
	for _, p := range all {
		env, _ := p.Environ()
		if p.PID != os.Getpid() && bytes.Contains(env, []byte(entry+"\x00")) || p.Parent == os.Getpid() && p.Ended() {
			found = append(found, p)
		}
	}
	return found
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func wantState(t testing.TB, r resources.Resource, want resources.State, words ...string) {
	t.Helper()
	state, detail, err := r.Probe(within(t, 20*time.Second))
	if state != want || err != nil {
		t.Errorf("probe: %s (%s), %v; want %s", state, detail, err, want)
	}
	for _, w := range words {
		if !strings.Contains(detail, w) {
			t.Errorf("probe: %q lacks %q", detail, w)
		}
	}
}

func wantErr(t testing.TB, err, is error, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) {
		t.Errorf("error %v, want one that is %v", err, is)
		return
	}
	if is == nil && (errors.Is(err, resources.ErrNode) || errors.Is(err, resources.ErrSetup)) {
		t.Errorf("error %v blames somebody", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q lacks %q", err, w)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
