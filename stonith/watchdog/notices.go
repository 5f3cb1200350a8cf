package watchdog

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Notices are what an operator should know of a watchdog before trusting it.
func Notices(id Identity) []string {
	var all []string
	if !id.Known {
		all = append(all, "this kernel does not tell what it is before it is armed (CONFIG_WATCHDOG_SYSFS)")
	} else {
		if id.NoWayOut {
			all = append(all, "nowayout: once armed it can never be disarmed, and the host is reset when hamgr is stopped for good; load the driver with nowayout=0 if that is not wanted")
		} else if id.Options != 0 && !id.MagicClose() {
			all = append(all, "no magic close: the driver may not be able to disarm it, and the host is then reset when hamgr is stopped for good")
		}
		if !id.Hardware() {
			all = append(all, id.Name+" is part of the kernel, and hangs with it: it never counts as a fencing level")
		}
		if id.Options&unix.WDIOF_ALARMONLY != 0 {
			all = append(all, id.Name+" only raises an alarm, and resets nothing")
		}
		if id.Pretimeout > 0 {
			all = append(all, fmt.Sprintf("it has a pretimeout of %s, which is added to its time", id.Pretimeout))
		}
	}
	if virtual("/proc/cpuinfo") {
		all = append(all, "this host is a virtual machine: while it is paused its watchdog may be paused too, and goes on with it; do not use it as a fencing level")
	}
	return all
}

// virtual tells whether the CPU says that it is one of a virtual machine.
func virtual(cpuinfo string) bool {
	b, err := os.ReadFile(cpuinfo)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if name, flags, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.Contains(flags+" ", " hypervisor ")
		}
	}
	return false
}
