package snmppeer

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// conf is snmpd.conf(5).
func (p *PDU) conf() (string, error) {
	perl, err := find("perl")
	if err != nil {
		return "", err
	}
	roots, err := exec.Command(perl, p.path("pdu.pl"), p.dir, "roots").Output()
	if err != nil {
		return "", fmt.Errorf("pdu.pl roots: %w", err)
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	engine := p.config.EngineID
	if engine == "" {
		engine = fmt.Sprintf("pdu-%d", p.port)
	}
	line("engineID %s", engine)
	line("agentaddress udp:%s", p.Address())
	line("view all included .1")
	// Not rwcommunity and rocommunity, which take quotes off twice.
	for _, c := range []struct{ name, community, write string }{{"rw", p.config.Community, "all"}, {"ro", p.config.ReadCommunity, "none"}} {
		line("com2sec %s default %s", c.name, quote(c.community))
		for _, version := range []string{"v1", "v2c"} {
			if version != "v"+p.config.WithoutVersion {
				line("group %s %s %[1]s", c.name, version)
				line(`access %s "" %s noauth exact all %s none`, c.name, version, c.write)
			}
		}
	}
	for _, u := range p.config.Users {
		line("createUser %s %s %s %s %s", quote(u.Name), hyphens(u.Auth), quote(u.AuthPassword), hyphens(u.Priv), quote(u.PrivPassword))
		right, level := "rwuser", "priv"
		if u.ReadOnly {
			right = "rouser"
		}
		if u.MayPlain {
			level = "auth"
		}
		line("%s %s %s", right, quote(u.Name), level)
	}
	id := p.config.SysObjectID
	if id == "" {
		id = sysObjectID(p.model)
	}
	line("sysObjectID .%s", id)
	line("sysDescr PDU of model %s", p.model)
	for root := range strings.FieldsSeq(string(roots)) {
		line("pass_persist %s %s %s %s serve", root, perl, p.path("pdu.pl"), p.dir)
	}
	return b.String(), nil
}

func sysObjectID(model string) string {
	for line := range strings.Lines(string(models)) {
		if f := strings.Split(line, "\t"); f[0] == model {
			return f[1]
		}
	}
	return ""
}

// hyphens writes a protocol as net-snmp does: SHA-256, AES-256-C.
func hyphens(protocol string) string {
	for _, prefix := range []string{"SHA", "AES"} {
		if bits, ok := strings.CutPrefix(protocol, prefix); ok && bits != "" {
			return prefix + "-" + strings.Replace(bits, "C", "-C", 1)
		}
	}
	return protocol
}

// quote writes a word of snmpd.conf(5) byte for byte.
func quote(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }

// find looks for a program, also where only root's PATH leads.
func find(name string) (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is missing: install the Debian packages snmpd and perl-base", name)
}

// freePort is one below those that the kernel hands out, so that nobody gets it by accident
// while the PDU restarts.
func freePort(tb testing.TB) int {
	tb.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			c.Close()
			return port
		}
	}
	tb.Fatal("no free port")
	return 0
}

// listens reports whether the process has the UDP port of 127.0.0.1: another one's would not
// do. The columns of /proc/net/udp are those of proc_net_udp(5).
func listens(pid, port int) bool {
	b, _ := os.ReadFile("/proc/net/udp")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[1] != fmt.Sprintf("0100007F:%04X", port) {
			continue
		}
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, file := range files {
			if to, _ := os.Readlink(file); to == "socket:["+f[9]+"]" {
				return true
			}
		}
	}
	return false
}
