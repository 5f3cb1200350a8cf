package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

const defaultWitnessDir = "/etc/hamgr/witness"

// witnessOptions are what `hamgr witness` hands to the daemon's side.
type witnessOptions struct {
	dir, dataDir, runDir, bootID string
	nodes                        map[string]string
	look                         <-chan os.Signal
	log                          *slog.Logger
}

func (c *cli) witnessCommand() *cobra.Command {
	var (
		o             witnessOptions
		nodes         []string
		level, format string
	)
	cmd := &cobra.Command{
		Use:   "witness",
		Short: "Vote for every cluster of a folder, and run nothing",
		Long: `Vote for every cluster of a folder, and run nothing, in the foreground, until SIGTERM. Needs no root.
Every NAME.toml in the folder is the configuration of one cluster, as its other nodes have it, in which this
host is a node of role witness; NAME.key is its key, owned by the user that runs this, mode 0600. The folder is
looked at every few seconds, and on SIGHUP at once. It logs to standard error.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(c.err, level, format)
			if err != nil {
				return err
			}
			if o.nodes, err = whichNode(nodes); err != nil {
				return err
			}
			if o.dir, err = filepath.Abs(o.dir); err != nil {
				return err
			}
			look := make(chan os.Signal, 1)
			signal.Notify(look, syscall.SIGHUP)
			defer signal.Stop(look)
			o.log, o.look = log, look
			return runWitness(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", defaultWitnessDir, "the folder of NAME.toml and NAME.key")
	flags.StringVar(&o.dataDir, "data-dir", "", "NAME in it keeps what this voter remembers (default $STATE_DIRECTORY, else /var/lib/hamgr-witness)")
	flags.StringArrayVar(&nodes, "node", nil, "the node that this host is, where its addresses do not tell: NODE, or NAME=NODE for one cluster; may be repeated")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&format, "log-format", "json", "json or text")
	flags.StringVar(&o.bootID, "boot-id", "", "stand-in for the kernel's boot ID; for several nodes on one host")
	flags.MarkHidden("boot-id")
	cmd.PersistentFlags().StringVar(&o.runDir, "run-dir", "", "NAME in it has the socket hamgr.sock (default $RUNTIME_DIRECTORY, else /run/hamgr-witness)")
	cmd.AddCommand(c.witnessStatusCommand(&o.runDir))
	return cmd
}

// whichNode reads --node: NODE, or NAME=NODE.
func whichNode(given []string) (map[string]string, error) {
	nodes := map[string]string{}
	for _, g := range given {
		name, node, named := strings.Cut(g, "=")
		if !named {
			name, node = "", g
		}
		if node == "" || named && name == "" {
			return nil, usagef("--node %q is neither NODE nor NAME=NODE", g)
		}
		if was, twice := nodes[name]; twice && was != node {
			return nil, &api.Error{Code: api.ErrInvalid, Message: fmt.Sprintf("--node names both %s and %s", was, node), Hint: "write --node NAME=NODE, with the name of the cluster's file without .toml"}
		}
		nodes[name] = node
	}
	return nodes, nil
}
