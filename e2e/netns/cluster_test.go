package netns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/api"
)

const (
	// detection is the detection_time of all clusters that do not say otherwise.
	detection = 2 * time.Second
	// patience is how long anything may take that is not measured, on a machine that is slow and busy.
	patience = 90 * time.Second
	// pollEvery is how often a condition that is waited for is looked at.
	pollEvery = 100 * time.Millisecond
)

// shape is what a cluster is made of.
type shape struct {
	members int
	witness bool
	twoNode bool                // the survivor may go on alone
	spare   bool                // there is one host more than the configuration has
	prefer  map[string][]string // the groups, each with its preferred nodes; nil: one, that prefers n1, n2, ...
	fencing func(node string) string
	guest   string // the node that has a kernel of its own
}

// conf is what a test may change in a configuration.
type conf struct {
	names     []string // of the nodes
	detection time.Duration
	addresses map[string][]string // of a node, where they are not the ones of its host
	cluster   string              // other keys of [cluster] than the usual ones
	group     string              // more keys of each [[group]]
}

// theGroup is the one group of a cluster whose shape names none.
const theGroup = "ledger"

// lab is a cluster.
type lab struct {
	t      *testing.T
	dir    string
	shape  shape
	conf   conf // with which the cluster begins
	groups []string
	names  []string // of the hosts
	hosts  map[string]*host
	wires  *wires
	device *device
	seen   *recorder
	mounts []string // file systems of hosts
}

// witness is the name of the node that only votes.
const witness = "w"

// newLab makes a cluster of hosts without power. It is gone when the test is.
func newLab(t *testing.T, s shape) *lab {
	t.Helper()
	if s.prefer == nil {
		s.prefer = map[string][]string{theGroup: nil}
	}
	dir, err := os.MkdirTemp("/dev/shm", "lab-")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, shape: s, groups: slices.Sorted(maps.Keys(s.prefer)), hosts: map[string]*host{}, wires: newWires(), seen: newRecorder()}
	for i := range s.members {
		l.names = append(l.names, fmt.Sprintf("n%d", i+1))
	}
	if s.witness {
		l.names = append(l.names, witness)
	}
	l.conf = conf{names: slices.Clone(l.names), detection: detection}
	if s.spare {
		l.names = append(l.names, fmt.Sprintf("n%d", s.members+1))
	}
	t.Cleanup(func() {
		if len(l.hosts) == len(l.names) {
			l.checkHistory()
		}
		if t.Failed() {
			l.tellAll()
		}
		if err := l.remove(); err != nil {
			t.Error(err)
		}
	})
	if err := l.prepare(); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) prepare() error {
	if err := l.newDevice(); err != nil {
		return err
	}
	for i, name := range l.names {
		h, err := l.newHost(name, byte(i+1))
		if err != nil {
			return err
		}
		l.hosts[name] = h
	}
	for _, name := range l.names {
		if err := os.WriteFile(l.hosts[name].config(), []byte(l.toml(l.conf)), 0o600); err != nil {
			return err
		}
	}
	for _, g := range l.groups {
		if err := os.MkdirAll(l.file(g+".guard"), 0o700); err != nil {
			return err
		}
	}
	return command("", hamgr, "init", "--key-file", l.file("cluster.key"))
}

func (l *lab) file(name string) string { return filepath.Join(l.dir, name) }

// remove ends all of it.
func (l *lab) remove() error {
	var errs []error
	if l.device != nil {
		l.device.close() // nobody switches power on any more
	}
	for _, h := range l.hosts {
		errs = append(errs, h.remove())
	}
	l.wires.close()
	for _, dir := range l.mounts {
		errs = append(errs, unix.Unmount(dir, 0))
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

func (l *lab) toml(c conf) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[cluster]\nname = \"netns\"\nkey_file = %q\ndetection_time = %q\n%s", l.file("cluster.key"), c.detection, c.cluster)
	if l.shape.twoNode {
		b.WriteString("two_node = true\n")
	}
	if c.cluster == "" { // a test shoots more than an operator would believe
		b.WriteString("storm_window = \"0s\"\nquarantine_window = \"0s\"\nrehearsal_age = \"0s\"\n")
	}
	for _, name := range c.names {
		addresses := c.addresses[name]
		if addresses == nil {
			addresses = []string{address(0, l.hosts[name].number), address(1, l.hosts[name].number)}
		}
		fmt.Fprintf(&b, "\n[[node]]\nname = %q\naddresses = [\"%s\"]\n", name, strings.Join(addresses, `", "`))
		switch {
		case name == witness:
			b.WriteString("role = \"witness\"\n")
		case l.shape.fencing != nil:
			fmt.Fprintf(&b, "fencing = [[\"%s-power\"]]\n%s", name, l.shape.fencing(name))
		default:
			fmt.Fprintf(&b, "fencing = [[\"%[1]s-power\"]]\n\n[[fence_device]]\nname = \"%[1]s-power\"\nagent = \"exec\"\ncommand = %[2]q\nsees = \"machine\"\noptions = { ip = %[3]q }\nplugs = { %[1]s = [%[1]q] }\n",
				name, filepath.Join(programs, fenceName), l.device.socket())
		}
	}
	for _, g := range l.groups {
		fmt.Fprintf(&b, "\n[[group]]\nname = %q\n", g)
		if prefer := l.shape.prefer[g]; len(prefer) > 0 {
			fmt.Fprintf(&b, "prefer = [\"%s\"]\n", strings.Join(prefer, `", "`))
		}
		b.WriteString(c.group)
		fmt.Fprintf(&b, "\n[[group.resource]]\nname = \"writer\"\nkind = \"command\"\nrun = [%q, \"demo\", \"writer\", \"--ledger\", %q, \"--refused\", %q, \"--guard\", %q]\nlog_file = %q\n",
			hamgr, l.file(g+".ledger"), l.file(g+".refused"), l.file(g+".guard"), l.file(g+".log"))
	}
	return b.String()
}

// newCluster is a lab whose hosts are on and whose groups run.
func newCluster(t *testing.T, s shape) *lab {
	t.Helper()
	l := newLab(t, s)
	l.powerOn(l.conf.names...)
	l.settled("the cluster forms", l.conf.names...)
	return l
}

func (l *lab) powerOn(names ...string) {
	l.t.Helper()
	for _, name := range names {
		if err := l.hosts[name].on(); err != nil {
			l.t.Fatal(err)
		}
	}
}

// status asks a node's daemon.
func (l *lab) status(ctx context.Context, name string) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := api.NewClient(api.DialUnix(l.hosts[name].socket()))
	defer client.Close()
	return client.Status(ctx)
}

// settled waits until these nodes are in and no others, nothing is under way, and all groups run on some of them, in the
// eyes of each of them. It gives what the last one sees.
func (l *lab) settled(what string, names ...string) (seen api.Status) {
	l.t.Helper()
	return l.settledWithin(patience, what, names...)
}

func (l *lab) settledWithin(within time.Duration, what string, names ...string) (seen api.Status) {
	l.t.Helper()
	l.until(within, what, func(ctx context.Context) (err error) {
		for _, name := range names {
			if seen, err = l.status(ctx, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := l.unsettled(seen, names); err != nil {
				return fmt.Errorf("%s sees: %w", name, err)
			}
		}
		return nil
	})
	return seen
}

func (l *lab) unsettled(s api.Status, in []string) error {
	if err := l.apart(s, in); err != nil {
		return err
	}
	for _, name := range l.groups {
		if g := groupOf(s, name); g.State != api.GroupRunning || !slices.Contains(in, g.Node) {
			return fmt.Errorf("group %s is %s on %q: %s", name, g.State, g.Node, g.Detail)
		}
	}
	return nil
}

// apart says what is missing until these nodes, and no others, are in with quorum.
func (l *lab) apart(s api.Status, in []string) error {
	if !s.Quorate || s.Coordinator == "" {
		return fmt.Errorf("no quorum: %s%s", s.Note, s.Waiting)
	}
	if whole := len(s.Nodes)/2 + 1; s.Tolerates < len(in)-whole || l.shape.twoNode && s.Tolerates < len(in)-1 {
		return fmt.Errorf("%d nodes may fail, not %d (%s): not all vote yet", s.Tolerates, len(in)-whole, s.ToleratesBy)
	}
	for _, n := range s.Nodes {
		alive := n.State == api.NodeAlive
		if want := slices.Contains(in, n.Name); alive != want || want && (n.Unclean || n.FenceOp != 0) {
			return fmt.Errorf("node %s is %s, unclean: %v %s, operation %d", n.Name, n.State, n.Unclean, n.UncleanReason, n.FenceOp)
		} else if boot := l.hosts[n.Name].machine.Boot(); want && n.Boot != boot {
			return fmt.Errorf("node %s is in boot %s, and counts as being in %s", n.Name, boot, n.Boot)
		}
	}
	return nil
}

func groupOf(s api.Status, name string) api.GroupStatus {
	if i := slices.IndexFunc(s.Groups, func(g api.GroupStatus) bool { return g.Name == name }); i >= 0 {
		return s.Groups[i]
	}
	return api.GroupStatus{Name: name, State: "unknown to the cluster"}
}

func nodeOf(s api.Status, name string) api.NodeStatus {
	if i := slices.IndexFunc(s.Nodes, func(n api.NodeStatus) bool { return n.Name == name }); i >= 0 {
		return s.Nodes[i]
	}
	return api.NodeStatus{Name: name, State: "unknown to the cluster"}
}

// others are the nodes besides these.
func (l *lab) others(names ...string) []string {
	return slices.DeleteFunc(slices.Clone(l.names), func(n string) bool { return slices.Contains(names, n) })
}

// until waits for a condition, and tells what is not as it should be when the time is over.
func (l *lab) until(within time.Duration, what string, ok func(ctx context.Context) error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), within)
	defer cancel()
	var why error
	for {
		err := ok(ctx)
		if err == nil {
			return
		}
		if why == nil || ctx.Err() == nil {
			why = err // not that this was the end
		}
		select {
		case <-ctx.Done():
			l.t.Fatalf("%s: not within %v: %v", what, within, why)
		case <-time.After(pollEvery):
		}
	}
}

// let lets the cluster alone for a time, in which a fault lasts.
func (l *lab) let(d time.Duration) {
	l.t.Helper()
	select {
	case <-l.t.Context().Done():
		l.t.Fatal(l.t.Context().Err())
	case <-time.After(d):
	}
}

// command runs a program and tells what it said when it failed.
func command(input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
