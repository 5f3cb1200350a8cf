package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/node"
)

// All that the commands want of the daemon's side is in this file.

func runDaemon(ctx context.Context, o daemonOptions) error {
	return node.Run(ctx, node.Options{
		ConfigPath: o.configPath, KeyFile: o.keyFile, Node: o.node, DataDir: o.dataDir, Socket: o.socket,
		BootID: o.bootID, Version: version().Version, Reload: o.reload, Log: o.log,
	})
}

func runWitness(ctx context.Context, o witnessOptions) error {
	return node.RunWitnesses(ctx, node.WitnessOptions{
		Dir: o.dir, DataDir: o.dataDir, RunDir: o.runDir, Nodes: o.nodes, BootID: o.bootID,
		Version: version().Version, Look: o.look, Log: o.log,
	})
}

func readWitness(runDir string) ([]node.WitnessCluster, error) { return node.ReadWitness(runDir) }

func kinds() config.Kinds { return node.Kinds() }

// openDirect reads a configuration for working its fence devices without a cluster.
func openDirect(path string, log *slog.Logger) (fencing, error) { return node.OpenDirect(path, log) }

// keyFile is the file of the cluster's key on this host.
type keyFile = node.KeyFile

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

// placement gives where the groups come to run, in the order of their start, and what is doubtful about that.
func placement(c *config.Config) (all []placed, doubts []config.Problem) {
	expected, stranded := node.Expect(c)
	for _, e := range expected {
		all = append(all, placed{e.Group, e.Turn, e.Node, e.Waits, e.With, e.Then, e.ThenWaits})
		if e.Node == "" {
			doubts = append(doubts, config.Problem{File: c.Path, Key: groupKey(e.Group), Msg: "does not run even with all members there: " + e.Waits})
		}
		if e.Astray != "" {
			doubts = append(doubts, config.Problem{File: c.Path, Key: groupKey(e.Group), Msg: fmt.Sprintf("prefers %s, but comes to run on %s with all members there: by apart, with, weight or capacity", e.Astray, e.Node),
				Cure: "give the groups that it shares these with a prefer that leaves it room"})
		}
	}
	for _, s := range stranded {
		doubts = append(doubts, config.Problem{File: c.Path, Key: groupKey(s.Group), Msg: fmt.Sprintf("does not run any more when %s is lost: %s", s.Lost, s.Why)})
	}
	return all, doubts
}

func groupKey(name string) string { return fmt.Sprintf("group %q", name) }

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
