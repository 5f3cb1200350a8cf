package main

import (
	"bufio"
	"context"
	"errors"
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
		Short: "Read or switch a node's power through its fence devices",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("fence what: status, off, on or reboot?") },
	}
	cmd.AddCommand(
		c.fenceStatusCommand(),
		c.fenceAction(api.ActionOff, "Cut a node's power, prove it off, and leave it off"),
		c.fenceAction(api.ActionOn, "Switch a node on again"),
		c.fenceAction(api.ActionReboot, "Cut a node's power, prove it off, and switch it on again"),
	)
	return cmd
}

func (c *cli) fenceAction(action, short string) *cobra.Command {
	var (
		yes     bool
		reason  string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:               action + " NODE",
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.FenceRequest{Node: args[0], Action: action, By: operator(), Reason: reason}
			if err := req.Validate(); err != nil {
				return err
			}
			mustAsk := action != api.ActionOn && !yes
			if mustAsk && !c.interactive {
				return usagef("fence %s %s asks before it cuts the power, and there is no terminal to answer: give --yes", action, req.Node)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			client := c.client()
			defer client.Close()
			if mustAsk {
				if err := c.confirm(ctx, client, req); err != nil {
					return err
				}
			}
			result, err := client.Fence(ctx, req, func(e api.FenceEvent) { c.say("%s", progress(e)) })
			if err != nil {
				return err
			}
			return c.fenced(result)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the end; the operation itself goes on")
	if action != api.ActionOn {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	return cmd
}

// confirm shows what is at stake, and has the operator agree to it.
func (c *cli) confirm(ctx context.Context, client *api.Client, req api.FenceRequest) error {
	status, err := client.Status(ctx)
	if err != nil {
		return err
	}
	if status.Note != "" {
		c.say("%s", status.Note)
	}
	stakes, known := atStake(status, req.Node)
	if !known {
		return &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("there is no node %q", req.Node), Hint: "hamgr status lists the nodes"}
	}
	fmt.Fprint(c.err, printable(fmt.Sprintf("%s; cut its power? [y/N] ", stakes)))
	switch yes, err := c.answer(ctx); {
	case err != nil:
		return err
	case !yes:
		return errors.New("not confirmed; nothing was done")
	}
	return nil
}

// atStake says in words what a node is and holds.
func atStake(s api.Status, node string) (words string, known bool) {
	for _, n := range s.Nodes {
		if n.Name == node {
			words, known = fmt.Sprintf("%s is %s", node, n.State), true
			if n.Coordinator {
				words += " and the coordinator"
			}
		}
	}
	var groups []string
	for _, g := range s.Groups {
		if g.Node == node {
			groups = append(groups, g.Name)
		}
	}
	if len(groups) == 0 {
		return words + ", and holds no group", known
	}
	return words + ", and holds " + strings.Join(groups, ", "), known
}

// answer reads one line. Reading a terminal cannot be cancelled; a reader that is left
// behind ends with the process.
func (c *cli) answer(ctx context.Context) (yes bool, err error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(c.in).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		text = strings.ToLower(strings.TrimSpace(text))
		return text == "y" || text == "yes", nil
	case <-ctx.Done():
		return false, errors.New("no answer; nothing was done")
	}
}

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
	if c.json {
		if err := c.printJSON(r); err != nil {
			return err
		}
	} else {
		words := map[string]string{api.ActionOff: "is off", api.ActionOn: "is on", api.ActionReboot: "was off and is on again"}[r.Action]
		if r.Phase == api.PhaseProven {
			words = "is off"
		}
		line := fmt.Sprintf("%s %s (operation %d, %s)", r.Node, words, r.Op, shortMS(r.TookMS))
		if r.Proof != "" {
			line += ": " + r.Proof
		}
		fmt.Fprintln(c.out, printable(line))
	}
	if r.Action == api.ActionReboot && r.Phase == api.PhaseProven {
		return &outcome{exitFailed, strings.TrimSuffix(r.Node+" is proven off, but was not switched on again: "+r.Note, ": ")}
	}
	return nil
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

// completeNode offers the nodes that the daemon knows.
func (c *cli) completeNode(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
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
