package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/node"
	"github.com/hamgr/hamgr/stonith/watchdog"
)

// watchdogOutput is what `hamgr watchdog status --json` prints. Times are milliseconds.
type watchdogOutput struct {
	Schema     int      `json:"schema"`
	Node       string   `json:"node"`
	Configured string   `json:"configured"`
	Device     string   `json:"device,omitempty"`
	Identity   string   `json:"identity,omitempty"`
	Driver     string   `json:"driver,omitempty"`
	State      string   `json:"state,omitempty"`
	Options    []string `json:"options,omitempty"`
	TimeoutMS  int64    `json:"timeout_ms,omitempty"`
	LeftMS     int64    `json:"left_ms,omitempty"`
	NoWayOut   bool     `json:"nowayout"`
	LastBoot   []string `json:"last_boot,omitempty"`
	Holder     string   `json:"holder,omitempty"`
	WantedMS   int64    `json:"wanted_timeout_ms"`
	ExpiryMS   int64    `json:"expiry_ms"`
	Test       string   `json:"test"`
	TestWhy    string   `json:"test_why,omitempty"`
	TestAt     string   `json:"test_at,omitempty"`
	Notices    []string `json:"notices"`
}

// watchdogPlace is whose watchdog is meant.
type watchdogPlace struct {
	configPath, node, dataDir string

	config *config.Config
	dog    string // as configured
	timing watchdog.Timing
	boot   string
}

func (c *cli) watchdogCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watchdog",
		Short: "Look at this host's hardware watchdog, or test that it resets the host",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("watchdog what: status or test?") },
	}
	cmd.AddCommand(c.watchdogStatusCommand(), c.watchdogTestCommand())
	return cmd
}

func (p *watchdogPlace) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.configPath, "config", defaultConfig, "the configuration file")
	cmd.Flags().StringVar(&p.node, "node", "", "this host's node; by default its host name")
	cmd.Flags().StringVar(&p.dataDir, "data-dir", "", "where the test is recorded; by default data_dir of the configuration")
}

// find reads the configuration.
func (p *watchdogPlace) find() error {
	var err error
	if p.config, err = config.Load(p.configPath, kinds()); err != nil {
		return &usageError{err}
	}
	if p.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("host name: %w", err)
		}
		short, _, _ := strings.Cut(name, ".")
		p.node = strings.ToLower(short)
	}
	n, ok := p.config.Node(p.node)
	if !ok {
		return &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no node is named %q", p.node), Hint: "name this host's node with --node; the nodes are " + strings.Join(p.config.NodeNames(), ", ")}
	}
	if p.dataDir == "" {
		p.dataDir = p.config.Cluster.DataDir
	}
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("boot ID: %w", err)
	}
	p.boot, p.dog = strings.TrimSpace(string(b)), n.Watchdog
	p.timing = node.WatchdogTiming(p.config)
	return nil
}

func (c *cli) watchdogStatusCommand() *cobra.Command {
	var place watchdogPlace
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show this host's watchdog, and when it was last seen to work",
		Long:  "Show this host's watchdog, and when it was last seen to work. The device is not opened, because that would arm it.",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := place.find(); err != nil {
				return err
			}
			out, err := place.status()
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			c.writeWatchdog(out)
			return nil
		},
	}
	place.flags(cmd)
	return cmd
}

func (p *watchdogPlace) status() (watchdogOutput, error) {
	out := watchdogOutput{Schema: api.Schema, Node: p.node, Configured: p.dog, Notices: []string{},
		WantedMS: p.timing.Timeout.Milliseconds(), ExpiryMS: p.timing.Expiry.Milliseconds()}
	if p.dog == config.WatchdogOff || p.dog == config.WatchdogFake {
		out.Test, out.TestWhy = "untested", "there is nothing to test"
		return out, nil
	}
	id, err := watchdog.Identify(p.dog)
	if err != nil {
		return out, &api.Error{Code: api.ErrFailed, Message: err.Error(), Hint: "is the driver loaded? See docs/watchdog.md"}
	}
	out.Device, out.Identity, out.Driver, out.State = id.Device, id.Name, id.Driver, id.State
	out.Options, out.LastBoot, out.NoWayOut = watchdog.Flags(id.Options), watchdog.Flags(id.BootStatus), id.NoWayOut
	out.TimeoutMS, out.LeftMS = id.Timeout.Milliseconds(), id.TimeLeft.Milliseconds()
	out.Notices = append(out.Notices, watchdog.Notices(id)...)
	if h, ok := watchdog.FindHolder("/proc", p.dog); ok {
		out.Holder = h.String()
	}
	test, err := watchdog.Tested(p.dataDir, p.boot, id)
	if err != nil {
		out.Notices = append(out.Notices, err.Error())
	}
	out.Test, out.TestWhy = or(test.Verdict, "untested"), test.Why
	if !test.At.IsZero() {
		out.TestAt = test.At.Format(time.RFC3339)
	}
	return out, nil
}

func (c *cli) writeWatchdog(o watchdogOutput) {
	t := table{{"WATCHDOG OF " + o.Node, o.Configured}}
	row := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	row("identity", o.Identity)
	row("driver", o.Driver)
	row("state", o.State)
	row("held by", o.Holder)
	row("options", strings.Join(o.Options, ", "))
	if o.TimeoutMS > 0 {
		row("timeout now", shortMS(o.TimeoutMS))
	}
	if o.LeftMS > 0 {
		row("time left", shortMS(o.LeftMS))
	}
	row("timeout when armed by hamgr", shortMS(o.WantedMS))
	row("certainly reset after", shortMS(o.ExpiryMS))
	row("reason of the last boot", strings.Join(o.LastBoot, ", "))
	row("test", o.Test)
	row("", o.TestWhy)
	row("begun", o.TestAt)
	t.write(c.out, "")
	for _, n := range o.Notices {
		fmt.Fprintln(c.out, "notice: "+printable(n))
	}
}

// empty sees to it that this host holds nothing, and gets nothing while its watchdog is tested.
func (c *cli) empty(ctx context.Context, p watchdogPlace) error {
	for _, run := range []string{"/run/hamgr", filepath.Join(p.dataDir, "run")} {
		held, err := os.ReadDir(filepath.Join(run, "boots", p.boot, "held"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("what this host holds: %w", err)
		}
		if len(held) > 0 {
			return unsafe(p.node, "something of "+strings.TrimSuffix(held[0].Name(), ".json")+" was started here, and is not proven stopped")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	client := c.client()
	defer client.Close()
	status, err := client.Status(ctx)
	if errors.Is(err, api.ErrUnreachable) {
		return nil // no daemon, so that nothing is started
	}
	if err != nil {
		return err
	}
	if status.Node != p.node {
		return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("this host is node %s, not %s; nothing was done", status.Node, p.node)}
	}
	n, err := nodeOf(status, p.node)
	switch held := holds(status, p.node); {
	case err != nil:
		return err
	case len(held) > 0:
		return unsafe(p.node, "it holds "+strings.Join(held, ", "))
	case !n.Standby:
		return unsafe(p.node, "it is not on standby, and may be given a group at any time")
	}
	return nil
}

func unsafe(node, why string) error {
	return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("the watchdog of %s is not tested: %s", node, why), Hint: "hamgr node standby " + node + ", and wait until it holds nothing"}
}
