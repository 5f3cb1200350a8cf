package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// groupsOutput is what `hamgr group list --json` prints.
type groupsOutput struct {
	Schema      int               `json:"schema"`
	Quorate     bool              `json:"quorate"`
	Note        string            `json:"note,omitempty"`
	Maintenance bool              `json:"maintenance"` // of the cluster
	Groups      []api.GroupStatus `json:"groups"`
}

func (c *cli) groupListCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show all groups: where they run, and why not",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.statusWithin(cmd.Context(), timeout)
			switch {
			case err != nil:
				return err
			case c.json:
				return c.printJSON(groupsOutput{api.Schema, s.Quorate, s.Note, s.Maintenance, append([]api.GroupStatus{}, s.Groups...)})
			}
			writeMaintenance(c.out, s)
			writeGroups(c.out, s.Groups, time.Local)
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the daemon")
	return cmd
}
