package ocf

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// TestConformance: an agent in shell whose service is a file. Each start writes another one, so the file tells how
// often it was started.
func TestConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(), Host: func(t testing.TB) *resourcetest.Host {
		const honest = `case $1 in start) echo x >>$d/starts; [ -e $d/up ] || cp $d/starts $d/up; exit 0 ;; esac`
		s := script(t, honest)
		agent := func(body string) resourcetest.Fault {
			return resourcetest.Fault{Begin: func() { s.program(body + "\n" + honest) }, End: func() { s.program(honest) }}
		}
		path := s.file("resource.d/test/test")
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) {
				s.boot = env.Boot // by which s finds what is left
				r, err := s.options().New(env)
				if err == nil {
					r.(*ocf).tmp = s.file("tmp")
				}
				return r, err
			},
			Active: func() []string {
				if !s.has("up") {
					return nil
				}
				return []string{"started so often: " + s.read("up")}
			},
			// A look may ask whatever does not act.
			Picture: func() string {
				acts := slices.DeleteFunc(strings.Fields(s.read("asked")), func(a string) bool { return a != "start" && a != "stop" })
				return strings.Join(acts, " ")
			},
			Kill: func() { must(s, os.Remove(s.file("up"))) },
			Troubles: map[string]resourcetest.Trouble{
				"not installed": {Fault: resourcetest.Fault{
					Begin: func() { must(s, os.Rename(path, path+".away")) }, End: func() { must(s, os.Rename(path+".away", path)) },
				}, Is: resources.ErrNode},
				"something it needs is not installed": {Fault: agent("case $1 in validate-all|start) exit 5 ;; esac"), Is: resources.ErrNode},
				"wrong parameters":                    {Fault: agent("case $1 in validate-all|start) exit 6 ;; esac"), Is: resources.ErrSetup},
				"it fails":                            {Fault: agent("[ $1 = start ] && exit 1"), Late: true},
				"start only says so":                  {Fault: agent("[ $1 = start ] && exit 0"), Late: true},
			},
			Hangs: map[string]resourcetest.Hang{
				"all":     {Fault: agent("sleep 60")},
				"monitor": {Fault: agent("[ $1 = monitor ] && sleep 60"), Calls: []string{"probe", "start", "stop"}},
				"deaf":    {Fault: agent("trap '' TERM INT HUP; sleep 60 & wait; sleep 60"), Calls: []string{"probe"}},
			},
			Blind: map[string]resourcetest.Fault{
				"an unknown status":    agent("[ $1 = monitor ] && exit 77"),
				"a failure":            agent("[ $1 = monitor ] && exit 1"),
				"killed":               agent("[ $1 = monitor ] && kill -9 $$"),
				"monitor is not known": agent("[ $1 = monitor ] && exit 3"),
				"it is not permitted":  agent("[ $1 = monitor ] && exit 4"),
			},
			Stuck: map[string]resourcetest.Fault{
				"it fails":      agent("[ $1 = stop ] && exit 1"),
				"only says so":  agent("[ $1 = stop ] && exit 0"),
				"hangs":         agent("[ $1 = stop ] && sleep 60"),
				"all refuse":    agent("case $1 in stop|monitor) exit 5 ;; esac"),
				"not installed": {Begin: func() { must(s, os.Rename(path, path+".away")) }, End: func() { must(s, os.Rename(path+".away", path)) }},
			},
			Patience:   20 * time.Second,
			Operations: 40,
		}
	}})
}
