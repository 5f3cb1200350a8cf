package scheduler

import "github.com/hamgr/hamgr/cluster/state"

// executor picks the node that is to carry out the operation: of those that can talk to the target's devices
// the best one that answers, and after each failure the next one. Empty if there is none, since the target
// never fences itself.
func executor(s *state.State, v View, o *state.Operation) string {
	var able, doomed []string
	for _, name := range v.Executors[o.Node] {
		switch {
		case name == o.Node || !answers(s, v, name):
		case condemned(s, name):
			doomed = append(doomed, name)
		default:
			able = append(able, name)
		}
	}
	switch {
	case len(able) > 0:
		return able[o.Failures%len(able)]
	case v.Self != o.Node && !v.Unarmed:
		return v.Self
	case v.Unarmed && len(doomed) > 0: // nobody else is left to do it, and each of them waits for it
		return doomed[o.Failures%len(doomed)]
	}
	return ""
}

func answers(s *state.State, v View, name string) bool {
	return s.Nodes[name] != nil && (name == v.Self || v.Nodes[name].Reachable)
}

// condemned reports whether the node is about to be switched off itself.
func condemned(s *state.State, name string) bool {
	o := s.OpenOperation(name)
	return o != nil && o.CutsPower()
}
