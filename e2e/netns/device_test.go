package netns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/e2e/history"
)

// fenceName is the fence agent by which the nodes cut each other's power; switchName, the command by which an
// ipmi_sim does. Both ask the device, which is in the test.
const (
	fenceName  = "fence_netns"
	switchName = "switch"
)

const fenceMetadata = `<?xml version="1.0" ?>
<resource-agent name="fence_netns" shortdesc="Power of namespaces">
<longdesc>Switches nodes that are network namespaces.</longdesc>
<parameters>
<parameter name="action" required="1"><content type="string" default="off"/><shortdesc lang="en">Fencing action</shortdesc></parameter>
<parameter name="ip" required="1"><content type="string"/><shortdesc lang="en">Socket of the device</shortdesc></parameter>
<parameter name="plug" required="1"><content type="string"/><shortdesc lang="en">Node</shortdesc></parameter>
</parameters>
<actions><action name="on" automatic="0"/><action name="off"/><action name="status"/><action name="monitor"/><action name="metadata"/></actions>
</resource-agent>
`

// fence is the agent's main program (FenceAgentAPI of ClusterLabs: options on standard input).
func fence(in io.Reader, out io.Writer) int {
	options := map[string]string{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		options[key] = value
	}
	switch action := options["action"]; action {
	case "metadata":
		fmt.Fprint(out, fenceMetadata)
		return 0
	case "monitor":
		return 0
	default:
		answer, err := ask(options["ip"], action, options["plug"])
		switch {
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			return 1
		case action == "status":
			fmt.Fprintln(out, "Status: "+strings.ToUpper(answer))
			if answer == "off" {
				return 2
			}
		}
		return 0
	}
}

// press is the main program of the command that an ipmi_sim runs: SOCKET NODE on|off|status.
func press(args []string, out io.Writer) int {
	if len(args) != 3 {
		return 2
	}
	answer, err := ask(args[0], args[2], args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(out, answer)
	return 0
}

// ask asks the device, and says from which network namespace.
func ask(socket, action, node string) (string, error) {
	where, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return "", err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	fmt.Fprintln(conn, where, action, node)
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("the device has hung up: %w", err)
	}
	answer = strings.TrimSpace(answer)
	if answer == "error" {
		return "", errors.New("the device refuses")
	}
	return answer, nil
}

// call is one call at the device.
type call struct {
	by, action, node string
	began, ended     time.Time
}

// device switches the power of all nodes.
type device struct {
	l        *lab
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	calls  []*call
	silent map[string]bool // nodes whose power can neither be read nor switched
	stuck  map[string]bool // nodes whose power can be read, and not switched
	// before and after are called around each call that does something, if they are there.
	before, after func(call)
}

func (l *lab) newDevice() error {
	d := &device{l: l, silent: map[string]bool{}, stuck: map[string]bool{}}
	l.device = d
	var err error
	if d.listener, err = net.Listen("unix", d.socket()); err != nil {
		return err
	}
	d.done.Go(func() {
		for {
			c, err := d.listener.Accept()
			if err != nil {
				return
			}
			d.done.Go(func() { d.serve(c) })
		}
	})
	return nil
}

func (d *device) socket() string { return filepath.Join(d.l.dir, "power.sock") }

func (d *device) close() {
	d.listener.Close()
	d.done.Wait()
}

func (d *device) serve(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 {
		return // its asker was killed
	}
	answer, err := d.act(words[0], words[1], words[2])
	if err != nil {
		answer = "error"
	}
	fmt.Fprintln(conn, answer)
}

// hook sets what is called around each call.
func (d *device) hook(before, after func(call)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

// silence makes a node's power unreadable, or readable again.
func (d *device) silence(node string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent[node] = on
}

// stick makes a node's power one that stays as it is, or one that can be switched again.
func (d *device) stick(node string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck[node] = on
}

func (d *device) act(where, action, node string) (string, error) {
	h := d.l.hosts[node]
	c := &call{action: action, node: node, began: time.Now()}
	for _, by := range d.l.hosts {
		if by.id == where {
			c.by = by.name
		}
	}
	d.mu.Lock()
	before, after, silent := d.before, d.after, d.silent[node] || h == nil || d.stuck[node] && action != "status"
	if !silent {
		d.calls = append(d.calls, c)
	}
	seen := *c
	d.mu.Unlock()
	if silent {
		return "", errors.New("no answer")
	}
	if before != nil {
		before(seen)
	}
	answer, err := "done", error(nil)
	switch action {
	case "status":
		answer = map[bool]string{true: "on", false: "off"}[h.machine.State()]
		if answer == "off" {
			d.l.seen.saw(history.SeenOff, node, "")
		}
	case "off":
		d.l.seen.saw(history.Commanded, node, h.machine.Boot())
		err = h.off()
	case "on":
		err = h.on()
	default:
		err = fmt.Errorf("no action %q", action)
	}
	d.mu.Lock()
	c.ended = time.Now()
	seen = *c
	d.mu.Unlock()
	if after != nil {
		after(seen)
	}
	return answer, err
}

// commands gives the calls that switch, in the order of their beginnings.
func (d *device) commands() (all []call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.calls {
		if c.action != "status" {
			all = append(all, *c)
		}
	}
	slices.SortStableFunc(all, func(a, b call) int { return a.began.Compare(b.began) })
	return all
}

// opposite gives two commands of opposite sense that were at work on one node at once.
func opposite(all []call) error {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.node == b.node && a.action != b.action && (a.ended.IsZero() || b.began.Before(a.ended)) {
				return fmt.Errorf("%s by %s while %s by %s was at work on %s", b.action, b.by, a.action, a.by, a.node)
			}
		}
	}
	return nil
}
