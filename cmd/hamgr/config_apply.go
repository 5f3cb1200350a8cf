package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// applyOutput is what `hamgr config apply --json` prints.
type applyOutput struct {
	diffOutput
	Applied bool                 `json:"applied"` // the cluster has committed it
	Index   uint64               `json:"index"`   // of the log entry that holds the cluster's configuration
	Nodes   []api.ConfiguredNode `json:"nodes"`   // how far each is with it
}

func (c *cli) configApplyCommand() *cobra.Command {
	var (
		yes     bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "apply [FILE]",
		Short: "Have the whole cluster go by a configuration file",
		Long: "Have the whole cluster go by a configuration file (" + defaultConfig + " if none is named). It is shown what that\n" +
			"changes, and judged against what runs: what would stop a service, lose a node or make its fencing unsafe is\n" +
			"refused (status 5), with the figures and the cure. Then it is committed, and every daemon begins anew with\n" +
			"it, one after the other, without touching what runs; the files of the other hosts follow by themselves.",
		Args: atMostOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := defaultConfig
			if len(args) > 0 {
				path = args[0]
			}
			if !yes && !c.interactive {
				return usagef("config apply asks before it changes the cluster, and there is no terminal: give --yes, or use hamgr config diff to look only")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.apply(ctx, path, yes)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	flags.DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait until every node runs with it; it goes on without the wait too")
	return cmd
}

func (c *cli) apply(ctx context.Context, path string, yes bool) error {
	data, err := readConfig(path)
	if err != nil {
		return err
	}
	if _, err := config.CheckText(path, data, kinds()); err != nil {
		return invalid(err)
	}
	before, err := c.before(ctx, "")
	if err != nil {
		return err
	}
	diff, err := difference(before, text{name: path, data: data})
	if err != nil {
		return err
	}
	out := &applyOutput{diffOutput: *diff, Index: before.index, Nodes: []api.ConfiguredNode{}}
	if string(before.data) == string(data) {
		return c.applied(out)
	}
	if len(out.Refused) == 0 {
		c.judge(ctx, &out.diffOutput, before.index, data)
	}
	if !c.json {
		writeDiff(c.out, &out.diffOutput)
	}
	if len(out.Refused) > 0 {
		return c.notApplied(out)
	}
	if !yes {
		if err := c.agree(ctx, "Apply it to the whole cluster?"); err != nil {
			return err
		}
	}
	return c.commit(ctx, out, before.index, data)
}

// commit has the cluster take it over, and waits until every node runs with it.
func (c *cli) commit(ctx context.Context, out *applyOutput, from uint64, data []byte) error {
	client := c.client()
	defer client.Close()
	result, err := client.Apply(ctx, api.ApplyRequest{Text: string(data), From: from, By: operator()})
	if err != nil {
		return err
	}
	out.Applied, out.Index, out.Judged, out.Refused = result.Applied, result.Index, true, objections(result.Refused)
	if !out.Applied {
		if !c.json {
			writeDiff(c.out, &out.diffOutput)
		}
		return c.notApplied(out)
	}
	c.say("committed as configuration %d; every daemon begins anew with it, one after the other", out.Index)
	if out.Nodes, err = c.followed(ctx, client, out.Index); err != nil {
		if c.json {
			if err := c.printJSON(out); err != nil {
				return err
			}
		}
		return err
	}
	return c.applied(out)
}

func (c *cli) notApplied(out *applyOutput) error {
	if c.json {
		if err := c.printJSON(out); err != nil {
			return err
		}
	}
	return &outcome{exitUnsafe, "not applied: the cluster goes on as before"}
}

func (c *cli) applied(out *applyOutput) error {
	if c.json {
		return c.printJSON(out)
	}
	words := "every node runs with"
	if !out.Applied {
		words = "the cluster has"
	}
	fmt.Fprintf(c.out, "%s configuration %d\n", words, out.Index)
	return nil
}

// followed waits until every node runs with the configuration of that entry, or says why not.
func (c *cli) followed(ctx context.Context, client *api.Client, index uint64) (nodes []api.ConfiguredNode, err error) {
	last := ""
	for {
		now, err := client.Configuration(ctx)
		if err == nil && now.Index >= index {
			nodes = now.Nodes
			behind := behind(nodes)
			if len(behind) == 0 {
				return nodes, nil
			}
			if words := strings.Join(behind, "; "); words != last && ctx.Err() == nil {
				c.say("%s", words)
				last = words
			}
		}
		select {
		case <-ctx.Done():
			return nodes, &outcome{exitUnknown, "no longer waiting: " + or(last, "no answer") + "; it goes on by itself: hamgr config diff, hamgr status"}
		case <-time.After(waitLook):
		}
	}
}

func behind(nodes []api.ConfiguredNode) (words []string) {
	for _, n := range nodes {
		if !n.Current {
			words = append(words, n.Name+" "+n.Reason)
		}
	}
	slices.Sort(words)
	return words
}
