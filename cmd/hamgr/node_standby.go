package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) nodeStandby(verb, short string) *cobra.Command {
	var o changing
	cmd := &cobra.Command{
		Use:               verb + " NODE",
		Short:             short,
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd, api.ChangeRequest{Verb: verb, Node: args[0]}, o)
		},
	}
	o.flags(cmd)
	return cmd
}

func standbyWords(r api.ChangeResult, already string) string {
	switch {
	case r.Verb == api.ChangeOnline:
		return fmt.Sprintf("%s may hold groups%s", r.Node, already)
	case len(r.Holds) == 0:
		return fmt.Sprintf("%s is on standby%s, and holds no group", r.Node, already)
	default:
		return fmt.Sprintf("%s is on standby%s; being moved away: %s", r.Node, already, strings.Join(r.Holds, ", "))
	}
}
