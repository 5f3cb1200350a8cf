package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) fenceConfirmCommand() *cobra.Command {
	var (
		typed   string
		timeout time.Duration
	)
	req := api.FenceRequest{Action: api.ActionConfirm}
	cmd := &cobra.Command{
		Use:   "confirm NODE --reason TEXT",
		Short: "Give your word that a node is down, where its devices cannot prove it",
		Long: `Give your word that a node is down, where its fence devices cannot prove it. No power is cut: the
cluster takes your word as the proof, and starts elsewhere what the node held. If the node runs all the
same, two nodes write, and the data is ruined. Refused (status 5) while any node hears it, or any of its
fence devices says that it has power. The word is recorded under your name, with what was seen.`,
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Node, req.By = args[0], operator()
			if err := req.Validate(); err != nil {
				return err
			}
			switch {
			case req.Reason == "":
				return usagef("say how you know that %s is down: --reason \"unplugged both power cords\"", req.Node)
			case typed != "" && typed != req.Node:
				return usagef("--typed names %q, the node is %q; nothing was done", typed, req.Node)
			case typed == "" && !c.interactive:
				return usagef("fence confirm %s has the node's name typed, and there is no terminal: give --typed NODE", req.Node)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.confirm(ctx, req, typed != "")
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&req.Reason, "reason", "", "how you know that it is down, for the record (needed)")
	flags.StringVar(&typed, "typed", "", "the node's name once more, in place of typing it; for scripts")
	flags.BoolVar(&req.Force, "force", false, "although a node or a device says that it is alive: for a device that is known to tell nonsense")
	flags.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for those who are asked whether it is alive")
	return cmd
}

// confirm records an operator's word that a node is down.
func (c *cli) confirm(ctx context.Context, req api.FenceRequest, typed bool) error {
	client := c.client()
	defer client.Close()
	stakes, err := c.stakes(ctx, client, req.Node)
	if err != nil {
		return err
	}
	c.say("%s.", stakes)
	c.say("Your word that it is down lets the cluster start elsewhere what it holds. No device cuts its power for that.")
	c.say("If %s still runs, or freezes and goes on later, two nodes write to the same data and ruin it.", req.Node)
	c.say("Give it only if its power is cut by hand, or the machine is gone, and nobody will switch it on meanwhile.")
	if req.Force {
		c.say("--force: it is taken even if a node or a fence device says that %s is ALIVE.", req.Node)
	}
	if !typed {
		if err := c.typed(ctx, "the node's name to confirm", req.Node); err != nil {
			return err
		}
	}
	result, err := client.Fence(ctx, req, c.follow)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(result)
	}
	fmt.Fprintln(c.out, printable(fmt.Sprintf("%s counts as down (operation %d), recorded as the word of %s, not as a fencing", result.Node, result.Op, req.By)))
	for _, line := range []string{result.Proof, result.Note} {
		if line != "" {
			fmt.Fprintln(c.out, "  "+printable(line))
		}
	}
	return nil
}
