package watchdog

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Holder is a process that has a watchdog open.
type Holder struct {
	PID  int
	Name string
}

func (h Holder) String() string {
	words := fmt.Sprintf("%s (process %d)", h.Name, h.PID)
	switch {
	case h.PID == 1:
		words += ": remove RuntimeWatchdogSec= from /etc/systemd/system.conf"
	case h.Name == "sbd":
		words += ": one watchdog serves one cluster manager"
	}
	return words
}

// FindHolder looks into /proc for who has the device, or another name of it, open.
func FindHolder(proc, path string) (Holder, bool) {
	wanted, err := deviceNumber(path)
	if err != nil {
		return Holder{}, false
	}
	processes, err := os.ReadDir(proc)
	if err != nil {
		return Holder{}, false
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(proc, p.Name())
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // it ended, or is not ours to look at
		}
		for _, f := range files {
			target, err := os.Readlink(filepath.Join(dir, "fd", f.Name()))
			if err != nil || !sameWatchdog(target, path, wanted) {
				continue
			}
			name, err := os.ReadFile(filepath.Join(dir, "comm"))
			if err != nil {
				name = []byte("?")
			}
			return Holder{pid, printable(string(name))}, true
		}
	}
	return Holder{}, false
}

// sameWatchdog compares names and numbers. /dev/watchdog and /dev/watchdog0 have two numbers and are one device.
func sameWatchdog(target, path string, number uint64) bool {
	if target == path {
		return true
	}
	if !strings.HasPrefix(target, "/dev/") {
		return false
	}
	if n, err := deviceNumber(target); err != nil || n == number {
		return err == nil
	}
	first := func(p string) bool { return p == "/dev/watchdog" || p == "/dev/watchdog0" }
	return first(target) && first(path)
}
