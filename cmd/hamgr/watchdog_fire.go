package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

func (c *cli) watchdogTestCommand() *cobra.Command {
	var (
		place watchdogPlace
		typed string
	)
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Let this host's watchdog fire: THE HOST IS RESET",
		Long: `Let this host's watchdog fire: THE HOST IS RESET, as if by its reset button. The disks are synced before. Refused
(status 5) while the node holds anything or is not on standby. When the host is back, hamgr watchdog status tells whether
it was the watchdog. If the host is not reset, the status is 1.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := place.find(); err != nil {
				return err
			}
			return c.watchdogTest(cmd.Context(), place, typed)
		},
	}
	place.flags(cmd)
	cmd.Flags().StringVar(&typed, "typed", "", "the node's name, in place of typing it; for scripts")
	return cmd
}

func (c *cli) watchdogTest(ctx context.Context, p watchdogPlace, typed string) error {
	switch {
	case p.dog == config.WatchdogOff || p.dog == config.WatchdogFake:
		return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("node %s has no watchdog: watchdog = %q", p.node, p.dog), Hint: `write watchdog = "/dev/watchdog0" for it`}
	case typed != "" && typed != p.node:
		return usagef("--typed names %q, this node is %q; nothing was done", typed, p.node)
	case typed == "" && !c.interactive:
		return usagef("watchdog test has the node's name typed, and there is no terminal: give --typed NODE")
	case os.Geteuid() != 0:
		return &api.Error{Code: api.ErrUnsafe, Message: "only root may reset this host", Hint: "sudo hamgr watchdog test"}
	}
	if err := c.empty(ctx, p); err != nil {
		return err
	}
	if h, ok := watchdog.FindHolder("/proc", p.dog); ok {
		return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s is in use by %s", p.dog, h)}
	}
	id, err := watchdog.Identify(p.dog)
	if err != nil {
		return &api.Error{Code: api.ErrFailed, Message: err.Error()}
	}
	c.say("The watchdog %s (%s) is armed now and not fed: about %s later it RESETS THIS HOST, %s,", p.dog, or(id.Name, "unknown until it is armed"), p.timing.Timeout, p.node)
	c.say("as if by its reset button. All that runs here is lost; the disks are synced before.")
	for _, n := range watchdog.Notices(id) {
		c.say("notice: %s", n)
	}
	if typed == "" {
		if err := c.typed(ctx, "the node's name to let it fire", p.node); err != nil {
			return err
		}
	}
	// Answering took its time.
	if err := c.empty(ctx, p); err != nil {
		return err
	}
	if err := os.MkdirAll(p.dataDir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	unix.Sync()
	err = watchdog.Fire(ctx, watchdog.Trial{
		Path: p.dog, Node: p.node, Boot: p.boot, DataDir: p.dataDir, Timing: p.timing,
		Tell: func(left time.Duration) { c.say("reset within %s; Ctrl-C calls it off", left.Round(time.Second)) },
	})
	return &api.Error{Code: api.ErrFailed, Message: err.Error(), Hint: "hamgr watchdog status"}
}
