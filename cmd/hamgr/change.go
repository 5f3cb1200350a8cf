package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

const (
	commitTimeout = 30 * time.Second
	waitTimeout   = 5 * time.Minute
)

// changing is what the command lines of all changes share.
type changing struct {
	dry, wait bool
	timeout   time.Duration
}

func (o *changing) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.dry, "dry-run", false, "tell what would happen, step by step, and change nothing")
	flags.BoolVar(&o.wait, "wait", false, "wait until everything is as foretold; it goes on without the wait too")
	flags.DurationVar(&o.timeout, "timeout", commitTimeout, "how long to wait until it is committed; with --wait, until it is done, and 5m unless given")
}

// changeOutput is what every change prints under --json.
type changeOutput struct {
	api.ChangeResult
	Waited *waited `json:"waited,omitempty"`
}

// change has the cluster do something, tells what comes of it, and waits for it if that is wanted.
func (c *cli) change(cmd *cobra.Command, req api.ChangeRequest, o changing) error {
	req.By, req.DryRun = operator(), o.dry
	if err := req.Validate(); err != nil {
		return err
	}
	if o.timeout <= 0 {
		return usagef("--timeout %s: it must be longer than nothing", o.timeout)
	}
	if o.dry && o.wait {
		return usagef("a dry run changes nothing, so there is nothing to wait for: give --dry-run or --wait")
	}
	if o.wait && !cmd.Flags().Changed("timeout") {
		o.timeout = waitTimeout
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	client := c.client()
	defer client.Close()
	result, err := client.Change(ctx, req)
	if err != nil {
		return err
	}
	if !c.json {
		writeChange(c.out, req, result)
	}
	if !o.wait {
		if c.json {
			return c.printJSON(changeOutput{ChangeResult: result})
		}
		if !o.dry && len(result.Steps) > 0 {
			c.say("this goes on by itself; to follow it: %s", follows(result))
		}
		return nil
	}
	w := waiter{cli: c, client: client, result: result}
	out, err := w.run(ctx)
	if c.json {
		if err := c.printJSON(changeOutput{result, &out}); err != nil {
			return err
		}
	} else if err == nil {
		fmt.Fprintln(c.out, printable(doneWords(out)))
	}
	return err
}

// follows is the command that shows how a change goes on.
func follows(r api.ChangeResult) string {
	if len(r.Groups) == 1 {
		return "hamgr group show " + r.Groups[0].Group
	}
	return "hamgr group list"
}

// writeChange tells what is changed, and what comes of it.
func writeChange(w io.Writer, req api.ChangeRequest, r api.ChangeResult) {
	line := func(format string, args ...any) { fmt.Fprintln(w, printable(fmt.Sprintf(format, args...))) }
	if r.DryRun {
		line("dry run: nothing was changed; without it:")
	}
	line("%s", changeWords(req, r))
	for i, s := range r.Steps {
		line("%3d. %s %s on %s: %s", i+1, s.Action, s.Group, s.Node, s.Reason)
	}
	for _, g := range r.Groups {
		stepped := slices.ContainsFunc(r.Steps, func(s api.ChangeStep) bool { return s.Group == g.Group })
		switch {
		case g.Node == "":
			line("%s then runs nowhere: %s", g.Group, or(g.Waits, "it is on its way"))
		case g.Waits != "":
			line("%s stays on %s for now: it %s", g.Group, g.Node, g.Waits)
		case !stepped:
			line("%s stays on %s", g.Group, g.Node)
		}
	}
}

// changeWords says in one line what is so after a change.
func changeWords(req api.ChangeRequest, r api.ChangeResult) string {
	already := ""
	if !r.Changed {
		already = " already"
	}
	switch r.Verb {
	case api.ChangeStandby, api.ChangeOnline:
		return standbyWords(r, already)
	case api.ChangeMaintenanceOn:
		return fmt.Sprintf("%s is in maintenance%s: %s", subject(r), already, leftAlone(r))
	case api.ChangeMaintenanceOff:
		return fmt.Sprintf("%s is not in maintenance%s", subject(r), strings.Replace(already, "already", "anyway", 1))
	case api.ChangeEnable:
		return fmt.Sprintf("group %s is enabled%s", r.Group, already)
	case api.ChangeDisable:
		return fmt.Sprintf("group %s is disabled%s", r.Group, already)
	case api.ChangeRestart:
		return fmt.Sprintf("group %s is restarted, under a new token", r.Group)
	case api.ChangeClear:
		return clearWords(r)
	}
	return moveWords(req, r)
}

// subject is what a maintenance is of.
func subject(r api.ChangeResult) string {
	switch {
	case r.Node != "":
		return "node " + r.Node
	case r.Group != "":
		return "group " + r.Group
	}
	return "the cluster"
}

func leftAlone(r api.ChangeResult) string {
	switch {
	case r.Node != "":
		return "what it holds is not monitored, stopped or taken over, and it is not fenced if it falls silent"
	case r.Group != "":
		return "it is not started, stopped, monitored or taken over"
	}
	return "nothing is started, stopped, monitored or taken over, and no silent node is fenced"
}
