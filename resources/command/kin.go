package command

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// Marks in the environment of processes. Their value is the private directory, the one name that no other resource, node or
// cluster on this host shares.
const (
	// dirVariable is in all that belongs to the service.
	dirVariable = "HAMGR_DIR="
	// actionVariable is in a command that looks or stops, and so does not belong to it.
	actionVariable = "HAMGR_ACTION_DIR="
)

// kin are the processes that descend from one start: by the mark in their environment, by the session or process group of the
// leader, by the control group of the unit, or as the child of one that descends.
type kin struct {
	mark   string
	leader process.Process // zero if it is not known
	unit   string          // of systemd; may be empty
	reap   func(process.Process)
}

// members are all that belong to the service, whatever its token.
func (c *command) members(ctx context.Context, rec record) ([]process.Process, error) {
	return c.kin(rec).find(ctx)
}

func (c *command) kin(rec record) kin {
	k := kin{mark: dirVariable + c.dir, reap: c.exits.reap}
	if rec.Boot == c.env.Boot { // else its numbers mean nothing any more
		k.leader, k.unit = rec.process(), rec.Unit
	}
	return k
}

// find lists those that run now. Of what is just ending nobody can tell whose it was, so its end is waited for.
func (k kin) find(ctx context.Context) ([]process.Process, error) {
	all, err := process.All()
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	ours, group := map[int]bool{}, k.group()
	var leaving []process.Process
	for _, p := range all {
		if exempt(p) {
			continue
		}
		// What this daemon may not read belongs to another user, hence not to what it started, unless that changed its
		// user: only a daemon that runs as root sees those.
		ours[p.PID] = k.inSession(p, all) || inGroup(p, group)
		if !ours[p.PID] {
			var unknown bool
			if ours[p.PID], unknown = p.Bears(k.mark); unknown {
				leaving = append(leaving, p)
			}
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !ours[p.PID] && ours[p.Parent] && !exempt(p) {
				ours[p.PID], grown = true, true
			}
		}
	}
	var running []process.Process
	for _, p := range all {
		switch {
		case !ours[p.PID]:
		case !p.Ended():
			running = append(running, p)
		case k.reap != nil:
			k.reap(p)
		}
	}
	if len(running) > 0 {
		return running, nil // to be looked for again, and not to be let slip away meanwhile
	}
	leaving = slices.DeleteFunc(leaving, func(p process.Process) bool { return ours[p.PID] })
	if err := process.AwaitLeaving(ctx, leaving); err != nil {
		return nil, fmt.Errorf("wait for processes that are ending: %w", err)
	}
	return nil, nil
}

// exempt are those that are never ended, whatever marks they bear.
func exempt(p process.Process) bool {
	return p.Kernel || p.PID == 1 || p.PID == os.Getpid()
}

// inSession reports whether p is the leader or in its session or group. The
// kernel gives a PID away again only when no session or group bears it, so a younger process
// with that PID means that these are a stranger's.
func (k kin) inSession(p process.Process, all []process.Process) bool {
	if k.leader.PID == 0 || p.Start < k.leader.Start || (p.Session != k.leader.PID && p.Group != k.leader.PID) {
		return false
	}
	for _, q := range all {
		if q.PID == k.leader.PID {
			return q.Start == k.leader.Start
		}
	}
	return true
}

// group is the path of the unit's control group.
func (k kin) group() string {
	if k.unit == "" {
		return ""
	}
	return rooted("/" + slice + "/" + k.unit)
}

// rooted is the path of one of systemd's control groups. It begins at PID 1's root: a container may have a systemd, and a hamgr, of its own, whose
// groups are called the same below another one.
func rooted(group string) string {
	b, err := os.ReadFile("/proc/1/cgroup")
	if err != nil {
		return ""
	}
	for own := range groups(b) {
		if root, ok := bytes.CutSuffix(own, []byte("/init.scope")); ok {
			return string(root) + group
		}
	}
	return group
}

// inGroup reports whether p is in a control group, or in one below it: cgroups(7), "/proc files".
func inGroup(p process.Process, group string) bool {
	if group == "" {
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
	return err == nil && isIn(b, group)
}

func isIn(b []byte, group string) bool {
	for own := range groups(b) {
		if string(own) == group || strings.HasPrefix(string(own), group+"/") {
			return true
		}
	}
	return false
}

// isService reports whether a process is in the control group of a service.
func isService(b []byte) bool {
	for own := range groups(b) {
		if bytes.HasSuffix(own, []byte(".service")) {
			return true
		}
	}
	return false
}

// groups are the paths in systemd's hierarchies. A line is the hierarchy, its controllers and the path; systemd's is the one without
// controllers, or named by it.
func groups(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for line := range bytes.Lines(b) {
			parts := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
			if len(parts) != 3 || len(parts[1]) > 0 && !bytes.Equal(parts[1], []byte("name=systemd")) {
				continue
			}
			if !yield(parts[2]) {
				return
			}
		}
	}
}

// killGroup has the kernel kill the unit's whole control group at once, where it can (Linux 5.14, unified hierarchy): processes that
// make others and end are gone before they can be killed one by one.
func (k kin) killGroup() {
	if group := k.group(); group != "" {
		_ = os.WriteFile(filepath.Join("/sys/fs/cgroup", group, "cgroup.kill"), []byte("1"), 0)
	}
}
