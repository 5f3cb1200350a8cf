package main

import (
	"context"
	"errors"

	"github.com/hamgr/hamgr/agents/registry"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/link"
)

// All that the commands want of the daemon's side is in this file.

func runDaemon(_ context.Context, o daemonOptions) error {
	if _, err := config.Load(o.configPath, kinds()); err != nil {
		return err
	}
	return errors.New("this build has no daemon")
}

func kinds() config.Kinds { return config.Kinds{Agents: registry.Default()} }

// newKeyFile writes a new cluster key. It never overwrites: fs.ErrExist.
func newKeyFile(path string) error {
	key, err := link.GenerateKey()
	if err != nil {
		return err
	}
	return link.WriteKeyFile(path, key)
}

// timings gives what follows from detection_time, and the worst case of each node's failover.
func timings(*config.Config) ([]timing, []failover) { return nil, nil }
