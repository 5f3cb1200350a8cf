package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// keyListOutput is what `hamgr key list --json` prints.
type keyListOutput struct {
	Schema int            `json:"schema"`
	File   string         `json:"file"`
	Keys   []string       `json:"keys"` // of the file, in its order
	Error  string         `json:"error,omitempty"`
	Node   string         `json:"node,omitempty"` // that answers
	Nodes  []api.NodeKeys `json:"nodes"`
	Next   []string       `json:"next"` // what to do, in words
}

func (c *cli) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Replace the cluster's key while it runs",
		Long: `Replace the cluster's key while it runs: add a new key to the file, copy the file to all nodes, use the new key on
every node, drop the old one on every node (docs/keys.md). Each command changes the file of this host alone, and waits until
its daemon goes by it. A key never travels through the cluster; the fingerprints that are shown are public.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return usagef("key what: list, add, use or drop?")
		},
	}
	cmd.AddCommand(c.keyListCommand(), c.keyAddCommand(), c.keyUseCommand(), c.keyDropCommand())
	return cmd
}

func (c *cli) keyListCommand() *cobra.Command {
	var (
		file    string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show which keys this host's file has, and which every node uses and accepts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.listKeys(ctx, file)
		},
	}
	keyFlags(cmd, &file, &timeout)
	return cmd
}

func keyFlags(cmd *cobra.Command, file *string, timeout *time.Duration) {
	cmd.Flags().StringVar(file, "key-file", "", "the file (default: the one that the daemon here goes by, else "+defaultKeyFile+")")
	cmd.Flags().DurationVar(timeout, "timeout", 15*time.Second, "how long to wait for the daemon")
}

func (c *cli) listKeys(ctx context.Context, file string) error {
	client := c.client()
	defer client.Close()
	known, err := client.Keys(ctx)
	if err != nil {
		if api.CodeOf(err) != api.ErrUnreachable {
			return err
		}
		known = api.Keys{}
		c.say("no daemon answers: what the nodes accept is not known")
	}
	out := keyListOutput{Schema: api.Schema, File: or(file, or(known.File, defaultKeyFile)), Node: known.Node, Nodes: append([]api.NodeKeys{}, known.Nodes...), Next: []string{}}
	if out.Keys, err = keyFile(out.File).Keys(); err != nil {
		out.Keys, out.Error = []string{}, err.Error()
	}
	if out.Error == "" && len(out.Nodes) > 0 {
		out.Next = append(out.Next, nextOfRotation(out.File, out.Keys, out.Nodes)...)
	}
	if c.json {
		if err := c.printJSON(out); err != nil {
			return err
		}
	} else {
		c.writeKeys(out)
	}
	if out.Error != "" {
		return &outcome{exitFailed, out.Error}
	}
	return nil
}

func (c *cli) writeKeys(out keyListOutput) {
	all := slices.Clone(out.Keys)
	for _, n := range out.Nodes {
		for _, key := range append(slices.Clone(n.Accepts), n.HeardWith) {
			if key != "" && !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
	}
	t := table{{"KEY", "IN " + out.File, "USED BY", "ACCEPTED BY"}}
	for _, key := range all {
		here := "-"
		switch slices.Index(out.Keys, key) {
		case -1:
		case 0:
			here = "first: used"
		default:
			here = "accepted"
		}
		var used, accepted []string
		for _, n := range out.Nodes {
			if n.Uses() == key {
				used = append(used, n.Name)
			}
			if slices.Contains(n.Accepts, key) {
				accepted = append(accepted, n.Name)
			}
		}
		t.row(key, here, strings.Join(used, ", "), strings.Join(accepted, ", "))
	}
	if len(all) > 0 {
		t.write(c.out, "")
	}
	for _, n := range out.Nodes {
		if n.Silent != "" {
			fmt.Fprintln(c.out, printable(n.Name+" "+n.Silent))
		}
		if n.Trouble != "" {
			fmt.Fprintln(c.out, printable(n.Name+" cannot use its file and goes by what it had before: "+n.Trouble))
		}
	}
	c.sayNext(out.Next)
}

func (c *cli) sayNext(next []string) {
	if len(next) == 0 {
		return
	}
	c.say("Next:")
	for i, line := range next {
		c.say("  %d. %s", i+1, line)
	}
}
