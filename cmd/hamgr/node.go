package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Say what a node may be used for",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("node what: standby or online?") },
	}
	cmd.AddCommand(
		c.nodeStandby("standby", true, "Have a node hold no groups: those it holds move away, and none come"),
		c.nodeStandby("online", false, "Let a node hold groups again"),
	)
	return cmd
}

func (c *cli) nodeStandby(verb string, standby bool, short string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:               verb + " NODE",
		Short:             short,
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.NodeRequest{Node: args[0], Standby: standby, By: operator()}
			if err := req.Validate(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			client := c.client()
			defer client.Close()
			result, err := client.SetNode(ctx, req)
			switch {
			case err != nil:
				return err
			case c.json:
				return c.printJSON(result)
			}
			fmt.Fprintln(c.out, printable(standbyWords(result)))
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait until it is committed; the groups move after that")
	return cmd
}

func standbyWords(r api.NodeResult) string {
	already := ""
	if !r.Changed {
		already = " already"
	}
	switch {
	case !r.Standby:
		return fmt.Sprintf("%s may hold groups%s", r.Node, already)
	case len(r.Holds) == 0:
		return fmt.Sprintf("%s is on standby%s, and holds no group", r.Node, already)
	default:
		return fmt.Sprintf("%s is on standby%s; being moved away: %s", r.Node, already, strings.Join(r.Holds, ", "))
	}
}
