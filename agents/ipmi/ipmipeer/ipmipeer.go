// Package ipmipeer runs BMCs on loopback for tests: OpenIPMI's ipmi_sim, pyghmi's fakebmc and
// go-ipmi's reference server, and a proxy that loses, repeats, reorders and forges between.
//
// The first two are foreign programs (Debian packages openipmi and python3-pyghmi). A test
// that lacks them fails.
package ipmipeer

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Accounts of each peer besides Config's. Their password is Config's.
const (
	UserOnly = "reader" // privilege level user
)

// What Config has where it says nothing.
const (
	DefaultUsername = "fencer"
	DefaultPassword = "hamgr-test"
	DefaultGUID     = "6a9bd36a521b284f86fce66df7d737e3"
	// DefaultUUID is DefaultGUID as SMBIOS software shows it.
	DefaultUUID = "6ad39b6a-1b52-4f28-86fc-e66df7d737e3"
)

// Config is how a peer is set up.
type Config struct {
	Username, Password string // ipmi_sim takes neither blanks nor control characters
	BMCKey             string // Kg in hex; ipmi_sim wants 16 bytes; empty: none
	GUID               string // 32 hex digits in the order of the wire
	Off                bool   // the machine is off at the start
	// Command, if set, is run as COMMAND on|off|status and is the machine; for status it
	// prints on or off. Only of ipmi_sim.
	Command string
}

func (c *Config) fill() {
	for _, d := range []struct {
		field *string
		value string
	}{{&c.Username, DefaultUsername}, {&c.Password, DefaultPassword}, {&c.GUID, DefaultGUID}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
}

// BMC is a running ipmi_sim: cipher suite 3, 63 session slots, the power hook in its only thread.
type BMC struct {
	Config
	tb      testing.TB
	dir     string
	port    int
	mu      sync.Mutex
	process *exec.Cmd
}

//go:embed power.sh
var powerHook []byte

// Start runs a BMC until the end of the test.
func Start(tb testing.TB, c Config) *BMC {
	tb.Helper()
	c.fill()
	need(tb, "ipmi_sim", "openipmi")
	b := &BMC{Config: c, tb: tb, dir: folder(tb), port: freePort(tb)}
	b.write("power", map[bool]string{false: "on", true: "off"}[c.Off])
	b.write("command", c.Command)
	if err := os.WriteFile(b.file("power.sh"), powerHook, 0o755); err != nil {
		tb.Fatal(err)
	}
	b.write("lan.conf", b.lanConf())
	b.write("commands", fmt.Sprintf("mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n"+
		"sel_enable 0x20 1000 0x0a\nmc_set_guid 0x20 %s\nmc_enable 0x20", c.GUID))
	tb.Cleanup(b.Stop)
	b.run()
	return b
}

func (b *BMC) lanConf() string {
	key := ""
	if b.BMCKey != "" {
		key = "\n  bmc_key " + b.BMCKey
	}
	auths := ""
	for _, level := range []string{"callback", "user", "operator", "admin"} {
		auths += "\n  allowed_auths_" + level + " none md2 md5 straight"
	}
	user := func(number int, name, level string) string {
		return fmt.Sprintf("user %d true %q \"%s\" %s 10 none md2 md5 straight\n", number, name, b.Password, level)
	}
	return fmt.Sprintf("name \"bmc\"\nstartlan 1\n  addr 127.0.0.1 %d\n  priv_limit admin%s%s\n  guid %s\nendlan\n"+
		"chassis_control \"%s %s\"\n", b.port, auths, key, b.GUID, b.file("power.sh"), b.dir) +
		"user 1 false \"\" \"\" user 1 none md2 md5 straight\n" +
		user(2, b.Username, "admin") + user(3, UserOnly, "user")
}

// Addr is host:port.
func (b *BMC) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

// Power is the machine's own state.
func (b *BMC) Power() agents.PowerState {
	var s agents.PowerState
	text := b.read("power")
	if b.Command != "" {
		out, _ := exec.Command("sh", "-c", b.Command+" status").Output()
		text = string(out)
	}
	s.UnmarshalText([]byte(strings.TrimSpace(text)))
	return s
}

// SetPower switches the machine behind the BMC's back.
func (b *BMC) SetPower(s agents.PowerState) {
	b.tb.Helper()
	if b.Command != "" {
		if out, err := exec.Command("sh", "-c", b.Command+" "+s.String()).CombinedOutput(); err != nil {
			b.tb.Errorf("power of the peer's machine: %v: %s", err, out)
		}
	}
	b.write("power", s.String())
}

// Calls are the changes of power that were asked for: on, off, reset.
func (b *BMC) Calls() (calls []string) {
	for line := range strings.Lines(b.read("calls")) {
		_, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		calls = append(calls, what)
	}
	return calls
}

// Mode is a fault.
type Mode string

// The faults of the power hook.
const (
	Right  Mode = ""
	Stuck  Mode = "stuck"  // accepts changes, does nothing
	Refuse Mode = "refuse" // refuses changes
	Fail   Mode = "fail"   // obeys, and answers an error
	Blind  Mode = "blind"  // cannot read the state
)

// Lag obeys d after its answer.
func Lag(d time.Duration) Mode { return Mode(fmt.Sprintf("lag %g", d.Seconds())) }

// Slow takes d for each change, and answers nothing else meanwhile.
func Slow(d time.Duration) Mode { return Mode(fmt.Sprintf("slow %g", d.Seconds())) }

// SetMode sets the fault.
func (b *BMC) SetMode(m Mode) { b.write("mode", string(m)) }

// Freeze stops the BMC: it answers nothing, and what arrives waits in its socket.
func (b *BMC) Freeze() { b.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (b *BMC) Thaw() { b.signal(syscall.SIGCONT) }

// Restart ends the BMC and starts it again: all sessions are forgotten, the machine is not touched.
func (b *BMC) Restart() {
	b.tb.Helper()
	b.Stop()
	b.run()
}

// Stop ends the BMC.
func (b *BMC) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process == nil {
		return
	}
	kill(b.process)
	b.process = nil
}

func (b *BMC) signal(s syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		syscall.Kill(b.process.Process.Pid, s)
	}
}

func (b *BMC) run() {
	b.tb.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	os.Mkdir(b.file("state"), 0o755)
	b.process = launch(b.tb, b.file("log"), b.port, "ipmi_sim", "-n", "-c", b.file("lan.conf"), "-f", b.file("commands"), "-s", b.file("state"))
}

func (b *BMC) file(name string) string { return filepath.Join(b.dir, name) }

// write replaces a file at once, so that the hook never sees half of it.
func (b *BMC) write(name, text string) {
	b.tb.Helper()
	tmp := b.file(name + ".new")
	err := os.WriteFile(tmp, []byte(text+"\n"), 0o644)
	if err == nil {
		err = os.Rename(tmp, b.file(name))
	}
	if err != nil {
		b.tb.Error(err)
	}
}

func (b *BMC) read(name string) string {
	text, _ := os.ReadFile(b.file(name))
	return string(text)
}

// folder is t.TempDir without the test's name: ipmi_sim takes neither blanks nor long paths.
func folder(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "bmc")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func freePort(tb testing.TB) int {
	tb.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}
