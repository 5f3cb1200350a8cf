package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) groupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Show the groups, and say where and whether they run",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("group what: list, show, enable, disable, move, restart, clear or maintenance?")
		},
	}
	cmd.AddCommand(
		c.groupListCommand(),
		c.groupShowCommand(),
		c.groupVerb(api.ChangeEnable, "Have a group run again that was disabled", ""),
		c.groupVerb(api.ChangeDisable, "Have a group run nowhere, until it is enabled",
			"Stop a group, and have it run nowhere until it is enabled. Groups that run after it or with it stop too."),
		c.groupMoveCommand(),
		c.groupVerb(api.ChangeRestart, "Stop a group and start it, on the same node if that can still take it",
			"Stop a group and start it under a new token, on the same node if that can still take it. Groups that run\nafter it or with it are stopped before and started after it."),
		c.groupClearCommand(),
		c.groupMaintenanceCommand(),
	)
	return cmd
}

// groupVerb is a change of a group that needs nothing but its name.
func (c *cli) groupVerb(verb, short, long string) *cobra.Command {
	var o changing
	cmd := &cobra.Command{
		Use:               verb + " GROUP",
		Short:             short,
		Long:              long,
		Args:              oneArg,
		ValidArgsFunction: c.completeGroup,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change(cmd, api.ChangeRequest{Verb: verb, Group: args[0]}, o)
		},
	}
	o.flags(cmd)
	return cmd
}

// statusWithin asks for the status, and tells how far it is to be believed.
func (c *cli) statusWithin(ctx context.Context, timeout time.Duration) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := c.client()
	defer client.Close()
	s, err := client.Status(ctx)
	if err == nil && s.Note != "" && !c.json {
		c.say("%s", s.Note)
	}
	return s, err
}

// groupNamed finds a group in a status.
func groupNamed(s api.Status, name string) (api.GroupStatus, error) {
	var names []string
	for _, g := range s.Groups {
		if g.Name == name {
			return g, nil
		}
		names = append(names, g.Name)
	}
	return api.GroupStatus{}, &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no group is named %q", name), Hint: "the groups are " + or(strings.Join(names, ", "), "none")}
}
