package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// direct is how a command is told to work without a cluster.
type direct struct {
	on     bool
	config string
	force  bool
}

func (d *direct) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.on, "direct", false, "talk to the devices from here, by the configuration file alone: for a dead cluster")
	cmd.Flags().StringVar(&d.config, "config", defaultConfig, "the configuration file, for --direct")
}

// check refuses what would be ignored otherwise.
func (d *direct) check() error {
	switch {
	case d.on:
		return nil
	case d.force:
		return usagef("--force is for --direct only: the cluster's own rules cannot be forced")
	case d.config != defaultConfig:
		return usagef("--config is for --direct only: the daemon has its own file")
	}
	return nil
}

// fencing is what can be asked of the devices directly.
type fencing interface {
	Nodes() []string
	Levels(node string) [][]string
	Status(ctx context.Context, node string) (api.FenceStatus, error)
	Test(ctx context.Context, node string) (api.FenceTest, error)
	Fence(ctx context.Context, req api.FenceRequest, observe func(api.FenceEvent)) (api.FenceResult, error)
	Close(ctx context.Context) error
}

// lettingGo is how long the end of a command waits for the devices' sessions to be closed.
const lettingGo = 2 * time.Second

// directly runs do with the devices of the file.
func (d direct) directly(ctx context.Context, do func(fencing) error) error {
	f, err := openDirect(d.config, slog.New(slog.DiscardHandler))
	if err != nil {
		return runError(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lettingGo)
		defer cancel()
		f.Close(ctx) // what does not end by then ends with the process
	}()
	return do(f)
}

// dangers is what a direct order does not protect against.
var dangers = []string{
	"no majority is asked: the cluster may be well, and may shoot at the same time",
	"the cluster does not learn of it: it may start what the node holds elsewhere, or never",
	"no token is raised: a writer that survives is not refused by the storage",
	"the machine's identity is not compared: a wrong address in the file cuts the wrong machine",
	"nothing is recorded in the history",
}

// fenceDirectly switches a node's power without a cluster.
func (c *cli) fenceDirectly(ctx context.Context, o fenceOrder, mustAsk bool) error {
	return o.direct.directly(ctx, func(f fencing) error {
		if !slices.Contains(f.Nodes(), o.Node) {
			_, err := f.Status(ctx, o.Node) // says it in full
			return err
		}
		if o.Action != api.ActionOn {
			if err := c.clusterIsDead(ctx, o); err != nil {
				return err
			}
		}
		c.say("WARNING: --direct goes around the cluster, by %s alone:", o.direct.config)
		for _, danger := range dangers {
			c.say("  - %s", danger)
		}
		if mustAsk {
			question := fmt.Sprintf("%s is fenced by %s; cut its power without the cluster?", o.Node, levels(f.Levels(o.Node)))
			if err := c.agree(ctx, question); err != nil {
				return err
			}
		}
		result, err := f.Fence(ctx, o.FenceRequest, c.follow)
		if err != nil {
			return err
		}
		return c.fenced(result)
	})
}

// clusterIsDead refuses a direct shot while a cluster is there that can do it by its own rules, and one at
// this host, which may have another name in the configuration. A daemon that does not answer is
// what --direct is for.
func (c *cli) clusterIsDead(ctx context.Context, o fenceOrder) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client := c.client()
	defer client.Close()
	status, err := client.Status(ctx)
	switch {
	case errors.Is(err, api.ErrUnreachable):
		return nil
	case err != nil:
		c.say("the daemon of this host gives no status, so the cluster counts as dead: %v", err)
		return nil
	case status.Node == o.Node:
		return &api.Error{
			Code: api.ErrUnsafe, Message: fmt.Sprintf("refused: %s is this host, says its daemon: it could not read back that it is off", o.Node),
			Hint: "run it on another host",
		}
	case status.Quorate && o.direct.force:
		c.say("the cluster is quorate, and would do this by its own rules; going on, since --force was given")
		return nil
	case status.Quorate:
		return &api.Error{
			Code: api.ErrUnsafe, Message: fmt.Sprintf("refused: the cluster %s is quorate, and knows nothing of what is done directly", status.Cluster),
			Hint: fmt.Sprintf("hamgr fence %s %s has the cluster do it; --force does it directly all the same", o.Action, o.Node),
		}
	}
	return nil
}

// orDirectly adds to an error that says that no cluster is there what can be done without one.
func orDirectly(err error, command string) error {
	switch api.CodeOf(err) {
	case api.ErrUnreachable, api.ErrNoCoordinator, api.ErrNoQuorum:
		e := api.AsError(err)
		e.Hint = strings.TrimPrefix(fmt.Sprintf("%s; where the cluster is dead: hamgr fence %s --direct", e.Hint, command), "; ")
		return e
	}
	return err
}

// readDirectly warns of what a direct reading is not.
func (c *cli) readDirectly() {
	c.say("--direct: read from this host alone; other nodes may find the devices otherwise, and no machine's identity is compared")
}

// levels are shown in their order, the devices of one level joined by "+".
func levels(list [][]string) string {
	var words []string
	for _, level := range list {
		words = append(words, strings.Join(level, "+"))
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ", then ")
}
