package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) fenceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fence",
		Short: "Work the fence devices: read, test, switch, rehearse; and see what was done",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("fence what: status, test, off, on, reboot, rehearse, history or confirm?")
		},
	}
	cmd.AddCommand(
		c.fenceStatusCommand(),
		c.fenceTestCommand(),
		c.fenceAction(api.ActionOff, "Cut a node's power, prove it off, and leave it off"),
		c.fenceAction(api.ActionOn, "Switch a node on again"),
		c.fenceAction(api.ActionReboot, "Cut a node's power, prove it off, and switch it on again"),
		c.fenceRehearseCommand(),
		c.fenceHistoryCommand(),
		c.fenceConfirmCommand(),
	)
	return cmd
}

// fenceOrder is the command line of an off, on or reboot.
type fenceOrder struct {
	api.FenceRequest
	yes     bool
	timeout time.Duration
	direct  direct
}

func (c *cli) fenceAction(action, short string) *cobra.Command {
	o := fenceOrder{FenceRequest: api.FenceRequest{Action: action}}
	cmd := &cobra.Command{
		Use:               action + " NODE",
		Short:             short,
		Args:              oneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Node, o.By = args[0], operator()
			return c.fence(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why, for the record")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long to wait for the end; the operation itself goes on (not with --direct)")
	o.direct.flags(cmd)
	if action != api.ActionOn {
		cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
		cmd.Flags().BoolVar(&o.direct.force, "force", false, "with --direct: although the daemon says that the cluster can do it")
	}
	return cmd
}

func (c *cli) fence(ctx context.Context, o fenceOrder) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := o.direct.check(); err != nil {
		return err
	}
	mustAsk := o.Action != api.ActionOn && !o.yes
	if mustAsk && !c.interactive {
		return usagef("fence %s %s asks before it cuts the power, and there is no terminal to answer: give --yes", o.Action, o.Node)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if o.direct.on {
		return c.fenceDirectly(ctx, o, mustAsk)
	}
	client := c.client()
	defer client.Close()
	if mustAsk {
		stakes, err := c.stakes(ctx, client, o.Node)
		if err != nil {
			return orDirectly(err, o.Action+" "+o.Node)
		}
		if err := c.agree(ctx, stakes+"; cut its power?"); err != nil {
			return err
		}
	}
	result, err := client.Fence(ctx, o.FenceRequest, c.follow)
	if err != nil {
		return orDirectly(err, o.Action+" "+o.Node)
	}
	return c.fenced(result)
}

// follow shows the steps of an operation as they happen.
func (c *cli) follow(e api.FenceEvent) { c.say("%s", progress(e)) }

func progress(e api.FenceEvent) string {
	var b strings.Builder
	if !e.At.IsZero() {
		b.WriteString(e.At.Local().Format("15:04:05.000 "))
	}
	b.WriteString(e.Text)
	if !strings.Contains(e.Text, e.Error) {
		b.WriteString(": " + e.Error)
	}
	return b.String()
}

// fenced tells the result. A reboot whose power-on failed has fenced the node, but did not
// do all that was asked.
func (c *cli) fenced(r api.FenceResult) error {
	half := r.Action == api.ActionReboot && r.Phase == api.PhaseProven
	if c.json {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else {
		words := map[string]string{api.ActionOff: "is off", api.ActionOn: "is on", api.ActionReboot: "was off and is on again"}[r.Action]
		if half {
			words = "is fenced: it is off"
		}
		line := fmt.Sprintf("%s %s (%s%s)", r.Node, words, operation(r.Op), shortMS(r.TookMS))
		if r.Proof != "" {
			line += ": " + r.Proof
		}
		fmt.Fprintln(c.out, printable(line))
	}
	if half {
		text := fmt.Sprintf("the fencing of %s succeeded, only its power-on failed: it is proven off", r.Node)
		if r.Op != 0 {
			text += ", and what it held may start elsewhere"
		}
		return &outcome{exitFailed, strings.TrimSuffix(fmt.Sprintf("%s; switch it on with hamgr fence on %s: %s", text, r.Node, r.Note), ": ")}
	}
	return nil
}

// operation names an operation before other words; what was done directly has no number.
func operation(op uint64) string {
	if op == 0 {
		return ""
	}
	return fmt.Sprintf("operation %d, ", op)
}

// operator is the person behind this process, for the record; it is no authentication.
func operator() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
