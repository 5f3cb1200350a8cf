package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// agentsOutput is what `hamgr agent list --json` prints.
type agentsOutput struct {
	Schema int          `json:"schema"`
	Agents []listedKind `json:"agents"`
}

// listedKind is one kind of fence agent or of resource.
type listedKind struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Programs are those of this host that the kind can drive.
	Programs []string `json:"programs,omitempty"`
}

func newKind(name, doc string, programs func() []string) listedKind {
	k := listedKind{Name: name, Doc: doc}
	if programs != nil {
		k.Programs = programs()
	}
	return k
}

func (c *cli) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Show the fence agents and how their devices are configured",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("agent what: list or describe?") },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the fence agents, and the foreign ones that are found on this host",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			out := listAgents()
			if c.json {
				return c.printJSON(out)
			}
			writeKinds(c.out, []string{"AGENT", "DRIVES"}, out.Agents)
			return nil
		},
	}, c.agentDescribeCommand())
	return cmd
}

func listAgents() agentsOutput {
	registry := kinds().Agents
	out := agentsOutput{Schema: api.Schema, Agents: []listedKind{}}
	for _, name := range registry.Names() {
		k := registry[name]
		out.Agents = append(out.Agents, newKind(name, k.Doc, k.Programs))
	}
	return out
}

// writeKinds lists kinds under a heading, and then what is installed here of the programs that they drive.
func writeKinds(w io.Writer, heading []string, kinds []listedKind) {
	t := table{heading}
	for _, k := range kinds {
		t.row(k.Name, k.Doc)
	}
	t.write(w, "")
	for _, k := range kinds {
		if len(k.Programs) > 0 {
			fmt.Fprintf(w, "\nWhat %s can drive, as installed on this host:\n", k.Name)
			writeWords(w, k.Programs, "  ")
		}
	}
}

// writeWords fills lines with words.
func writeWords(w io.Writer, words []string, indent string) {
	const width = 78
	line := ""
	for _, word := range words {
		word = printable(word)
		if line != "" && utf8.RuneCountInString(line+" "+word) > width-len(indent) {
			fmt.Fprintln(w, indent+line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	if line != "" {
		fmt.Fprintln(w, indent+line)
	}
}

// completeAgent offers the agents, and the programs behind them as AGENT:PROGRAM.
func completeAgent(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, a := range listAgents().Agents {
			names = append(names, a.Name)
			for _, p := range a.Programs {
				names = append(names, a.Name+":"+p)
			}
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
