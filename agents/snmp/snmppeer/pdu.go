// Package snmppeer runs net-snmp's snmpd as a switched PDU on loopback: a foreign
// implementation of SNMP 1, 2c and 3, whose outlet tables are those of a family of PDUs. A small
// Perl program behind snmpd keeps the outlets, and brings in faults.
//
// It needs the Debian packages snmpd and perl-base.
package snmppeer

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed pdu.pl
var program []byte

//go:embed models.tsv
var models []byte

// Config says what a PDU is like.
type Config struct {
	Outlets        int    // 8 by default, called outlet1, outlet2, ...
	Community      string // versions 1 and 2c: may read and write; "private" by default
	ReadCommunity  string // may read; "public" by default
	Users          []User // version 3; Fencer and Reader by default
	EngineID       string // of version 3; changes with the port by default
	Power          string // a command that is run as: CMD OUTLET on|off; if it fails, the SET does
	SysObjectID    string // another than the model's
	WithoutVersion string // "1" or "2c" are not served
}

// User is one of version 3. Auth and Priv are as in net-snmp, without hyphens: SHA256, AES256C.
type User struct {
	Name, Auth, Priv           string
	AuthPassword, PrivPassword string
	ReadOnly                   bool
	MayPlain                   bool // may come without encryption
}

// Fencer may switch, Reader may only read.
var (
	Fencer = User{Name: "fencer", Auth: "SHA256", Priv: "AES", AuthPassword: "fencer-auth-pass", PrivPassword: "fencer-priv-pass"}
	Reader = User{Name: "reader", Auth: "SHA256", Priv: "AES", AuthPassword: "fencer-auth-pass", PrivPassword: "fencer-priv-pass", ReadOnly: true}
)

// PDU is one that runs. Its methods are for one goroutine.
type PDU struct {
	tb     testing.TB
	dir    string
	model  string
	config Config
	port   int
	cmd    *exec.Cmd
}

// Models lists the models.
func Models() (names []string) {
	for line := range strings.Lines(string(models)) {
		if name, _, ok := strings.Cut(line, "\t"); ok && line[0] != '#' && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Start runs a PDU of a model until the end of the test.
func Start(tb testing.TB, model string, change ...func(*Config)) *PDU {
	tb.Helper()
	if !slices.Contains(Models(), model) {
		tb.Fatalf("no model %q among %v", model, Models())
	}
	c := Config{Outlets: 8, Community: "private", ReadCommunity: "public", Users: []User{Fencer, Reader}}
	for _, f := range change {
		f(&c)
	}
	dir, err := os.MkdirTemp("", "pdu") // tb.TempDir has the test's name in it, and snmpd splits at commas
	if err != nil {
		tb.Fatal(err)
	}
	p := &PDU{tb: tb, dir: dir, model: model, config: c}
	tb.Cleanup(func() {
		p.Stop()
		os.RemoveAll(dir)
	})
	var outlets strings.Builder
	for n := range c.Outlets {
		fmt.Fprintf(&outlets, "%d\ton\toutlet%d\n", n+1, n+1)
	}
	p.write("pdu.pl", string(program))
	p.write("models.tsv", string(models))
	p.write("model", model)
	p.write("power", c.Power)
	p.write("outlets", outlets.String())
	for try := 1; ; try++ {
		p.port = freePort(tb)
		err := p.start()
		if err == nil {
			break
		}
		if try == 5 {
			tb.Fatal(err)
		}
	}
	return p
}

// Address is where it listens.
func (p *PDU) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Outlet is the true state of an outlet: on, off, or another word that SetOutlet gave it.
func (p *PDU) Outlet(n int) string {
	p.tb.Helper()
	return p.outlets()[n-1][1]
}

// SetOutlet changes the state as somebody at the device would. Words other than on and off
// are those of the model ("pendingOff"); outlets with a word that the model lacks have no row.
func (p *PDU) SetOutlet(n int, state string) { p.edit(n, 1, state) }

// Rename gives an outlet another name.
func (p *PDU) Rename(n int, name string) { p.edit(n, 2, name) }

// Calls lists the SETs that arrived, as "3 off".
func (p *PDU) Calls() []string {
	b, err := os.ReadFile(p.path("calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.tb.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}

// Fault sets one of the faults that pdu.pl lists; an empty one ends it.
func (p *PDU) Fault(mode string) {
	p.tb.Helper()
	p.write("mode", mode)
}

// Freeze stops the device in the middle of whatever it does, Thaw lets it go on.
func (p *PDU) Freeze() { p.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (p *PDU) Thaw() { p.signal(syscall.SIGCONT) }

// Restart ends the device hard and starts it at the same port, with the same outlets. A new
// engine ID is that of a device that was exchanged or reset.
func (p *PDU) Restart(engineID string) {
	p.tb.Helper()
	p.Stop()
	if engineID != "" {
		p.config.EngineID = engineID
		if err := os.RemoveAll(p.path("persist")); err != nil {
			p.tb.Fatal(err)
		}
	}
	if err := p.start(); err != nil {
		p.tb.Fatal(err)
	}
}

// Stop ends it; safe to call again.
func (p *PDU) Stop() {
	if p.cmd == nil {
		return
	}
	// The whole group, snmpd and its Perl programs: snmpd waits for them, so that none is left to init.
	group := -p.cmd.Process.Pid
	syscall.Kill(group, syscall.SIGTERM)
	syscall.Kill(group, syscall.SIGCONT)
	hard := time.AfterFunc(5*time.Second, func() { syscall.Kill(group, syscall.SIGKILL) })
	defer hard.Stop()
	p.cmd.Wait()
	p.cmd = nil
}

func (p *PDU) signal(s syscall.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *PDU) start() error {
	snmpd, err := find("snmpd")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.path("persist"), 0o700); err != nil {
		return err
	}
	conf, err := p.conf()
	if err != nil {
		return err
	}
	p.write("snmpd.conf", conf)
	cmd := exec.Command(snmpd, "-f", "-Lf", p.path("log"), "-C", "-c", p.path("snmpd.conf")+","+p.path("persist/snmpd.conf"),
		"-I", "-smux,mteTrigger,mteTriggerConf")
	var out bytes.Buffer
	cmd.Env = append(os.Environ(), "MIBS=", "SNMP_PERSISTENT_DIR="+p.path("persist"))
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd = cmd
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if listens(cmd.Process.Pid, p.port) {
			return nil
		}
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid)); err != nil || bytes.Contains(state, []byte(") Z ")) {
			break
		}
	}
	p.Stop()
	log, _ := os.ReadFile(p.path("log"))
	return fmt.Errorf("snmpd does not listen on port %d: %s%s", p.port, out.Bytes(), log)
}

func (p *PDU) path(name string) string { return filepath.Join(p.dir, name) }

// write replaces a file whole, so that nobody reads half of it.
func (p *PDU) write(name, text string) {
	p.tb.Helper()
	if err := os.WriteFile(p.path(name+".go"), []byte(text), 0o600); err != nil {
		p.tb.Fatal(err)
	}
	if err := os.Rename(p.path(name+".go"), p.path(name)); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *PDU) outlets() (rows [][]string) {
	p.tb.Helper()
	b, err := os.ReadFile(p.path("outlets"))
	if err != nil {
		p.tb.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

func (p *PDU) edit(n, field int, value string) {
	p.tb.Helper()
	lock, err := os.OpenFile(p.path("lock"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		p.tb.Fatal(err)
	}
	var text strings.Builder
	for i, row := range p.outlets() {
		if i == n-1 {
			row[field] = value
		}
		text.WriteString(strings.Join(row, "\t") + "\n")
	}
	p.write("outlets", text.String())
}
