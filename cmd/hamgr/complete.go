package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// completeNode offers the nodes that the daemon knows; under --direct, those of the file.
func (c *cli) completeNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if on, err := cmd.Flags().GetBool("direct"); err == nil && on {
		path, _ := cmd.Flags().GetString("config")
		return nodesOfFile(path), cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, n := range c.knownTo(cmd).Nodes {
		names = append(names, n.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeGroup offers the groups that the daemon knows.
func (c *cli) completeGroup(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, g := range c.knownTo(cmd).Groups {
		names = append(names, g.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeGroupThen offers something else after the group.
func (c *cli) completeGroupThen(then func(*cobra.Command) []string) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return then(cmd), cobra.ShellCompDirectiveNoFileComp
		}
		return c.completeGroup(cmd, args, typed)
	}
}

// memberNames are the nodes that may run groups.
func (c *cli) memberNames(cmd *cobra.Command) []string {
	var names []string
	for _, n := range c.knownTo(cmd).Nodes {
		if n.Role == "member" {
			names = append(names, n.Name)
		}
	}
	return names
}

// knownTo is what the daemon knows, or nothing: a completion must not talk, or take its time.
func (c *cli) knownTo(cmd *cobra.Command) api.Status {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	client := c.client()
	defer client.Close()
	s, err := client.Status(ctx)
	if err != nil {
		return api.Status{}
	}
	return s
}

// nodesOfFile needs no secrets, so that they are not read for a name.
func nodesOfFile(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	cfg, err := config.Parse(path, data, kinds())
	if err != nil {
		return nil
	}
	return cfg.NodeNames()
}
