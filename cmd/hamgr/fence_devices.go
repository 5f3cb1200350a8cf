package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// fenceTestCommand is in no file named after it: fence_test.go would be a test.
func (c *cli) fenceTestCommand() *cobra.Command {
	var (
		timeout time.Duration
		d       direct
	)
	cmd := &cobra.Command{
		Use:   "test [NODE]",
		Short: "Try the fence devices without changing anything",
		Long: `Have every fence device read by every node that may have to use it: that it answers, that it lets
the account switch, and that it powers the machine that is meant. Nothing is changed. Ends with
status 1 if a device would not do. Whether power is really cut only a rehearsal shows.`,
		Args:              atMostOneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			test, err := c.fenceTest(ctx, d, slices.Concat(args, []string{""})[0])
			if err != nil {
				return err
			}
			if c.json {
				if err := c.printJSON(test); err != nil {
					return err
				}
			} else {
				writeFenceTest(c.out, test)
			}
			return unfit(test)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the devices")
	d.flags(cmd)
	return cmd
}

func (c *cli) fenceTest(ctx context.Context, d direct, node string) (test api.FenceTest, err error) {
	if d.on {
		c.readDirectly()
		defer c.patience("still reading the fence devices")()
		err = d.directly(ctx, func(f fencing) error {
			test, err = f.Test(ctx, node)
			return err
		})
		return test, err
	}
	client := c.client()
	defer client.Close()
	test, err = c.testCluster(ctx, client, node)
	return test, orDirectly(err, strings.TrimSpace("test "+node))
}

// testCluster has the cluster read its devices, and names those that no node read.
func (c *cli) testCluster(ctx context.Context, client *api.Client, node string) (api.FenceTest, error) {
	defer c.patience("still reading the fence devices")()
	test, err := client.FenceTest(ctx, node)
	if err != nil {
		return test, err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return test, fmt.Errorf("which devices there are: %w", err)
	}
	test.Devices = append(test.Devices, unasked(status, test)...)
	return test, nil
}

// unasked are the devices that no node read, because none was there that could, or because an order had
// them: what was not looked at is not well.
func unasked(s api.Status, t api.FenceTest) []api.DeviceHealth {
	var missing []api.DeviceHealth
	for _, n := range s.Nodes {
		if t.Node != "" && n.Name != t.Node {
			continue
		}
		for i, level := range n.Fencing.Levels {
			for _, device := range level {
				read := func(h api.DeviceHealth) bool { return h.Node == n.Name && h.Level == i+1 && h.Device == device }
				if !slices.ContainsFunc(t.Devices, read) {
					missing = append(missing, api.DeviceHealth{
						Node: n.Name, Level: i + 1, Device: device, State: "unknown", Trouble: "not read",
						Error: "no node was there to read it, or it was in use for fencing",
					})
				}
			}
		}
	}
	return missing
}

// patience tells somebody who waits that work goes on, until the returned func is called.
func (c *cli) patience(what string) (over func()) {
	began, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for wait := time.Second; ; wait = 5 * time.Second {
			select {
			case <-time.After(wait):
				c.say("%s (%s)", what, shortMS(time.Since(began).Milliseconds()))
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

func writeFenceTest(w io.Writer, test api.FenceTest) {
	t := table{{"NODE", "LEVEL", "DEVICE", "AGENT", "PLUG", "READ BY", "VERDICT", "POWER", "TOOK", "NOTE"}}
	for _, h := range test.Devices {
		t.row(h.Node, strconv.Itoa(h.Level), h.Device, h.Agent, h.Plug, h.ReadBy, verdict(h), h.State, shortMS(h.TookMS), healthNote(h))
	}
	if len(t) > 1 {
		t.write(w, "")
	}
}

// verdict is one word for a device: what is wrong with it, if anything.
func verdict(h api.DeviceHealth) string {
	switch {
	case h.OK:
		return "ok"
	case h.Trouble != "":
		return h.Trouble
	default:
		return "would not do"
	}
}

// healthNote is the reason, or whom a device that is well says it powers.
func healthNote(h api.DeviceHealth) string {
	id := h.Identity
	switch {
	case h.Error != "":
		return h.Error
	case id.Name != "":
		return "outlet " + id.Name
	case id.UUID != "":
		return "powers " + id.UUID
	case id.Serial != "":
		return "powers serial " + id.Serial
	default:
		return h.Detail
	}
}

// unfit is the error for devices that would not do.
func unfit(t api.FenceTest) error {
	bad := 0
	for _, h := range t.Devices {
		if !h.OK {
			bad++
		}
	}
	switch {
	case len(t.Devices) == 0 && t.Node != "":
		return &outcome{exitFailed, t.Node + " has no fence device"}
	case len(t.Devices) == 0:
		return &outcome{exitFailed, "there is no fence device"}
	case bad > 0:
		return &outcome{exitFailed, fmt.Sprintf("%d of %s found trouble", bad, plural(len(t.Devices), "reading"))}
	}
	return nil
}
