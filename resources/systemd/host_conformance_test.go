//go:build systemdhost

package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// obedient is a service that does what files in /run tell: it is slow to start, fails to, or does not heed a stop.
const obedient = `[Service]
Type=exec
ExecStartPre=sh -c 'while [ -e /run/conform.slow ]; do sleep 0.05; done; [ ! -e /run/conform.fail ]'
ExecStart=sh -c 'trap "[ -e /run/conform.stuck ] || exit 0" TERM; while :; do sleep 0.05; done'
SendSIGKILL=no
TimeoutStopSec=300ms
`

// TestHostConformance: the judge is the service's control group, not systemd.
func TestHostConformance(t *testing.T) {
	const unit = "conform.service"
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(t testing.TB) *resourcetest.Host {
		told := func(word string) resourcetest.Fault {
			file := "/run/conform." + word
			t.Cleanup(func() { os.Remove(file) })
			return resourcetest.Fault{
				Begin: func() {
					if err := os.WriteFile(file, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				},
				End: func() { os.Remove(file) },
			}
		}
		do := func(begin, end string) resourcetest.Fault {
			return resourcetest.Fault{
				Begin: func() { systemctl(t, strings.Fields(begin)...) }, End: func() { systemctl(t, strings.Fields(end)...) },
			}
		}
		kill := func() {
			for _, pid := range members(t, unit) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
		stuck := told("stuck")
		forget := stuck.End
		stuck.End = func() { forget(); kill() } // who did not heed TERM is not sent another one
		away := func(from, to string) func() {
			return func() {
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
		}
		socket := "/run/systemd/private"
		writeUnit(t, unit, obedient)
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) {
				o := Kind().Options().(*Options)
				o.Unit = unit
				return o.New(env)
			},
			Active: func() []string {
				// The oldest stays as long as the run does.
				if pids := members(t, unit); len(pids) > 0 {
					return []string{fmt.Sprint("process ", pids[0])}
				}
				return nil
			},
			Picture: func() string {
				dropIns, _ := filepath.Glob(runtimeUnits + "/" + unit + ".d/*")
				return fmt.Sprint(dropIns, property(t, unit, "ActiveState"), property(t, unit, "InvocationID"), systemctl(t, "list-jobs", "--no-legend"))
			},
			Kill: kill,
			Troubles: map[string]resourcetest.Trouble{
				"enabled":   {Fault: do("add-wants --runtime multi-user.target "+unit, "disable --runtime "+unit), Is: resources.ErrSetup},
				"it fails":  {Fault: told("fail"), Late: true},
				"not there": {Fault: missing(t, unit), Is: resources.ErrSetup},
			},
			Hangs: map[string]resourcetest.Hang{"start": {Fault: told("slow"), Calls: []string{"start"}}},
			Blind: map[string]resourcetest.Fault{"nobody is at home": {Begin: away(socket, socket+".away"), End: away(socket+".away", socket)}},
			Stuck: map[string]resourcetest.Fault{
				"does not end": stuck, "nobody is at home": {Begin: away(socket, socket+".away"), End: away(socket+".away", socket)},
			},
			Patience: 20 * time.Second, Operations: 60,
		}
	}})
}

// missing takes the file of the unit away.
func missing(t testing.TB, unit string) resourcetest.Fault {
	return resourcetest.Fault{
		Begin: func() {
			if err := os.Remove(filepath.Join(unitDir, unit)); err != nil {
				t.Fatal(err)
			}
			systemctl(t, "daemon-reload")
		},
		End: func() {
			if err := os.WriteFile(filepath.Join(unitDir, unit), []byte(obedient), 0o644); err != nil {
				t.Fatal(err)
			}
			systemctl(t, "daemon-reload")
		},
	}
}

// members are the processes in the control group of a service, as the kernel has them.
func members(t testing.TB, unit string) (pids []int) {
	t.Helper()
	b, err := os.ReadFile("/sys/fs/cgroup/system.slice/" + unit + "/cgroup.procs")
	if err != nil && !os.IsNotExist(err) {
		if strings.Contains(err.Error(), syscall.ENODEV.Error()) { // it was removed meanwhile
			return nil
		}
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}
