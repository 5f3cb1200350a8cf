//go:build systemdhost

package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents/ipmi/ipmipeer"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
	"github.com/hamgr/hamgr/cluster/api"
)

// The two groups: one has an address alone; the other all that a service with data needs.
const (
	groupIP   = "ip"
	groupData = "data"
)

var (
	addressIP   = netip.MustParseAddr("10.77.0.200")
	addressData = netip.MustParseAddr("10.77.0.201")
)

const detectionTime = 2 * time.Second

// How long anything may take that is not measured, on a machine that is slow and busy.
const patience = 60 * time.Second

func (l *lab) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, `[cluster]
name = "hosts"
key_file = "/etc/hamgr/cluster.key"
detection_time = "%s"
# A test shoots more than an operator would believe.
storm_window = "0s"
quarantine_window = "0s"
`, l.detection)
	plugs := make([]string, len(l.hosts))
	for i, h := range l.hosts {
		plugs[i] = fmt.Sprintf("%s = [\"%d\"]", h.name, h.number)
		fmt.Fprintf(&b, `
[[node]]
name = %[1]q
addresses = [%[2]q]
fencing = [["%[1]s-bmc"], ["pdu"]]

[[fence_device]]
name = "%[1]s-bmc"
agent = "ipmi"
address = %[3]q
username = %[4]q
password_file = "/etc/hamgr/secrets/bmc"
timeout = "5s"
`, h.name, h.address, fmt.Sprintf(bmcNet, h.number), ipmipeer.DefaultUsername)
	}
	fmt.Fprintf(&b, `
[[fence_device]]
name = "pdu"
agent = "snmp"
address = %q
version = "3"
username = %q
auth = %q
auth_password_file = "/etc/hamgr/secrets/pdu-auth"
priv = %q
priv_password_file = "/etc/hamgr/secrets/pdu-priv"
plugs = { %s }
timeout = "5s"

[[group]]
name = %q

[[group.resource]]
name = "ip"
kind = "address"
address = "%s/24"

[[group]]
name = %q

[[group.resource]]
name = "disk"
kind = "filesystem"
device = "/dev/test/shared0"
mountpoint = "/srv/data"
fstype = "ext4"

[[group.resource]]
name = "ip"
kind = "address"
address = "%s/24"

[[group.resource]]
name = "writer"
kind = "systemd"
unit = "writer.service"
`, pduAddress, snmppeer.Fencer.Name, snmppeer.Fencer.Auth, snmppeer.Fencer.Priv, strings.Join(plugs, ", "), groupIP, addressIP, groupData, addressData)
	return b.String()
}

const writerUnit = `[Unit]
Description=Writes on the shared disk
[Service]
Type=exec
ExecStart=/usr/local/bin/writer /srv/data/ledger /watched/ledger
`

// install puts hamgr, its configuration and the groups' service on a host's disk.
func (l *lab) install(h *host) error {
	key := filepath.Join(l.dir, "cluster.key")
	if !exists(key) {
		if err := command(filepath.Join(programs, "hamgr"), "init", "--key-file", key); err != nil {
			return err
		}
	}
	secret, err := os.ReadFile(key)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	units := "/etc/systemd/system/"
	errs := []error{
		h.copy(filepath.Join(programs, "hamgr"), "/usr/bin/hamgr", 0o755),
		h.copy(self, "/usr/local/bin/"+writerName, 0o755),
		h.copy("../../systemd/hamgr.service", units+"hamgr.service", 0o644),
		h.copy("../../systemd/hamgr-groups.target", units+"hamgr-groups.target", 0o644),
		h.put(units+"writer.service", writerUnit, 0o644),
		h.put("/etc/hamgr/hamgr.toml", l.config(), 0o600),
		h.put("/etc/hamgr/cluster.key", string(secret), 0o600),
		h.put("/etc/hamgr/secrets/bmc", ipmipeer.DefaultPassword+"\n", 0o600),
		h.put("/etc/hamgr/secrets/pdu-auth", snmppeer.Fencer.AuthPassword+"\n", 0o600),
		h.put("/etc/hamgr/secrets/pdu-priv", snmppeer.Fencer.PrivPassword+"\n", 0o600),
		os.MkdirAll(filepath.Join(h.dir, "upper/srv/data"), 0o755),
		os.MkdirAll(filepath.Join(h.dir, "upper", units, "multi-user.target.wants"), 0o755),
	}
	errs = append(errs, os.Symlink("../hamgr.service", filepath.Join(h.dir, "upper", units, "multi-user.target.wants/hamgr.service")))
	return errors.Join(errs...)
}

func (h *host) copy(from, to string, mode os.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return h.put(to, string(text), mode)
}

// newCluster boots three hosts with hamgr on them, and waits until the groups run.
func newCluster(t *testing.T) *lab {
	t.Helper()
	return newClusterOf(t, detectionTime)
}

func newClusterOf(t *testing.T, detection time.Duration) *lab {
	t.Helper()
	l := newLab(t, 3)
	l.detection = detection
	t.Cleanup(func() {
		if t.Failed() {
			l.tellAll()
		}
	})
	for _, h := range l.hosts {
		if err := l.install(h); err != nil {
			t.Fatal(err)
		}
		h.press(true)
	}
	l.settled(t, "the cluster forms", allNodes(l)...)
	return l
}

func allNodes(l *lab) (names []string) {
	for _, h := range l.hosts {
		names = append(names, h.name)
	}
	return names
}

// status asks a host.
func (h *host) status(ctx context.Context) (s api.Status, err error) {
	out, err := h.exec(ctx, "hamgr status --json")
	if uerr := json.Unmarshal([]byte(out), &s); uerr != nil { // its exit status tells of problems
		return s, errors.Join(err, uerr)
	}
	return s, nil
}

func group(s api.Status, name string) api.GroupStatus {
	if i := slices.IndexFunc(s.Groups, func(g api.GroupStatus) bool { return g.Name == name }); i >= 0 {
		return s.Groups[i]
	}
	return api.GroupStatus{Name: name, State: "unknown to the cluster"}
}

// settled waits until these nodes are in and no others, nothing is under way, and the groups run on some of them, in
// the eyes of each of these nodes. It gives what the last one sees.
func (l *lab) settled(t *testing.T, what string, nodes ...string) (seen api.Status) {
	t.Helper()
	until(t, patience, what, func(ctx context.Context) (err error) {
		for _, name := range nodes {
			if seen, err = l.host(name).status(ctx); err != nil {
				return err
			}
			if err := l.unsettled(seen, nodes); err != nil {
				return fmt.Errorf("%s sees: %w", name, err)
			}
		}
		return nil
	})
	return seen
}

func (l *lab) unsettled(s api.Status, nodes []string) error {
	if !s.Quorate || s.Coordinator == "" {
		return fmt.Errorf("no quorum: %s%s", s.Note, s.Waiting)
	}
	if need := (len(nodes) - 1) / 2; s.Tolerates < need {
		return fmt.Errorf("%d nodes may fail, not %d: not all vote yet", s.Tolerates, need)
	}
	for _, n := range s.Nodes {
		if in := slices.Contains(nodes, n.Name); (n.State == api.NodeAlive) != in || in && n.Unclean {
			return fmt.Errorf("node %s is %s, unclean: %v", n.Name, n.State, n.Unclean)
		} else if boot := l.host(n.Name).bootID(); in && n.Boot != boot {
			return fmt.Errorf("node %s is in boot %s, and counts as being in %s", n.Name, boot, n.Boot)
		}
	}
	for _, name := range []string{groupIP, groupData} {
		if g := group(s, name); g.State != api.GroupRunning || !slices.Contains(nodes, g.Node) {
			return fmt.Errorf("group %s is %s on %q: %s", name, g.State, g.Node, g.Detail)
		}
	}
	return nil
}

// moved waits until a group runs elsewhere than on a node.
func (l *lab) moved(t *testing.T, ask *host, name, from string) (g api.GroupStatus) {
	t.Helper()
	until(t, patience, name+" leaves "+from, func(ctx context.Context) error {
		s, err := ask.status(ctx)
		if err != nil {
			return err
		}
		if g = group(s, name); g.State != api.GroupRunning || g.Node == from {
			return fmt.Errorf("it is %s on %q: %s", g.State, g.Node, g.Detail)
		}
		return nil
	})
	return g
}

// tellAll shows what a failed test needs.
func (l *lab) tellAll() {
	for _, h := range l.hosts {
		l.t.Logf("---- journal of %s\n%s", h.name, h.journal("-o", "short-monotonic", "-u", "hamgr", "-u", "writer", "-n", "150"))
		if console, err := os.ReadFile(filepath.Join(h.dir, "console.log")); err == nil && len(console) > 0 {
			l.t.Logf("---- console of %s\n%s", h.name, console)
		}
	}
}
