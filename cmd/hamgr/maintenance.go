package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

const maintenanceLong = "It ends only by `off`, and hamgr status is loud about it until then. An operation that is under way is carried through,\nand what an operator orders is carried out."

func (c *cli) maintenanceCommand() *cobra.Command {
	cmd := c.maintenance("maintenance on|off", 0, func(string) api.ChangeRequest { return api.ChangeRequest{} })
	cmd.Short = "Have the whole cluster watched, and left alone"
	cmd.Long = "Have the whole cluster watched, and left alone: nothing is started, stopped, monitored or taken over, and no silent\nnode is fenced. " + maintenanceLong
	return cmd
}

func (c *cli) nodeMaintenanceCommand() *cobra.Command {
	cmd := c.maintenance("maintenance NODE on|off", 1, func(node string) api.ChangeRequest { return api.ChangeRequest{Node: node} })
	cmd.Short = "Have a node, and what it holds, left alone"
	cmd.Long = "Have a node, and what it holds, left alone: nothing of it is started, stopped, monitored or taken over, and it\nis not fenced if it falls silent. " + maintenanceLong
	cmd.ValidArgsFunction = thenOnOff(c.completeNode)
	return cmd
}

func (c *cli) groupMaintenanceCommand() *cobra.Command {
	cmd := c.maintenance("maintenance GROUP on|off", 1, func(group string) api.ChangeRequest { return api.ChangeRequest{Group: group} })
	cmd.Short = "Have a group left alone"
	cmd.Long = "Have a group left alone: it is not started, stopped, monitored or taken over. " + maintenanceLong
	cmd.ValidArgsFunction = thenOnOff(c.completeGroup)
	return cmd
}

// maintenance switches the maintenance of what names arguments name.
func (c *cli) maintenance(use string, names int, of func(string) api.ChangeRequest) *cobra.Command {
	var o changing
	cmd := &cobra.Command{
		Use:  use,
		Args: func(cmd *cobra.Command, args []string) error { return onOff(cmd, args, names) },
		RunE: func(cmd *cobra.Command, args []string) error {
			req := of(args[0])
			if req.Verb = api.ChangeMaintenanceOff; args[names] == "on" {
				req.Verb = api.ChangeMaintenanceOn
			}
			if names > 0 && req.Node == "" && req.Group == "" {
				return usagef("an empty name is none") // and would be the cluster
			}
			return c.change(cmd, req, o)
		},
		ValidArgsFunction: thenOnOff(nil),
	}
	o.flags(cmd)
	return cmd
}

// onOff demands "on" or "off" after a number of names.
func onOff(cmd *cobra.Command, args []string, names int) error {
	switch {
	case len(args) > names+1:
		return misused(cmd, fmt.Sprintf("%q is one argument too many", args[names+1]))
	case len(args) <= names:
		return misused(cmd, "an argument is missing")
	case args[names] != "on" && args[names] != "off":
		return misused(cmd, fmt.Sprintf("%q is neither on nor off", args[names]))
	}
	return nil
}

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// thenOnOff completes "on" and "off" after what name completes, or at once without it.
func thenOnOff(name completion) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch {
		case name != nil && len(args) == 0:
			return name(cmd, args, typed)
		case name == nil && len(args) == 0, name != nil && len(args) == 1:
			return []string{"on", "off"}, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// writeMaintenance says that nothing protects the cluster.
func writeMaintenance(w io.Writer, s api.Status) {
	if s.Maintenance {
		fmt.Fprintln(w, "MAINTENANCE: nothing is started, stopped, monitored or taken over, and no silent node is fenced")
	}
}
