package command

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

const control = `#!/bin/sh
d=%s
runs() { [ -s $d/pid ] && [ "$(readlink /proc/$(cat $d/pid)/exe)" = $d/sleep ]; }
%s
case $1 in
start)
	setsid $d/sleep 86397 </dev/null >/dev/null 2>&1 &
	echo $! >$d/pid
	until runs; do sleep 0.01; done ;;
stop)
	! runs || kill $(cat $d/pid)
	while runs; do sleep 0.01; done ;;
monitor) runs || exit 7 ;;
esac
`

// TestServiceConformance: commands that start, stop and look at a process in the background.
func TestServiceConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(t testing.TB) *resourcetest.Host {
		p := newPlace(t)
		// The file is replaced as a whole: a program that is open for writing, by whatever child, cannot be executed.
		program := func(first string) {
			p.must(os.WriteFile(p.file("control.new"), fmt.Appendf(nil, control, p.dir, first), 0o755))
			p.must(os.Rename(p.file("control.new"), p.file("control.sh")))
		}
		program("")
		does := func(first string) resourcetest.Fault {
			return resourcetest.Fault{Begin: func() { program(first) }, End: func() { program("") }}
		}
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) {
				return p.new(env, func(o *Options) {
					sh := func(verb string) []string { return []string{"/bin/sh", p.file("control.sh"), verb} }
					o.Start, o.Stop, o.Monitor = sh("start"), sh("stop"), sh("monitor")
				})
			},
			Active:  p.active,
			Picture: p.record,
			Kill:    p.kill,
			Troubles: map[string]resourcetest.Trouble{
				"no working directory": {Fault: p.away(p.at("work")), Is: resources.ErrNode},
				"it fails":             {Fault: does("[ $1 = start ] && exit 1"), Late: true},
				"start only says so":   {Fault: does("[ $1 = start ] && exit 0"), Late: true},
			},
			Hangs: map[string]resourcetest.Hang{
				"another daemon": p.locked(),
				"monitor":        {Fault: does("[ $1 = monitor ] && sleep 60"), Calls: []string{"probe", "start", "stop"}},
			},
			Blind: map[string]resourcetest.Fault{
				"an unknown status": does("[ $1 = monitor ] && exit 77"),
				"killed":            does("[ $1 = monitor ] && kill -9 $$"),
			},
			Stuck:    map[string]resourcetest.Fault{"no private directory": p.away(func() string { return p.env.Dir })},
			Patience: 20 * time.Second, Operations: 10,
		}
	}})
}
