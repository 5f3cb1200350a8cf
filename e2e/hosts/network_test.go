//go:build systemdhost

package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The network is a bridge in a namespace of its own, which the machine does not see. On it are the hosts, a client, and the
// fence devices.
const (
	hostNet    = "10.77.0.%d" // host i
	bmcNet     = "10.77.0.10%d"
	pduAddress = "10.77.0.150"
	clientAddr = "10.77.0.250"
	switchAddr = "10.77.0.254"
)

// space names one of the lab's network namespaces.
func (l *lab) space(name string) string { return filepath.Base(l.dir) + "-" + name }

func (l *lab) switchSpace() string { return l.space("switch") }

// newNetwork makes the bridge and the client.
func (l *lab) newNetwork(hosts int) error {
	sw := l.switchSpace()
	steps := [][]string{
		{"netns", "add", sw},
		{"-n", sw, "link", "set", "lo", "up"},
		// With a MAC of its own: else it has the lowest of its ports', and another when that one is unplugged.
		{"-n", sw, "link", "add", "br0", "address", "02:77:00:00:00:fe", "type", "bridge", "stp_state", "0", "forward_delay", "0"},
		{"-n", sw, "link", "set", "br0", "up"},
		{"-n", sw, "addr", "add", switchAddr + "/24", "dev", "br0"},
		{"-n", sw, "addr", "add", pduAddress + "/24", "dev", "br0"},
		{"netns", "add", l.space("client")},
	}
	for i := range hosts {
		steps = append(steps, []string{"-n", sw, "addr", "add", fmt.Sprintf(bmcNet, i+1) + "/24", "dev", "br0"})
	}
	if err := ip(steps...); err != nil {
		return err
	}
	return l.plug("client", clientAddr, "02:77:00:00:00:fa")
}

// plug gives a namespace fresh wires: eth0, whose other end is a port of the bridge with the namespace's name.
func (l *lab) plug(name, address, mac string) error {
	sw, ns := l.switchSpace(), l.space(name)
	return ip(
		[]string{"-n", sw, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", ns, "address", mac},
		[]string{"-n", sw, "link", "set", name, "master", "br0", "up"},
		[]string{"-n", ns, "addr", "add", address + "/24", "dev", "eth0"},
		[]string{"-n", ns, "link", "set", "eth0", "up"},
		[]string{"-n", ns, "link", "set", "lo", "up"},
	)
}

// unplug takes a namespace's wires away: nothing that dies in it can say so.
func (l *lab) unplug(name string) { _ = command("ip", "-n", l.switchSpace(), "link", "del", name) }

func ip(steps ...[]string) error {
	for _, args := range steps {
		if err := command("ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// inSpace calls f on a thread in a network namespace. Sockets that it opens belong there for ever.
func inSpace(name string, f func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open(filepath.Join("/run/netns", name))
	if err != nil {
		return err
	}
	defer other.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", name, err)
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			panic("no way back from a network namespace: " + err.Error()) // the thread would do harm elsewhere
		}
	}()
	return f()
}

// neighbour is the MAC that the client knows for an address; empty for none.
func (l *lab) neighbour(ctx context.Context, address string) (mac string, err error) {
	out, err := exec.CommandContext(ctx, "ip", "-n", l.space("client"), "neigh", "show", "to", address, "dev", "eth0").Output()
	_, mac, _ = strings.Cut(string(out), "lladdr ")
	mac, _, _ = strings.Cut(mac, " ")
	return mac, err
}

// relay carries datagrams between an address of the lab's network and a device that listens on the machine's loopback.
type relay struct {
	front net.PacketConn
	back  string
	quiet func() bool // the device has no power, or cannot be reached
}

func (l *lab) newRelay(front, back string, quiet func() bool) error {
	r := &relay{back: back, quiet: func() bool { return l.unreachable.Load() || quiet() }}
	err := inSpace(l.switchSpace(), func() (err error) {
		r.front, err = net.ListenPacket("udp4", front)
		return err
	})
	if err != nil {
		return err
	}
	l.t.Cleanup(func() { r.front.Close() })
	go r.forth()
	return nil
}

func (r *relay) forth() {
	backs := map[string]net.Conn{} // by the asker
	defer func() {
		for _, c := range backs {
			c.Close()
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := r.front.ReadFrom(buffer)
		if err != nil {
			return
		}
		if r.quiet() {
			continue
		}
		c := backs[from.String()]
		if c == nil {
			if c, err = net.Dial("udp4", r.back); err != nil {
				continue
			}
			backs[from.String()] = c
			go r.answer(c, from)
		}
		c.Write(buffer[:n]) // lost or not, as UDP is
	}
}

func (r *relay) answer(c net.Conn, to net.Addr) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil && !r.quiet():
			r.front.WriteTo(buffer[:n], to)
		}
	}
}
