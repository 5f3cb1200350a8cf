package main

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// nodesOutput is what `hamgr node list --json` prints.
type nodesOutput struct {
	Schema      int          `json:"schema"`
	Quorate     bool         `json:"quorate"`
	Note        string       `json:"note,omitempty"`
	Maintenance bool         `json:"maintenance"` // of the cluster
	Nodes       []listedNode `json:"nodes"`
}

type listedNode struct {
	Name          string   `json:"name"`
	Role          string   `json:"role"`
	State         string   `json:"state"`
	Coordinator   bool     `json:"coordinator"`
	Standby       bool     `json:"standby"`
	Maintenance   bool     `json:"maintenance"`
	Quarantine    string   `json:"quarantine,omitempty"`
	Unclean       bool     `json:"unclean"`
	UncleanReason string   `json:"unclean_reason,omitempty"`
	Holds         []string `json:"holds"`
}

func (c *cli) nodeListCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show all nodes: what they hold, and whether they may",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.statusWithin(cmd.Context(), timeout)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(listNodes(s))
			}
			writeMaintenance(c.out, s)
			writeNodeList(c.out, s)
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the daemon")
	return cmd
}

func listNodes(s api.Status) nodesOutput {
	out := nodesOutput{Schema: api.Schema, Quorate: s.Quorate, Note: s.Note, Maintenance: s.Maintenance, Nodes: []listedNode{}}
	for _, n := range s.Nodes {
		out.Nodes = append(out.Nodes, listedNode{
			Name: n.Name, Role: n.Role, State: n.State, Coordinator: n.Coordinator, Standby: n.Standby, Maintenance: n.Maintenance,
			Quarantine: n.Quarantine, Unclean: n.Unclean, UncleanReason: n.UncleanReason, Holds: append([]string{}, holds(s, n.Name)...),
		})
	}
	return out
}

func writeNodeList(w io.Writer, s api.Status) {
	t := table{{"NODE", "ROLE", "STATE", "HOLDS", "NOTE"}}
	for _, n := range s.Nodes {
		t.row(n.Name, n.Role, n.State, strings.Join(holds(s, n.Name), ", "), nodeNote(s, n))
	}
	t.write(w, "")
}
