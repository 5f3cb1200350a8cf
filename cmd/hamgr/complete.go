package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

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
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	client := c.client()
	defer client.Close()
	status, err := client.Status(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, n := range status.Nodes {
		names = append(names, n.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
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
