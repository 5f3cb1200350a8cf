package main

import (
	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Show the nodes, and say what they may be used for",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("node what: list, standby, online or maintenance?")
		},
	}
	cmd.AddCommand(
		c.nodeListCommand(),
		c.nodeStandby(api.ChangeStandby, "Have a node hold no groups: those it holds move away, and none come"),
		c.nodeStandby(api.ChangeOnline, "Let a node hold groups again"),
		c.nodeMaintenanceCommand(),
	)
	return cmd
}
