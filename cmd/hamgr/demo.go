package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cmd/hamgr/demo"
)

// newDemoCommand is `hamgr demo`.
func newDemoCommand() *cobra.Command {
	var scenario string
	opts := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "show a failover on this host, without root: three nodes, one fails, another takes over",
		Long:  demoHelp(),
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.Scenario, err = demo.FindScenario(scenario); err != nil {
				return &usageError{err}
			}
			if d := opts.DetectionTime; d < 500*time.Millisecond || d > time.Minute {
				return usagef("--detection-time %s: it must be from 500ms to 1m", d)
			}
			asJSON, err := cmd.Flags().GetBool("json")
			if err != nil {
				return err
			}
			return runDemo(cmd, opts, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&scenario, "scenario", demo.Scenarios[0].Name, "how the node fails: "+strings.Join(demo.ScenarioNames(), ", "))
	flags.DurationVar(&opts.DetectionTime, "detection-time", time.Second, "the cluster's detection_time")
	flags.BoolVar(&opts.Keep, "keep", false, "leave the folder with the configuration, the logs and the ledger")
	cmd.AddCommand(newDemoWriterCommand())
	return cmd
}

func demoHelp() string {
	var b strings.Builder
	b.WriteString("Starts three nodes as processes on loopback addresses, a BMC simulator for each, and one group that\n" +
		"writes to a shared ledger. Then the node that runs the group fails, and the others take over. Whether two\n" +
		"nodes ever wrote at once is read from the ledger. Nothing is left behind.\n\nScenarios:\n")
	for _, s := range demo.Scenarios {
		b.WriteString("  " + s.Name + strings.Repeat(" ", 13-len(s.Name)) + s.Doc + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

// runDemo is done with a signal only when everything is cleaned up: a second one does not end it, and neither
// does a reader of the output that went away.
func runDemo(cmd *cobra.Command, opts demo.Options, asJSON bool) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Writing to a closed pipe is an error then, and no longer the end of the process (os/signal, SIGPIPE).
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	exe, err := os.Executable()
	if err != nil {
		return err
	}
	opts.Executable, opts.Parent = exe, demo.DefaultParent()
	talk, write := cmd.OutOrStdout(), demo.Report.WriteText
	if asJSON {
		talk, write = cmd.ErrOrStderr(), demo.Report.WriteJSON
	}
	opts.Progress = &audience{w: talk, left: cancel}
	report := demo.Run(ctx, opts)
	if err := write(report, cmd.OutOrStdout()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if !report.OK {
		return &outcome{status: exitFailed, text: "demo: " + strings.Join(report.Wrong, "; ")}
	}
	return nil
}

// audience is who watches the progress. When it has left, the demo ends.
type audience struct {
	w    io.Writer
	left func()
}

func (a *audience) Write(p []byte) (int, error) {
	n, err := a.w.Write(p)
	if err != nil {
		a.left()
	}
	return n, err
}

// newDemoWriterCommand is what the demo's group runs.
func newDemoWriterCommand() *cobra.Command {
	var w demo.Writer
	cmd := &cobra.Command{
		Use:    "writer",
		Short:  "the service of the demo: writes to its ledger through the token guard",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if w.Ledger == "" || w.Guard == "" || w.Refused == "" {
				return &usageError{errors.New("hamgr demo starts this itself")}
			}
			return w.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&w.Ledger, "ledger", "", "file to append to")
	cmd.Flags().StringVar(&w.Refused, "refused", "", "file for the writes that the guard refused")
	cmd.Flags().StringVar(&w.Guard, "guard", "", "folder of the guard's records")
	cmd.Flags().BoolVar(&w.Stubborn, "stubborn", false, "go on after a refusal")
	return cmd
}
