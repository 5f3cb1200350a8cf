package main

import (
	"context"
	"log/slog"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/node"
)

// All that the commands want of the daemon's side is in this file.

func runDaemon(ctx context.Context, o daemonOptions) error {
	return node.Run(ctx, node.Options{
		ConfigPath: o.configPath, Node: o.node, DataDir: o.dataDir, Socket: o.socket,
		BootID: o.bootID, Version: version().Version, Log: o.log,
	})
}

func kinds() config.Kinds { return node.Kinds() }

// openDirect reads a configuration for working its fence devices without a cluster.
func openDirect(path string, log *slog.Logger) (fencing, error) { return node.OpenDirect(path, log) }

// newKeyFile writes a new cluster key. It never overwrites: fs.ErrExist.
func newKeyFile(path string) error { return node.NewKeyFile(path) }

// timings gives what follows from detection_time, and the worst case of each node's failover.
func timings(c *config.Config) (times []timing, failovers []failover) {
	pace, worst := node.Timings(c)
	for _, t := range pace {
		times = append(times, timing{t.Name, t.Value.Milliseconds(), t.Meaning})
	}
	for _, f := range worst {
		failovers = append(failovers, failover{
			Node: f.Node, DetectMS: f.Detect.Milliseconds(), FenceMS: f.Fence.Milliseconds(),
			StartMS: f.Start.Milliseconds(), TotalMS: f.Total().Milliseconds(),
		})
	}
	return times, failovers
}

// shares gives each fence device's part of the time budget.
func shares(c *config.Config) (all []share) {
	for _, s := range node.Shares(c) {
		all = append(all, share{
			Node: s.Node, Level: s.Level, Device: s.Device, TimeoutMS: s.Timeout.Milliseconds(), SettleMS: s.Settle.Milliseconds(),
			LevelMS: s.OfLevel.Milliseconds(), WholeMS: s.Whole.Milliseconds(),
		})
	}
	return all
}
