package demo

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The cluster that every demo builds.
const (
	clusterName = "demo"
	groupName   = "ledger"
	port        = 7846
)

var nodeNames = []string{"alpha", "beta", "gamma"}

// memory is a file system without a disk below it.
const memory = "/dev/shm"

// DefaultParent is where demos make their folders: $TMPDIR if that is set, else in memory where possible. A
// voter gives up when its disk takes longer than half of detection_time, and with one
// second of that a busy desktop's disk does now and then.
func DefaultParent() string {
	if dir := os.Getenv("TMPDIR"); dir != "" {
		return dir
	}
	if probe, err := os.MkdirTemp(memory, "hamgr-demo-"); err == nil && os.Remove(probe) == nil {
		return memory
	}
	return os.TempDir()
}

// layout says where everything of a demo is: one folder, and one small network of loopback addresses.
type layout struct {
	dir string
	net [2]byte // the nodes' addresses are 127.net[0].net[1].x
}

// newLayout makes the folder and picks a network that nobody uses, so that several demos
// run side by side.
func newLayout(parent string) (layout, error) {
	dir, err := os.MkdirTemp(parent, "hamgr-demo-")
	if err != nil {
		return layout{}, fmt.Errorf("folder of the demo: %w", err)
	}
	l := layout{dir: dir}
	// The limit of sun_path (unix(7)), with its final NUL.
	if path := l.socket("alpha"); len(path) > 107 {
		return layout{}, errors.Join(fmt.Errorf("%s is too long a path for a socket; set TMPDIR to a short one", path), os.Remove(dir))
	}
	for range 100 {
		if _, err := rand.Read(l.net[:]); err != nil {
			return layout{}, errors.Join(err, os.RemoveAll(dir))
		}
		l.net[0] |= 64 // far from 127.0.0.1, where all others live
		if err = l.free(); err == nil {
			return l, nil
		}
	}
	return layout{}, errors.Join(fmt.Errorf("no free loopback addresses: %w", err), os.RemoveAll(dir))
}

// free reports whether nobody listens at the nodes' addresses.
func (l layout) free() error {
	for _, node := range nodeNames {
		address := fmt.Sprintf("%s:%d", l.address(node), port)
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		udp, err := net.ListenPacket("udp", address)
		if err != nil {
			return errors.Join(err, tcp.Close())
		}
		if err := errors.Join(tcp.Close(), udp.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (l layout) host(last int) string {
	return fmt.Sprintf("127.%d.%d.%d", l.net[0], l.net[1], last)
}

func (l layout) address(node string) string { return l.host(nodeNumber(node)) }

// bmcAddress is a BMC's: it has a network interface, and power, of its own.
func (l layout) bmcAddress(node string) string { return l.host(100 + nodeNumber(node)) }

func nodeNumber(node string) int {
	for i, n := range nodeNames {
		if n == node {
			return i + 1
		}
	}
	panic("demo: no node " + node)
}

func (l layout) file(name string) string   { return filepath.Join(l.dir, name) }
func (l layout) config() string            { return l.file("hamgr.toml") }
func (l layout) key() string               { return l.file("cluster.key") }
func (l layout) keyOf(node string) string  { return l.file(node + ".key") }
func (l layout) ledger() string            { return l.file("ledger") }
func (l layout) refused() string           { return l.file("refused") }
func (l layout) guard() string             { return l.file("guard") }
func (l layout) bmcPassword() string       { return l.file("bmc-password") }
func (l layout) bmcCA(node string) string  { return l.file(node + "-bmc-ca.pem") }
func (l layout) data(node string) string   { return l.file(node) }
func (l layout) socket(node string) string { return l.file(node + ".sock") }
func (l layout) log(node string) string    { return l.file(node + ".log") }
func (l layout) writerCommand(exe string) []string {
	return []string{exe, "demo", "writer", "--ledger", l.ledger(), "--refused", l.refused(), "--guard", l.guard()}
}

// bmcAccess is what the nodes need to know of one BMC.
type bmcAccess struct {
	node, url, username, system string
}

// toml is the cluster's configuration file, the same for all nodes.
func (l layout) toml(exe string, detection time.Duration, prefer []string, bmcs []bmcAccess) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[cluster]\nname = %q\nkey_file = %q\ndetection_time = %q\nport = %d\n", clusterName, l.key(), detection, port)
	// One node after the other fails here within a minute, and every time on purpose.
	b.WriteString("storm_window = \"0s\"\nquarantine_window = \"0s\"\nrehearsal_age = \"0s\"\n")
	for _, n := range nodeNames {
		fmt.Fprintf(&b, "\n[[node]]\nname = %q\naddresses = [%q]\nfencing = [[%q]]\n", n, l.address(n), n+"-bmc")
	}
	for _, bmc := range bmcs {
		fmt.Fprintf(&b, "\n[[fence_device]]\nname = %q\nagent = \"redfish\"\naddress = %q\nusername = %q\npassword_file = %q\nca_file = %q\nsystem = %q\n",
			bmc.node+"-bmc", bmc.url, bmc.username, l.bmcPassword(), l.bmcCA(bmc.node), bmc.system)
	}
	fmt.Fprintf(&b, "\n[[group]]\nname = %q\nprefer = %s\n", groupName, tomlList(prefer))
	fmt.Fprintf(&b, "\n[[group.resource]]\nname = \"writer\"\nkind = \"command\"\nrun = %s\nlog_file = %q\n",
		tomlList(l.writerCommand(exe)), l.file("writer.log"))
	return b.String()
}

func tomlList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
