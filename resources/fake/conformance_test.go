package fake

import (
	"fmt"
	"testing"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/resourcetest"
)

// TestConformance: the world is the judge.
func TestConformance(t *testing.T) {
	resourcetest.Run(t, resourcetest.Subject{Kind: Kind(NewWorld(), "alpha"), Host: func(testing.TB) *resourcetest.Host {
		w := NewWorld()
		mode := func(op string, m Mode) resourcetest.Fault {
			set := func(m Mode) func() { return func() { w.Set("alpha", "db", "app", op, m) } }
			return resourcetest.Fault{Begin: set(m), End: set(Works)}
		}
		return &resourcetest.Host{
			New: func(env resources.Env) (resources.Resource, error) { return Kind(w, "alpha").Options().New(env) },
			Active: func() (names []string) {
				for _, h := range w.Active() {
					names = append(names, fmt.Sprintf("%s since %d", h, h.Since.UnixNano()))
				}
				return names
			},
			Picture:  func() string { return fmt.Sprint(w.Events()) },
			Kill:     func() { w.Kill("alpha", "db", "app") },
			Troubles: map[string]resourcetest.Trouble{"told to fail": {Fault: mode("start", Fails)}},
			Hangs: map[string]resourcetest.Hang{
				"host":  {Fault: resourcetest.Fault{Begin: func() { w.Freeze("alpha") }, End: func() { w.Thaw("alpha") }}},
				"probe": {Fault: mode("probe", Hangs), Calls: []string{"probe"}},
				"start": {Fault: mode("start", Hangs), Calls: []string{"start"}},
				"stop":  {Fault: mode("stop", Hangs), Calls: []string{"stop"}},
			},
			Blind:  map[string]resourcetest.Fault{"told to fail": mode("probe", Fails)},
			Stuck:  map[string]resourcetest.Fault{"told to fail": mode("stop", Fails)},
			Cannot: map[string]string{"Example": "nobody configures it"},
		}
	}})
}
