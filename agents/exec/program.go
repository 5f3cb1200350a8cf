package exec

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// searched are the folders in which a command without a path is looked for. It is a fixed list:
// what runs as root must not depend on an environment.
var searched = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"}

const prefix = "fence_"

// checkCommand says what is wrong with a command, without looking for it.
func checkCommand(command string) (msg, cure string) {
	base := filepath.Base(command)
	switch {
	case command == "":
		return "is missing", `write the name of a fence agent, like "fence_apc"`
	case strings.ContainsFunc(command, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "holds a control character", ""
	case filepath.IsAbs(command) && filepath.Clean(command) != command:
		return fmt.Sprintf("%q is not a plain path", command), fmt.Sprintf("write %q", filepath.Clean(command))
	case !filepath.IsAbs(command) && strings.Contains(command, "/"):
		return fmt.Sprintf("%q is neither a name nor an absolute path", command), "write the path from / on"
	case !filepath.IsAbs(command) && (!isName(command) || !strings.HasPrefix(command, prefix)):
		return fmt.Sprintf("%q is not the name of a fence agent", command), "write a name that begins with " + prefix + ", or an absolute path, and the options apart"
	case powerless[base] != "":
		return base + " " + powerless[base], "name one that switches power"
	}
	return "", ""
}

// findProgram gives the path of a command.
func findProgram(command string) (string, error) {
	if filepath.IsAbs(command) {
		if runnable(command) {
			return command, guarded(command)
		}
		return "", fmt.Errorf("%w: there is no such program", agents.ErrUnfit)
	}
	for _, dir := range searched {
		if path := filepath.Join(dir, command); runnable(path) {
			return path, guarded(path)
		}
	}
	return "", fmt.Errorf("%w: it is not installed in %s", agents.ErrUnfit, strings.Join(searched, ", "))
}

// guarded refuses a program that anybody could replace: it would run with the daemon's rights.
func guarded(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&0o002 != 0 {
		return fmt.Errorf("%w: all users can write it (mode %04o)", agents.ErrUnfit, info.Mode().Perm())
	}
	return err
}

func runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// programs are the fence agents on this host that are not known to be of no use.
func programs() []string {
	return slices.DeleteFunc(installed(), func(name string) bool { return powerless[name] != "" })
}

// installed are all fence agents on this host.
func installed() []string {
	var names []string
	for _, dir := range searched {
		found, _ := filepath.Glob(filepath.Join(dir, prefix+"*"))
		for _, path := range found {
			if runnable(path) {
				names = append(names, filepath.Base(path))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// powerless are agents whose "off" is not a power state that was read from a switch, though their
// metadata does not always show it: believed, it would be a false proof.
var powerless = map[string]string{
	"fence_ack_manual":      "asks a person: that is hamgr fence confirm",
	"fence_compute":         "disables a compute service, and switches no power",
	"fence_crosslink":       "takes an unanswered ping for off",
	"fence_dummy":           "is for tests, and switches nothing",
	"fence_evacuate":        "moves virtual machines, and switches no power",
	"fence_heuristics_ping": "pings, and switches no power",
	"fence_kdump":           "waits for a crash dump, and switches no power",
	"fence_mpath":           "cuts off storage, not power",
	"fence_sanlock":         "relies on a watchdog, and reads no power state",
	"fence_sbd":             "leaves a message on a disk, and reads no power state",
	"fence_scsi":            "cuts off storage, not power",
	"fence_watchdog":        "relies on a watchdog, and reads no power state",
}

// unfit says why an agent cannot fence for hamgr, which believes nothing but a power state that reads
// off; nil if it can.
func (m *metadata) unfit(path string) error {
	names := []string{filepath.Base(path), m.name}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		names = append(names, filepath.Base(real))
	}
	for _, name := range names {
		if why := powerless[name]; why != "" {
			return fmt.Errorf("%w: %s %s", agents.ErrUnfit, name, why)
		}
	}
	for _, a := range m.actions {
		if a.name == "on" && (a.automatic || a.onTarget) {
			return fmt.Errorf("%w: it cuts off a network or a storage and has to be undone on the node (unfencing); it switches no power", agents.ErrUnfit)
		}
	}
	for _, needed := range []string{"off", "status"} {
		if !m.can(needed) {
			return fmt.Errorf("%w: it has no action %q, and off has to be ordered and read back", agents.ErrUnfit, needed)
		}
	}
	return nil
}
