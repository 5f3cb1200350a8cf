package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/state"
)

// groupStatus shows one group, as the cluster knows it. waiting says why those that nobody holds wait, and what a stop waits for;
// wish, in words, where an operator wants it.
func groupStatus(s *state.State, waiting map[string]string, wish string, g *state.Group) api.GroupStatus {
	st := api.GroupStatus{
		Name: g.Name, Token: newestToken(g), Disabled: g.Disabled, Halted: g.Halted, Maintenance: s.GroupMaintained(g),
		Wish: wish, Rules: groupRules(g.Rules),
	}
	if g.Grant == nil {
		st.State, st.Detail = unheld(g), waiting[g.Name]
		return st
	}
	gr := g.Grant
	st.Node, st.Since = gr.Node, displayTime(gr.At)
	st.State = map[state.GrantPhase]string{
		state.Granted: api.GroupStarting, state.Started: api.GroupRunning, state.Stopping: api.GroupStopping,
	}[gr.Phase]
	st.Detail = orElse(gr.StopReason, waiting[g.Name])
	if owner := s.Nodes[gr.Node]; owner != nil && owner.Unclean != "" {
		st.State = api.GroupBlocked
		st.Detail = fmt.Sprintf("%s may still hold it, and is not proven off: %s", gr.Node, owner.Unclean)
	}
	return st
}

// unheld is the state of a group that nobody holds.
func unheld(g *state.Group) string {
	switch {
	case len(g.Found) > 0:
		return api.GroupBlocked
	case g.Disabled:
		return api.GroupStopped
	case g.Halted != "", slices.ContainsFunc(slices.Collect(maps.Values(g.Failures)), counts):
		return api.GroupFailed
	}
	return api.GroupWaiting
}

// counts reports whether a failure still keeps its group from a node.
func counts(f state.Failure) bool { return !f.Expired }

func groupRules(r state.Rules) api.GroupRules {
	back := "never"
	switch f := r.Failback; {
	case f.Always:
		back = "always"
	case f.From != f.To:
		back = fmt.Sprintf("%02d:%02d-%02d:%02d", f.From/60, f.From%60, f.To/60, f.To%60)
	}
	return api.GroupRules{
		Prefer: r.Prefer, Allow: r.Allow, After: r.After, With: r.With, Apart: r.Apart,
		Weight: r.Weight, Failback: back, FailureExpiryMS: r.FailureExpiry,
	}
}

// wishes tells, group by group, where operators want them, by the reading of the cluster's clock.
func wishes(s *state.State, now int64) map[string]string {
	all := map[string]string{}
	for name, g := range s.Groups {
		if w := g.Wish; w != nil && now < w.Until {
			all[name] = wishWords(w) + lasts(w, w.Until-now)
		}
	}
	return all
}

func wishWords(w *state.Wish) string {
	switch {
	case w.Restart:
		return "being restarted by " + w.By
	case w.To != "":
		return fmt.Sprintf("moved to %s by %s", w.To, w.By)
	}
	return fmt.Sprintf("moved away from %s by %s", w.From, w.By)
}

// lasts says when a wish ends, ms from now at the latest.
func lasts(w *state.Wish, ms int64) string {
	if w.Once {
		return fmt.Sprintf(", until it runs again, or for another %s", left(ms))
	}
	return " for another " + left(ms)
}

// left gives a time that is left as people say it: "1h20m", "5m", "45s".
func left(ms int64) string {
	d := max(time.Duration(ms)*time.Millisecond, time.Second).Round(time.Second)
	if d >= time.Hour {
		d = d.Round(time.Minute)
	}
	h, m, s := d/time.Hour, d%time.Hour/time.Minute, d%time.Minute/time.Second
	words := ""
	for _, part := range []struct {
		n    time.Duration
		unit string
	}{{h, "h"}, {m, "m"}, {s, "s"}} {
		if part.n > 0 {
			words += fmt.Sprintf("%d%s", part.n, part.unit)
		}
	}
	return words
}

// wish tells where an operator wants a group. Only the coordinator knows what time it is; all know how late it is at least.
func wish(s *state.State, g *state.Group, known map[string]string) string {
	switch {
	case g.Wish == nil, s.Clock >= g.Wish.Until:
		return ""
	case known == nil: // the coordinator was not asked
		return wishWords(g.Wish)
	}
	return known[g.Name]
}

// groupProblems says what is wrong with the groups, and what operators had left alone and may have forgotten.
func groupProblems(s *state.State, st api.Status, alarm, warn, notice func(text, cure string)) {
	for _, name := range s.GroupNames() {
		g := s.Groups[name]
		for _, node := range slices.Sorted(maps.Keys(g.Found)) {
			if g.Grant != nil {
				alarm(fmt.Sprintf("group %s runs on %s, and something of it was found active on %s: %s", name, g.Grant.Node, node, g.Found[node]),
					"stop it there by hand: two writers ruin the data")
			}
		}
	}
	for _, g := range st.Groups {
		text := fmt.Sprintf("group %s does not run: %s", g.Name, g.Detail)
		switch {
		case g.Halted != "" && g.Node == "" && !g.Disabled:
			alarm(fmt.Sprintf("group %s was stopped everywhere, as the resource's on_fail says: %s", g.Name, g.Halted),
				"mend that, then run it again: hamgr group clear "+g.Name)
		case g.State == api.GroupBlocked:
			alarm(text, "")
		case g.State == api.GroupFailed:
			alarm(text, "mend that, then have it tried again: hamgr group clear "+g.Name)
		case g.State == api.GroupStopped:
			notice(fmt.Sprintf("group %s is disabled by an operator, and runs nowhere", g.Name), "to run it: hamgr group enable "+g.Name)
		case g.State == api.GroupWaiting && g.Detail != "":
			warn(text, "")
		}
	}
}

// maintenanceProblems says what is left alone, as loudly as it deserves: nothing protects it.
func maintenanceProblems(s *state.State, st api.Status, alarm func(text, cure string)) {
	if s.Maintenance {
		alarm("the cluster is in maintenance: nothing is started, stopped, monitored or taken over, and no silent node is fenced", "when the work is done: hamgr maintenance off")
		return
	}
	for _, n := range st.Nodes {
		if n.Maintenance {
			alarm(fmt.Sprintf("node %s is in maintenance: what it holds is not monitored, stopped or taken over, and it is not fenced if it falls silent", n.Name),
				fmt.Sprintf("when the work is done: hamgr node maintenance %s off", n.Name))
		}
	}
	for _, name := range s.GroupNames() {
		if s.Groups[name].Maintenance {
			alarm(fmt.Sprintf("group %s is in maintenance: it is not started, stopped, monitored or taken over", name),
				fmt.Sprintf("when the work is done: hamgr group maintenance %s off", name))
		}
	}
}
