package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"
)

// serviceJob is what systemd is about to do with the unit that this daemon is: "restart" or "stop", and empty if
// that is not known or there is no systemd. A host that goes down stops its units.
func serviceJob(ctx context.Context, log *slog.Logger) string {
	if os.Getenv("NOTIFY_SOCKET") == "" || os.Getenv("INVOCATION_ID") == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	unit, err := ownUnit()
	if err != nil {
		log.Warn("this daemon's unit is not known", "err", err)
		return ""
	}
	out, err := exec.CommandContext(ctx, "systemctl", "list-jobs", "--no-legend", "--plain", unit).Output()
	if err != nil {
		log.Warn("systemd does not tell why this daemon is to end", "unit", unit, "err", err)
		return ""
	}
	return jobOf(unit, string(out))
}

// jobOf reads the type of a unit's job in systemctl's list: number, unit, type, state.
func jobOf(unit, list string) string {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == unit {
			return f[2]
		}
	}
	return ""
}

// ownUnit is the systemd service in whose control group this process is (cgroups(7)).
func ownUnit() (string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	return unitOf(string(b))
}

// unitOf finds the service in the lines of /proc/PID/cgroup.
func unitOf(cgroups string) (string, error) {
	for line := range strings.Lines(cgroups) {
		for part := range strings.SplitSeq(strings.TrimSpace(line), "/") {
			if strings.HasSuffix(part, ".service") {
				return part, nil
			}
		}
	}
	return "", fmt.Errorf("no service in %q", cgroups)
}

// extendStop asks systemd for more time to stop in (sd_notify(3)) until ctx ends: groups may take longer to leave than any
// default allows for.
func extendStop(ctx context.Context, log *slog.Logger) {
	for {
		notify(log, "EXTEND_TIMEOUT_USEC=30000000")
		if !sleep(ctx, 5*time.Second) {
			return
		}
	}
}
