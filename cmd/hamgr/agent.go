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
	Schema int         `json:"schema"`
	Agents []agentItem `json:"agents"`
}

type agentItem struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Programs are those of this host that the agent can drive.
	Programs []string `json:"programs,omitempty"`
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
			writeAgents(c.out, out)
			return nil
		},
	}, c.agentDescribeCommand())
	return cmd
}

func listAgents() agentsOutput {
	registry := kinds().Agents
	out := agentsOutput{Schema: api.Schema, Agents: []agentItem{}}
	for _, name := range registry.Names() {
		kind := registry[name]
		item := agentItem{Name: name, Doc: kind.Doc}
		if kind.Programs != nil {
			item.Programs = kind.Programs()
		}
		out.Agents = append(out.Agents, item)
	}
	return out
}

func writeAgents(w io.Writer, out agentsOutput) {
	t := table{{"AGENT", "DRIVES"}}
	for _, a := range out.Agents {
		t.row(a.Name, a.Doc)
	}
	t.write(w, "")
	for _, a := range out.Agents {
		if len(a.Programs) > 0 {
			fmt.Fprintf(w, "\nWhat %s can drive, as installed on this host:\n", a.Name)
			writeWords(w, a.Programs, "  ")
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
