package exec

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/hamgr/hamgr/agents"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPassword holds what shells, printf and the agents' reader trip over.
const testPassword = "p\"a's$s%s#w\\o;r d:`é漢!="

// testMetadata is that of a PDU with a password.
const testMetadata = `<?xml version="1.0" ?>
<resource-agent name="fence_test" shortdesc="A test" >
<longdesc>For tests.</longdesc>
<parameters>
	<parameter name="action" unique="0" required="1"><content type="string" default="reboot" /><shortdesc>Action</shortdesc></parameter>
	<parameter name="ip" unique="0" required="1" obsoletes="ipaddr"><content type="string" /><shortdesc>Address</shortdesc></parameter>
	<parameter name="ipaddr" unique="0" required="1" deprecated="1"><content type="string" /><shortdesc>Address</shortdesc></parameter>
	<parameter name="ipport" unique="0" required="0"><content type="integer" default="623" /><shortdesc>Port</shortdesc></parameter>
	<parameter name="method" unique="0" required="0"><content type="select" default="cycle"><option value="onoff" /><option value="cycle" /></content><shortdesc>Method</shortdesc></parameter>
	<parameter name="passwd" unique="0" required="0" deprecated="1"><content type="string" /><shortdesc>Password</shortdesc></parameter>
	<parameter name="password" unique="0" required="0" obsoletes="passwd"><content type="string" /><shortdesc>Password</shortdesc></parameter>
	<parameter name="plug" unique="0" required="1" obsoletes="port"><content type="string" /><shortdesc>Outlet</shortdesc></parameter>
	<parameter name="port" unique="0" required="1" deprecated="1"><content type="string" /><shortdesc>Outlet</shortdesc></parameter>
	<parameter name="plug_separator" unique="0" required="0"><content type="string" default="," /><shortdesc>Separator</shortdesc></parameter>
	<parameter name="power_timeout" unique="0" required="0"><content type="second" default="20" /><shortdesc>Wait</shortdesc></parameter>
	<parameter name="power_wait" unique="0" required="0"><content type="second" default="2" /><shortdesc>Wait</shortdesc></parameter>
	<parameter name="separator" unique="0" required="0"><content type="string" default="," /><shortdesc>Separator</shortdesc></parameter>
	<parameter name="ssl" unique="0" required="0"><content type="boolean" /><shortdesc>TLS</shortdesc></parameter>
	<parameter name="token_file" unique="0" required="0"><content type="string" /><shortdesc>Path</shortdesc></parameter>
	<parameter name="verbose" unique="0" required="0"><content type="boolean" /><shortdesc>Verbose</shortdesc></parameter>
</parameters>
<actions>
	<action name="on" automatic="0"/><action name="off" /><action name="reboot" /><action name="status" />
	<action name="list" /><action name="monitor" /><action name="metadata" />
</actions>
</resource-agent>
`

// scripted is a fence agent written in shell, and the folder in which it notes what befell it.
type scripted struct {
	testing.TB
	dir  string
	path string
}

// script writes a fence agent. body runs after the options have been read into $action, $plug and
// $password, in the folder $d.
func script(t testing.TB, body string) *scripted {
	t.Helper()
	s := &scripted{TB: t, dir: t.TempDir()}
	s.path = s.file("fence_test")
	s.write("metadata", testMetadata)
	writeProgram(t, s.path, `#!/bin/sh
d=`+s.dir+`
echo $$ >>$d/groups
action= plug= password=
while IFS= read -r line; do
	printf '%s\n' "$line" >&3
	case $line in
	action=*) action=${line#*=} ;;
	plug=*) plug=${line#*=} ;;
	password=*) password=${line#*=} ;;
	esac
done 3>$d/stdin.$$
mv $d/stdin.$$ $d/stdin
if [ "$action" = metadata ]; then cat $d/metadata; exit 0; fi
if [ "$action" = list ] && ! grep -q 'list[)]' $0; then printf '1,one\n7,seven\n'; exit 0; fi
`+body)
	t.Cleanup(func() { s.eventually("no process of the agent is left", func() bool { return len(s.left()) == 0 }) })
	return s
}

func (s *scripted) file(name string) string { return filepath.Join(s.dir, name) }

// write replaces a file at once, as a reader in another process needs it.
func (s *scripted) write(name, text string) {
	s.Helper()
	err := os.WriteFile(s.file(name+".new"), []byte(text), 0o600)
	if err == nil {
		err = os.Rename(s.file(name+".new"), s.file(name))
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scripted) read(name string) string {
	b, _ := os.ReadFile(s.file(name))
	return string(b)
}

func (s *scripted) has(name string) bool { _, err := os.Stat(s.file(name)); return err == nil }

// left are the live processes in the groups of the agent's runs, and zombies that are ours.
func (s *scripted) left() []string {
	groups := map[string]bool{}
	for line := range strings.Lines(s.read("groups")) {
		groups[strings.TrimSpace(line)] = true
	}
	var left []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		text := string(b)
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // state, parent, group: proc_pid_stat(5)
		zombie := f[0] == "Z" || f[0] == "X"
		if groups[f[2]] && (!zombie || f[1] == strconv.Itoa(os.Getpid())) {
			left = append(left, text)
		}
	}
	return left
}

func (s *scripted) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(5 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("did not happen: %s", what)
		}
	}
}

// options are those of a device that the script drives.
func (s *scripted) options() *Options {
	o := Kind().Options().(*Options)
	o.Command = s.path
	o.Options = map[string]string{"ip": "10.9.0.60"}
	o.Secrets = map[string]agents.Secret{"password": agents.NewSecret(testPassword)}
	return o
}

func open(t testing.TB, o *Options) *agent {
	t.Helper()
	h, err := o.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return h.(*agent)
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// lab copies the agent that is written with the agents' own library.
func lab(t testing.TB) (command, dir string) {
	t.Helper()
	needAgents(t)
	b, err := os.ReadFile("testdata/fence_lab")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	command = filepath.Join(dir, "fence_lab")
	writeProgram(t, command, string(b))
	return command, dir
}

// writeProgram writes a file that can run at once: a child that is forked meanwhile would hold it open for
// writing, and no program can be started from such a file.
func writeProgram(t testing.TB, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func needAgents(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/usr/share/fence/fencing.py"); err != nil {
		t.Fatalf("the fence agents are not installed (Debian package fence-agents): %v", err)
	}
}

// errWith describes what an error lacks.
func errWith(err error, is error, words ...string) string {
	if agents.TroubleOf(err) != agents.TroubleOf(is) {
		return fmt.Sprintf("%v: trouble %q, want %q", err, agents.TroubleOf(err), agents.TroubleOf(is))
	}
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return fmt.Sprintf("%v: want %q in it", err, w)
		}
	}
	return ""
}
