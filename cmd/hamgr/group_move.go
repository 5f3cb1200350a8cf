package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) groupMoveCommand() *cobra.Command {
	var (
		o    changing
		away bool
		end  bool
		last time.Duration
	)
	cmd := &cobra.Command{
		Use:   "move GROUP [NODE]",
		Short: "Have a group run on another node, once or for a time",
		Long: `Have a group run on NODE, or with --away anywhere but on NODE (by default: where it runs now). It is stopped,
its stop is committed, and only then it is started elsewhere. A move is no rule: it ends as soon as the group
runs again, at the latest after 10 minutes, or with --for after that time (7 days at most), or by --end. What happens
then, the group's own rules say: it stays, unless they ask for failback.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return misused(cmd, "GROUP is missing")
			case len(args) > 2:
				return misused(cmd, fmt.Sprintf("%q is one argument too many", args[2]))
			}
			return nil
		},
		ValidArgsFunction: c.completeGroupThen(c.memberNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.ChangeRequest{Verb: api.ChangeMove, Group: args[0], Away: away, End: end, ForMS: last.Milliseconds()}
			if len(args) == 2 {
				req.Node = args[1]
			}
			switch {
			case end && (away || req.Node != "" || last != 0):
				return usagef("--end ends an earlier move: it takes no node, no --away and no --for")
			case !end && !away && req.Node == "":
				return usagef("move %s where? Name a node, or give --away, or --end", args[0])
			case last < 0 || cmd.Flags().Changed("for") && last < time.Second:
				return usagef("--for is the time for which it is to stay, such as 2h")
			}
			return c.change(cmd, req, o)
		},
	}
	cmd.Flags().BoolVar(&away, "away", false, "away from the node, wherever else it may run")
	cmd.Flags().DurationVar(&last, "for", 0, "for this time; without it, until the group runs again")
	cmd.Flags().BoolVar(&end, "end", false, "end an earlier move that still lasts")
	o.flags(cmd)
	return cmd
}

// moveWords says where a group is to run. What the request left open, the result has.
func moveWords(req api.ChangeRequest, r api.ChangeResult) string {
	words := fmt.Sprintf("group %s is to run on %s", r.Group, r.Node)
	switch {
	case req.End && r.Changed:
		return fmt.Sprintf("the earlier move of group %s is over", r.Group)
	case req.End:
		return fmt.Sprintf("there is no move of group %s that lasts", r.Group)
	case req.Away:
		words = fmt.Sprintf("group %s is to run elsewhere than on %s", r.Group, r.Node)
	}
	if req.ForMS > 0 {
		words += " for " + shortMS(req.ForMS)
	}
	return words
}
