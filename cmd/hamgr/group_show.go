package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// groupOutput is what `hamgr group show --json` prints.
type groupOutput struct {
	Schema   int             `json:"schema"`
	Quorate  bool            `json:"quorate"`
	Note     string          `json:"note,omitempty"`
	Group    api.GroupStatus `json:"group"`
	Failures []api.Failure   `json:"failures"`
}

func (c *cli) groupShowCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               "show GROUP",
		Short:             "Show one group: where it runs and why, its rules, its failures",
		Args:              oneArg,
		ValidArgsFunction: c.completeGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.statusWithin(cmd.Context(), timeout)
			if err != nil {
				return err
			}
			g, err := groupNamed(s, args[0])
			if err != nil {
				return err
			}
			out := groupOutput{api.Schema, s.Quorate, s.Note, g, []api.Failure{}}
			for _, f := range s.Failures {
				if f.Group == g.Name {
					out.Failures = append(out.Failures, f)
				}
			}
			if c.json {
				return c.printJSON(out)
			}
			writeGroup(c.out, out, time.Local)
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the daemon")
	return cmd
}

// writeGroup prints all that is known of one group.
func writeGroup(w io.Writer, out groupOutput, zone *time.Location) {
	g := out.Group
	fmt.Fprintln(w, printable("group "+g.Name+": "+groupState(g, zone)))
	if g.Detail != "" {
		fmt.Fprintln(w, printable("  "+g.Detail))
	}
	if g.Maintenance != "" {
		fmt.Fprintln(w, printable("  MAINTENANCE: "+g.Maintenance+"; it is not monitored or taken over"))
	}
	if g.ResourcesNote != "" {
		fmt.Fprintln(w, printable("  "+g.ResourcesNote))
	}
	for i, n := range g.NotReady {
		if i > 0 && n.Reason == g.NotReady[i-1].Reason {
			n.Reason = "the same"
		}
		fmt.Fprintln(w, printable(fmt.Sprintf("  WOULD NOT START on %s: %s", n.Node, n.Reason)))
	}
	fmt.Fprintln(w)
	r := g.Rules
	for _, fact := range [][2]string{
		{"wish", g.Wish},
		{"halted", g.Halted},
		{"prefer", strings.Join(r.Prefer, ", then ")},
		{"allow", or(strings.Join(r.Allow, ", "), "every member")},
		{"after", strings.Join(r.After, ", ")},
		{"with", strings.Join(r.With, ", ")},
		{"apart", strings.Join(r.Apart, ", ")},
		{"weight", strconv.Itoa(r.Weight)},
		{"failback", r.Failback},
		{"failures", expiryWords(g)},
		{"restarts", restartWords(g.Restarts)},
	} {
		if fact[1] != "" {
			fmt.Fprintf(w, "  %-9s %s\n", fact[0], printable(fact[1]))
		}
	}
	if len(g.Resources) > 0 {
		t := table{{"RESOURCE", "KIND", "STATE", "NOTE"}}
		for _, res := range g.Resources {
			t.row(res.Name, res.Kind, res.State, res.Detail)
		}
		fmt.Fprintln(w)
		t.write(w, "")
	}
	writeFailures(w, out.Failures, zone)
}

func groupState(g api.GroupStatus, zone *time.Location) string {
	words := g.State
	if g.Node != "" {
		words += " on " + g.Node
	}
	if since := at(g.Since, zone); since != "" {
		words += " since " + since
	}
	if g.Token != 0 {
		words += fmt.Sprintf(", token %d", g.Token)
	}
	return words
}

func expiryWords(g api.GroupStatus) string {
	if g.Rules.FailureExpiryMS == 0 {
		return "count until hamgr group clear " + g.Name
	}
	return "count for " + shortMS(g.Rules.FailureExpiryMS)
}

// restartWords counts the restarts in place; empty if there was none lately.
func restartWords(r *api.GroupRestarts) string {
	switch {
	case r == nil || r.Done == 0:
		return ""
	case r.WindowMS <= 0:
		return fmt.Sprintf("restarted %d of %d times in place", r.Done, r.Of)
	}
	return fmt.Sprintf("restarted %d of %d times in place within %s", r.Done, r.Of, shortMS(r.WindowMS))
}

// groupNote is what a line of a table says of a group.
func groupNote(g api.GroupStatus) string {
	notes := []string{g.Detail}
	if g.Maintenance != "" {
		notes = append(notes, "MAINTENANCE, not monitored: "+g.Maintenance)
	}
	if g.Disabled && g.Node != "" {
		notes = append(notes, "disabled")
	}
	notes = append(notes, g.Wish, restartWords(g.Restarts), g.ResourcesNote)
	var told []string
	for _, n := range notes {
		if n != "" && !slices.ContainsFunc(told, func(t string) bool { return strings.Contains(t, n) }) {
			told = append(told, n)
		}
	}
	return strings.Join(told, "; ")
}
