package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) statusCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster in one screen",
		Long:  "Show the cluster in one screen: what is wrong and what to do, who is in, what runs where.\nWorks on every node, also without quorum; then it says so.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			client := c.client()
			defer client.Close()
			status, err := client.Status(ctx)
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(status)
			}
			writeStatus(c.out, status, time.Now())
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the daemon")
	return cmd
}
