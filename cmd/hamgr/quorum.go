package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) quorumCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quorum",
		Short: "Go on where the majority is gone for good",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("quorum what: force?")
		},
	}
	cmd.AddCommand(c.quorumForceCommand())
	return cmd
}

func (c *cli) quorumForceCommand() *cobra.Command {
	var (
		typed   string
		timeout time.Duration
	)
	req := api.ForceRequest{}
	cmd := &cobra.Command{
		Use:   "force NODE --down NODES --reason TEXT",
		Short: "Have this node go on as the only voter: the majority is gone for good",
		Long: `Have this node go on as the only voter, with what its log has, because the majority is gone for good. NODE is this
node: choose the one whose log is the newest. What only the lost ones knew is lost: so fencing tokens
jump by 2^32, and every other node counts as one that may run anything, until it is proven down or comes back.
The others return as newcomers. Refused (status 5) while any voter that answers knows a coordinator, or while those that answer
are a majority. If those in --down still run somewhere, there are two clusters, and the data is ruined. It is recorded under
your name, for ever.`,
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Node, req.By = args[0], operator()
			if err := req.Validate(); err != nil {
				return err
			}
			switch {
			case req.Reason == "" && !req.DryRun:
				return usagef("say why the majority will not come back: --reason \"the other room burnt down\"")
			case typed != "" && typed != req.Node:
				return usagef("--typed names %q, the node is %q; nothing was done", typed, req.Node)
			case typed == "" && !c.interactive && !req.DryRun:
				return usagef("quorum force %s has the node's name typed, and there is no terminal: give --typed NODE", req.Node)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.forceQuorum(ctx, req, typed != "")
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.Down, "down", nil, "the voters of which you know that they are down, and stay down: all that do not answer")
	flags.StringVar(&req.Reason, "reason", "", "why the majority will not come back, for the record (needed)")
	flags.StringVar(&typed, "typed", "", "the node's name once more, in place of typing it; for scripts")
	flags.BoolVar(&req.DryRun, "dry-run", false, "tell what the others say, and change nothing")
	flags.DurationVar(&timeout, "timeout", time.Minute, "how long to wait for it")
	return cmd
}

func (c *cli) forceQuorum(ctx context.Context, req api.ForceRequest, typed bool) error {
	client := c.client()
	defer client.Close()
	if !req.DryRun {
		look := req
		look.DryRun = true
		if _, err := client.ForceQuorum(ctx, look); err != nil {
			return err
		}
		c.say("%s goes on as the only voter. What only the others knew is lost; they return as newcomers.", req.Node)
		c.say("If %s still run, and follow a coordinator of their own, two clusters write to the same data and ruin it.", or(strings.Join(req.Down, ", "), "the others"))
		if !typed {
			if err := c.typed(ctx, "this node's name to force quorum", req.Node); err != nil {
				return err
			}
		}
	}
	result, err := client.ForceQuorum(ctx, req)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(result)
	}
	for _, v := range result.Voters {
		fmt.Fprintln(c.out, printable(voiceWords(v)))
	}
	if result.Forced {
		fmt.Fprintf(c.out, "quorum is forced; tokens go on from %d; what comes next: hamgr status\n", result.Token)
		return nil
	}
	fmt.Fprintln(c.out, "dry run: nothing speaks against it, and nothing was changed")
	return nil
}

func voiceWords(v api.Voice) string {
	switch {
	case !v.Answers:
		return v.Node + " does not answer: " + or(v.Note, "silent")
	case v.Coordinator != "":
		return v.Node + " answers, and follows " + v.Coordinator
	}
	return v.Node + " answers, and knows no coordinator"
}
