//go:build systemdhost

package hosts

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

// power is all that must be so that a host runs. Its BMC lives on the first two.
type power struct {
	plugged bool // the plug is in the outlet
	outlet  bool // the PDU's
	button  bool // what the BMC switches, and the host itself by poweroff
}

func (p power) bmc() bool { return p.plugged && p.outlet }
func (p power) on() bool  { return p.bmc() && p.button }

// give changes a host's power; it returns when that has come to pass.
func (h *host) give(change func(*power)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fed := h.power.bmc()
	change(&h.power)
	if !fed && h.power.bmc() {
		h.power.button = true // as its firmware is set: on after a loss of power
	}
	h.settle()
}

// settle makes the host be what its power says. It holds mu.
func (h *host) settle() {
	switch on := h.power.on(); {
	case on && h.boot == nil:
		if err := h.start(); err != nil {
			h.l.t.Errorf("power on %s: %v", h.name, err)
			h.power.button = false
		}
	case !on && h.boot != nil:
		b := h.boot
		h.boot = nil
		h.cut(b)
		<-b.gone
	}
}

// cut is the end of a boot without power. Nobody in the host sees anything any more; then the wires are dead, so that no FIN,
// RST or ARP comes out of what dies; then what is not on the disk is lost, and all is killed.
func (h *host) cut(b *boot) {
	freezeCgroup(h.cg(), true)
	h.l.unplug(h.name)
	if pid, err := h.pid1(); err == nil {
		loseUnwritten(pid)
	}
	os.WriteFile(filepath.Join(h.cg(), "cgroup.kill"), []byte("1"), 0)
	b.cmd.Process.Kill() // before it was in its cgroup
}

func freezeCgroup(cg string, on bool) error {
	want := map[bool]string{true: "1", false: "0"}[on]
	if err := os.WriteFile(filepath.Join(cg, "cgroup.freeze"), []byte(want), 0); err != nil {
		return err
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		events, _ := os.ReadFile(filepath.Join(cg, "cgroup.events"))
		if strings.Contains(string(events), "frozen "+want) {
			return nil
		}
	}
	return fmt.Errorf("%s does not freeze", cg)
}

// freeze makes the whole host stand still; its kernel would go on answering ARP and ping, so its wires are off too.
func (h *host) freeze() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot == nil {
		return errors.New(h.name + " is off")
	}
	h.boot.frozen = true
	return errors.Join(ip([]string{"-n", h.l.switchSpace(), "link", "set", h.name, "nomaster"}), freezeCgroup(h.cg(), true))
}

// thaw ends freeze, if the host still stands there: it wakes with its old beliefs.
func (h *host) thaw() (was bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot == nil || !h.boot.frozen {
		return false, nil
	}
	h.boot.frozen = false
	return true, errors.Join(freezeCgroup(h.cg(), false), ip([]string{"-n", h.l.switchSpace(), "link", "set", h.name, "master", "br0"}))
}

// pull pulls the host's plug: BMC and all. push puts it in again.
func (h *host) pull() { h.give(func(p *power) { p.plugged = false }) }
func (h *host) push() { h.give(func(p *power) { p.plugged = true }) }

// press switches the host by its button, behind its BMC's back.
func (h *host) press(on bool) { h.give(func(p *power) { p.button = on }) }

// newDevices runs a BMC for each host, and a PDU for all.
func (l *lab) newDevices() error {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.t.Cleanup(func() { listener.Close() })
	go l.serveSwitch(listener)
	// What the devices run: COMMAND WHOSE on|off|status.
	hook := filepath.Join(l.dir, "power")
	script := fmt.Sprintf("#!/bin/bash\nexec 3<> /dev/tcp/127.0.0.1/%d || exit 1\necho \"$*\" >&3\nread -r answer <&3 && [ \"$answer\" != error ] && echo \"$answer\"\n",
		listener.Addr().(*net.TCPAddr).Port)
	if err := os.WriteFile(hook, []byte(script), 0o755); err != nil {
		return err
	}
	for _, h := range l.hosts {
		bmc := ipmipeer.Start(l.t, ipmipeer.Config{Command: hook + " button " + h.name, GUID: fmt.Sprintf("%032x", h.number)})
		dead := func() bool { h.mu.Lock(); defer h.mu.Unlock(); return !h.power.bmc() }
		if err := l.newRelay(fmt.Sprintf(bmcNet, h.number)+":623", bmc.Addr(), dead); err != nil {
			return err
		}
	}
	pdu := snmppeer.Start(l.t, pduModel, func(c *snmppeer.Config) { c.Power = hook + " outlet" })
	return l.newRelay(pduAddress+":161", pdu.Address(), func() bool { return false })
}

const pduModel = "apc-rpdu2"

// serveSwitch answers the devices.
func (l *lab) serveSwitch(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			line, _ := bufio.NewReader(c).ReadString('\n')
			answer, err := l.switchPower(strings.Fields(line))
			if err != nil {
				answer = "error"
			}
			fmt.Fprintln(c, answer)
		}()
	}
}

// switchPower does what a device asks for: "button n1 off", "outlet 1 on".
func (l *lab) switchPower(words []string) (string, error) {
	if len(words) != 3 {
		return "", fmt.Errorf("%v", words)
	}
	for _, h := range l.hosts {
		switch on := words[2] == "on"; {
		case words[0] == "outlet" && words[1] == fmt.Sprint(h.number):
			h.give(func(p *power) { p.outlet = on })
			return "done", nil
		case words[0] == "button" && words[1] == h.name && words[2] == "status":
			h.mu.Lock()
			defer h.mu.Unlock()
			return map[bool]string{true: "on", false: "off"}[h.power.button], nil
		case words[0] == "button" && words[1] == h.name && (on || words[2] == "off"):
			h.press(on)
			return "done", nil
		}
	}
	return "", fmt.Errorf("%v", words)
}
