package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) fenceStatusCommand() *cobra.Command {
	var (
		timeout time.Duration
		d       direct
	)
	cmd := &cobra.Command{
		Use:               "status NODE",
		Short:             "Read a node's power afresh from its fence devices",
		Long:              "Read a node's power afresh from its fence devices. Ends with status 1 if a device\ngave no state: then fencing the node may fail.",
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			status, err := c.fenceStatus(ctx, d, args[0])
			if err != nil {
				return err
			}
			if c.json {
				if err := c.printJSON(status); err != nil {
					return err
				}
			} else {
				writeFenceStatus(c.out, status)
			}
			return unread(status)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the devices")
	d.flags(cmd)
	return cmd
}

func (c *cli) fenceStatus(ctx context.Context, d direct, node string) (status api.FenceStatus, err error) {
	if d.on {
		c.readDirectly()
		err = d.directly(ctx, func(f fencing) error {
			status, err = f.Status(ctx, node)
			return err
		})
		return status, err
	}
	client := c.client()
	defer client.Close()
	status, err = client.FenceStatus(ctx, node)
	return status, orDirectly(err, "status "+node)
}

func writeFenceStatus(w io.Writer, s api.FenceStatus) {
	fmt.Fprintf(w, "%s: power %s, read by %s", printable(s.Node), printable(s.Power), printable(s.ReadBy))
	if s.Unclean {
		fmt.Fprint(w, "; UNCLEAN: may hold something and is unproven")
	}
	if s.FenceOp != 0 {
		fmt.Fprintf(w, "; operation %d is not over", s.FenceOp)
	}
	fmt.Fprint(w, "\n\n")
	t := table{{"LEVEL", "DEVICE", "AGENT", "PLUG", "STATE", "TOOK", "NOTE"}}
	for _, p := range s.Plugs {
		note := p.Detail
		if p.Error != "" {
			note = p.Error
		}
		t.row(strconv.Itoa(p.Level), p.Device, p.Agent, p.Plug, p.State, shortMS(p.TookMS), note)
	}
	t.write(w, "")
}

// unread is the error for plugs whose state is not known.
func unread(s api.FenceStatus) error {
	unknown := 0
	for _, p := range s.Plugs {
		if p.State != "on" && p.State != "off" {
			unknown++
		}
	}
	switch {
	case len(s.Plugs) == 0:
		return &outcome{exitFailed, s.Node + " has no fence device"}
	case unknown > 0:
		return &outcome{exitFailed, fmt.Sprintf("%d of %s of %s gave no state", unknown, plural(len(s.Plugs), "plug"), s.Node)}
	}
	return nil
}
