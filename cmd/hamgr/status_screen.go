package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// shownOperations bounds the fencing operations on the screen; hamgr fence history has all of them.
const shownOperations = 5

// writeStatus prints the screen of `hamgr status`, problems first. Ages are counted until now, and times
// of day are shown in its zone.
func writeStatus(w io.Writer, s api.Status, now time.Time) {
	zone := now.Location()
	writeHead(w, s)
	if len(s.Problems) > 0 || s.Formed && s.Quorate {
		writeProblems(w, s.Problems)
	}
	writeNodes(w, s, now)
	fmt.Fprintln(w)
	writeGroups(w, s.Groups, zone)
	writeOperations(w, s.Operations, zone)
	writeFailures(w, s.Failures, zone)
	writeDropped(w, s.Dropped)
}

func writeHead(w io.Writer, s api.Status) {
	head := "cluster " + s.Cluster + ": "
	switch {
	case !s.Formed:
		head += "not formed yet"
	case !s.Quorate:
		head += "NO QUORUM"
	case s.Coordinator == "":
		head += "quorum, no coordinator"
	default:
		head += fmt.Sprintf("quorum, coordinator %s, tolerates %s", s.Coordinator, moreFailures(s.Tolerates))
		if s.Tolerates > 0 && s.ToleratesBy != "" { // why none is among the problems
			head += " (" + s.ToleratesBy + ")"
		}
	}
	fmt.Fprintln(w, printable(head))
	writeMaintenance(w, s)
	for _, line := range []string{s.Waiting, s.Note} {
		if line != "" {
			fmt.Fprintln(w, printable(line))
		}
	}
	fmt.Fprintf(w, "as seen by %s, hamgr %s\n", printable(s.Node), printable(s.Version))
}

func moreFailures(n int) string {
	if n <= 0 {
		return "no failure"
	}
	return plural(n, "failure")
}

func writeProblems(w io.Writer, problems []api.Problem) {
	fmt.Fprintln(w)
	if len(problems) == 0 {
		fmt.Fprintln(w, "no problems")
		return
	}
	for _, p := range problems {
		fmt.Fprintf(w, "%-8s %s\n", strings.ToUpper(printable(p.Severity)), printable(p.Text))
		if p.Cure != "" {
			fmt.Fprintf(w, "%-8s cure: %s\n", "", printable(p.Cure))
		}
	}
}

func writeNodes(w io.Writer, s api.Status, now time.Time) {
	if len(s.Nodes) == 0 {
		return
	}
	t := table{{"NODE", "ROLE", "STATE", "CONTACT", "LINKS", "FENCED BY", "PROVEN", "NOTE"}}
	for _, n := range s.Nodes {
		t.row(n.Name, n.Role, n.State, contact(n, s.Node), links(n.Links), levels(n.Fencing.Levels), proven(n.Fencing, now), nodeNote(s, n))
	}
	fmt.Fprintln(w)
	t.write(w, "")
}

func contact(n api.NodeStatus, self string) string {
	switch {
	case n.Name == self:
		return "here"
	case n.ContactAgeMS == nil:
		return "never"
	default:
		return shortMS(*n.ContactAgeMS) + " ago"
	}
}

// links counts those that work. TCP is not asked about: two nodes that both follow may have
// nothing to say over it, and where it fails there is an error.
func links(list []api.LinkStatus) string {
	if len(list) == 0 {
		return "-"
	}
	well := 0
	for _, l := range list {
		if l.Error == "" && len(l.Fails) == 0 && l.UDPAgeMS != nil {
			well++
		}
	}
	return fmt.Sprintf("%d/%d", well, len(list))
}

func nodeNote(s api.Status, n api.NodeStatus) string {
	var notes []string
	if n.Coordinator {
		notes = append(notes, "coordinator")
	}
	if n.Unclean {
		notes = append(notes, strings.TrimSuffix("UNCLEAN: "+n.UncleanReason, ": "))
	}
	if n.FenceOp != 0 {
		notes = append(notes, underWay(s, n.FenceOp))
	}
	if n.Maintenance {
		notes = append(notes, "MAINTENANCE, left alone")
	}
	if n.Standby {
		notes = append(notes, "standby")
	}
	if n.Quarantine != "" {
		short, _, _ := strings.Cut(n.Quarantine, ",") // the problems tell the reason and the way out
		notes = append(notes, short)
	}
	if w := watchdogNote(n.Watchdog); w != "" {
		notes = append(notes, w)
	}
	return strings.Join(append(notes, troubles(s, n.Fencing.Health)...), "; ")
}

// watchdogNote tells of a node's watchdog.
func watchdogNote(w *api.WatchdogStatus) string {
	switch {
	case w == nil || w.Note != "":
		return ""
	case w.Starved != "":
		return "watchdog NOT FED"
	case w.Trouble != "":
		return "watchdog PROTECTS NOTHING"
	case w.Armed:
		return fmt.Sprintf("watchdog armed, %s, test %s", shortMS(w.TimeoutMS), w.Test)
	}
	return "watchdog test " + w.Test
}

// underWay tells of an operation that is not over.
func underWay(s api.Status, op uint64) string {
	doing := "fenced"
	for _, o := range s.Operations {
		switch {
		case o.Op == op && o.Action == api.ActionOn:
			doing = "switched on"
		case o.Op == op && o.Action == api.ActionRehearse:
			doing = "rehearsed"
		}
	}
	return fmt.Sprintf("being %s (operation %d)", doing, op)
}

func writeGroups(w io.Writer, groups []api.GroupStatus, zone *time.Location) {
	if len(groups) == 0 {
		fmt.Fprintln(w, "no groups")
		return
	}
	t := table{{"GROUP", "STATE", "NODE", "TOKEN", "SINCE", "NOTE"}}
	for _, g := range groups {
		t.row(g.Name, g.State, g.Node, number(g.Token), at(g.Since, zone), brief(groupNote(g)))
		// Where all is well the resources would only fill the screen.
		if g.State == api.GroupRunning && !slices.ContainsFunc(g.Resources, notActive) {
			continue
		}
		for _, r := range g.Resources {
			t.row("  "+r.Name, r.State, "", "", "", r.Detail)
		}
	}
	t.write(w, "")
}

func notActive(r api.ResourceStatus) bool { return r.State != "active" }

func writeOperations(w io.Writer, ops []api.Operation, zone *time.Location) {
	if len(ops) == 0 {
		return
	}
	t := table{{"FENCING", "NODE", "ACTION", "PHASE", "STARTED", "TOOK", "BY", "NOTE"}}
	for _, o := range ops[:min(len(ops), shownOperations)] {
		t.row(number(o.Op), o.Node, action(o), o.Phase, at(o.StartedAt, zone), shortMS(o.TookMS), askedBy(o), brief(operationNote(o)))
	}
	fmt.Fprintln(w)
	t.write(w, "")
	if more := len(ops) - shownOperations; more > 0 {
		fmt.Fprintf(w, "and %s before: hamgr fence history\n", plural(more, "operation"))
	}
}

func writeFailures(w io.Writer, failures []api.Failure, zone *time.Location) {
	if len(failures) == 0 {
		return
	}
	t := table{{"FAILED", "NODE", "TIMES", "LAST", "REASON"}}
	for _, f := range failures {
		what := f.Group
		if f.Resource != "" {
			what += "/" + f.Resource
		}
		t.row(what, f.Node, strconv.Itoa(f.Count), at(f.At, zone), f.Reason)
	}
	fmt.Fprintln(w)
	t.write(w, "")
}

func writeDropped(w io.Writer, dropped map[string]uint64) {
	var words []string
	for reason, n := range dropped {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s %d", reason, n))
		}
	}
	if len(words) == 0 {
		return
	}
	slices.Sort(words)
	fmt.Fprintf(w, "\npackets and connections dropped: %s\n", printable(strings.Join(words, ", ")))
}

// number leaves out what was never given.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func at(t time.Time, zone *time.Location) string {
	if t.IsZero() {
		return ""
	}
	return t.In(zone).Format(time.DateTime)
}
