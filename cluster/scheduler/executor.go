package scheduler

import "github.com/hamgr/hamgr/cluster/state"

// executor picks the node that is to carry out the operation: of those that can talk to the target's devices
// the best one that answers, and after each failure the next one. Empty if there is none, since the target
// never fences itself.
func executor(s *state.State, v View, o *state.Operation) string {
	var able []string
	for _, name := range v.Executors[o.Node] {
		if name != o.Node && mayExecute(s, v, name) {
			able = append(able, name)
		}
	}
	if len(able) > 0 {
		return able[o.Failures%len(able)]
	}
	if v.Self == o.Node {
		return ""
	}
	return v.Self
}

// mayExecute reports whether the node answers and is not about to be switched off itself.
func mayExecute(s *state.State, v View, name string) bool {
	n := s.Nodes[name]
	if n == nil || name != v.Self && !v.Nodes[name].Reachable {
		return false
	}
	o := s.OpenOperation(name)
	return o == nil || !o.CutsPower()
}
