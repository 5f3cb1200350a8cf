package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// checkOutput is what `hamgr config check --json` prints. Times are milliseconds.
type checkOutput struct {
	Schema    int              `json:"schema"`
	File      string           `json:"file"`
	OK        bool             `json:"ok"`
	Problems  []config.Problem `json:"problems"`
	Warnings  []config.Problem `json:"warnings"`
	Cluster   string           `json:"cluster,omitempty"`
	Nodes     int              `json:"nodes,omitempty"`
	Groups    int              `json:"groups,omitempty"`
	Timings   []timing         `json:"timings,omitempty"`
	Failovers []failover       `json:"failovers,omitempty"`
	Fencing   []share          `json:"fencing,omitempty"`
	Placement []placed         `json:"placement,omitempty"`
}

// placed is where a group comes to run by its rules alone, and where it goes when that node is lost.
type placed struct {
	Group     string   `json:"group"`
	Turn      int      `json:"turn"` // it starts after all groups of an earlier one; 0: it runs nowhere
	Node      string   `json:"node,omitempty"`
	Waits     string   `json:"waits,omitempty"` // why nowhere
	With      []string `json:"with,omitempty"`
	Then      string   `json:"then,omitempty"`       // if its node is lost
	ThenWaits string   `json:"then_waits,omitempty"` // why nowhere then
}

// timing is one time that follows from detection_time.
type timing struct {
	Name    string `json:"name"`
	MS      int64  `json:"ms"`
	Meaning string `json:"meaning"`
}

// failover is the worst case of the failover of one node's groups, in its parts.
type failover struct {
	Node     string `json:"node"`
	DetectMS int64  `json:"detect_ms"`
	FenceMS  int64  `json:"fence_ms"`
	StartMS  int64  `json:"start_ms"`
	TotalMS  int64  `json:"total_ms"`
}

// share is what one fence device may take of the time in which its node is to be fenced.
type share struct {
	Node      string `json:"node"`
	Level     int    `json:"level"` // from 1
	Device    string `json:"device"`
	TimeoutMS int64  `json:"timeout_ms"`
	SettleMS  int64  `json:"settle_ms"`
	LevelMS   int64  `json:"level_ms"` // budget of the device's level
	WholeMS   int64  `json:"whole_ms"` // budget of all levels
}

func (c *cli) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Look at a configuration",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("config what: check or diff?") },
	}
	cmd.AddCommand(c.configDiffCommand(), c.configApplyCommand(), &cobra.Command{
		Use:   "check [FILE]",
		Short: "Find everything that is wrong with a configuration file, and show what follows from it",
		Long:  "Find everything that is wrong with a configuration file (" + defaultConfig + " if none is named),\nand show the times that follow from it, with the worst case of a failover. Contacts nobody.",
		Args:  atMostOneArg,
		RunE: func(_ *cobra.Command, args []string) error {
			path := defaultConfig
			if len(args) > 0 {
				path = args[0]
			}
			return c.check(path)
		},
	})
	return cmd
}

func (c *cli) check(path string) error {
	out := checkOutput{Schema: api.Schema, File: path, Problems: []config.Problem{}, Warnings: []config.Problem{}}
	cfg, err := config.Load(path, kinds())
	var problems config.Errors
	switch {
	case errors.As(err, &problems):
		out.Problems = problems
	case err != nil:
		return err
	default:
		out.OK = true
		out.Warnings = append(out.Warnings, cfg.Warnings...)
		out.Cluster, out.Nodes, out.Groups = cfg.Cluster.Name, len(cfg.Nodes), len(cfg.Groups)
		out.Timings, out.Failovers = timings(cfg)
		out.Fencing = shares(cfg)
		var doubts []config.Problem
		out.Placement, doubts = placement(cfg)
		out.Warnings = append(out.Warnings, doubts...)
	}
	if c.json {
		if err := c.printJSON(out); err != nil {
			return err
		}
	} else {
		writeCheck(c.out, out)
	}
	if !out.OK {
		return &outcome{exitFailed, fmt.Sprintf("%s: %s", path, plural(len(out.Problems), "problem"))}
	}
	return nil
}

func writeCheck(w io.Writer, out checkOutput) {
	for _, p := range out.Problems {
		fmt.Fprintln(w, printable(p.String()))
	}
	for _, p := range out.Warnings {
		fmt.Fprintln(w, "warning: "+printable(p.String()))
	}
	if !out.OK {
		return
	}
	fmt.Fprintf(w, "%s is valid: cluster %s, %s, %s\n", printable(out.File), printable(out.Cluster), plural(out.Nodes, "node"), plural(out.Groups, "group"))
	if len(out.Timings) > 0 {
		t := table{{"TIME", "", "MEANING"}}
		for _, x := range out.Timings {
			t.row(x.Name, shortMS(x.MS), x.Meaning)
		}
		fmt.Fprintln(w)
		t.write(w, "")
	}
	writePlacement(w, out.Placement)
	writeShares(w, out.Fencing)
	if len(out.Failovers) > 0 {
		t := table{{"WORST FAILOVER OF", "DETECT", "FENCE", "START", "TOTAL"}}
		for _, f := range out.Failovers {
			t.row(f.Node, shortMS(f.DetectMS), shortMS(f.FenceMS), shortMS(f.StartMS), shortMS(f.TotalMS))
		}
		fmt.Fprintln(w)
		t.write(w, "")
	}
}

// writePlacement lists the groups in the order of their start.
func writePlacement(w io.Writer, all []placed) {
	if len(all) == 0 {
		return
	}
	t := table{{"GROUP", "STARTS", "ON", "WITH", "IF THAT IS LOST"}}
	for _, p := range all {
		turn, node, then := strconv.Itoa(p.Turn)+".", p.Node, p.Then
		if p.Node == "" {
			turn, node = "never", "nowhere"
		} else if then == "" && p.ThenWaits != "" {
			then = "nowhere"
		}
		t.row(p.Group, turn, node, strings.Join(p.With, ", "), then)
	}
	fmt.Fprintln(w)
	t.write(w, "")
}

// writeShares names each node's whole budget once, and each level's.
func writeShares(w io.Writer, shares []share) {
	if len(shares) == 0 {
		return
	}
	t := table{{"FENCING OF", "WHOLE", "LEVEL", "OF LEVEL", "DEVICE", "TIMEOUT", "SETTLE"}}
	var before share
	for _, s := range shares {
		node, whole, level, ofLevel := s.Node, shortMS(s.WholeMS), strconv.Itoa(s.Level), shortMS(s.LevelMS)
		if s.Node == before.Node {
			node, whole = "", ""
			if s.Level == before.Level {
				level, ofLevel = "", ""
			}
		}
		t.row(node, whole, level, ofLevel, s.Device, shortMS(s.TimeoutMS), shortMS(s.SettleMS))
		before = s
	}
	fmt.Fprintln(w)
	t.write(w, "")
}
