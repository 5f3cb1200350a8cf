package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) groupClearCommand() *cobra.Command {
	var (
		o    changing
		node string
	)
	cmd := &cobra.Command{
		Use:   "clear GROUP",
		Short: "Forget a group's failures, so that it is tried again",
		Long: `Forget a group's failures, on one node or on all, and that it was stopped everywhere (on_fail = "stop"), so that
it is tried again. It never ends the need for fencing.`,
		Args:              oneArg,
		ValidArgsFunction: c.completeGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("node") && node == "" {
				return usagef("--node needs a name")
			}
			return c.change(cmd, api.ChangeRequest{Verb: api.ChangeClear, Group: args[0], Node: node}, o)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "only those on this node")
	_ = cmd.RegisterFlagCompletionFunc("node", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return c.memberNames(cmd), cobra.ShellCompDirectiveNoFileComp
	})
	o.flags(cmd)
	return cmd
}

func clearWords(r api.ChangeResult) string {
	where := ""
	if r.Node != "" {
		where = " on " + r.Node
	}
	if !r.Changed {
		return fmt.Sprintf("there is nothing to clear of group %s%s", r.Group, where)
	}
	return fmt.Sprintf("the failures of group %s%s are forgotten", r.Group, where)
}
