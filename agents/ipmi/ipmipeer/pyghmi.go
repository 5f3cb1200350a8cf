package ipmipeer

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/agents"
)

// Pyghmi is pyghmi's BMC: cipher suite 3, no system GUID, silence to whoever it does not like.
type Pyghmi struct {
	Config
	dir  string
	port int
}

//go:embed fakebmc.py
var fakeBMC []byte

// python is Debian's own, since python3-pyghmi is a Debian package.
const python = "/usr/bin/python3"

// StartPyghmi runs a BMC until the end of the test.
func StartPyghmi(tb testing.TB, c Config) *Pyghmi {
	tb.Helper()
	c.fill()
	if out, err := exec.Command(python, "-c", "import pyghmi").CombinedOutput(); err != nil {
		tb.Fatalf("pyghmi is missing: install the package python3-pyghmi: %s", out)
	}
	p := &Pyghmi{Config: c, dir: folder(tb), port: freePort(tb)}
	power := "on"
	if c.Off {
		power = "off"
	}
	for name, text := range map[string]string{
		"power": power, "username": c.Username, "password": c.Password, "key": c.BMCKey, "guid": c.GUID, "fakebmc.py": string(fakeBMC),
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	cmd := launch(tb, filepath.Join(p.dir, "log"), p.port, python, filepath.Join(p.dir, "fakebmc.py"), fmt.Sprint(p.port), p.dir)
	tb.Cleanup(func() { kill(cmd) })
	return p
}

// Addr is host:port.
func (p *Pyghmi) Addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// Power is the machine's own state.
func (p *Pyghmi) Power() agents.PowerState {
	var s agents.PowerState
	s.UnmarshalText([]byte(strings.TrimSpace(p.read("power"))))
	return s
}

// Calls are the changes of power that were asked for.
func (p *Pyghmi) Calls() []string { return strings.Fields(p.read("calls")) }

func (p *Pyghmi) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(p.dir, name))
	return string(text)
}
