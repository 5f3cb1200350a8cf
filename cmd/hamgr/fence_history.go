package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

func (c *cli) fenceHistoryCommand() *cobra.Command {
	var (
		verbose bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:               "history [NODE]",
		Short:             "Show the fencing operations that the cluster remembers, newest first",
		Args:              atMostOneArg,
		ValidArgsFunction: c.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			client := c.client()
			defer client.Close()
			history, err := client.FenceHistory(ctx, slices.Concat(args, []string{""})[0])
			switch {
			case err != nil:
				return err
			case c.json:
				return c.printJSON(history)
			case verbose:
				writeStories(c.out, history, time.Local)
			default:
				writeHistory(c.out, history, time.Local)
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "each attempt, device by device")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the daemon")
	return cmd
}

// writeHistory prints a line an operation.
func writeHistory(w io.Writer, h api.FenceHistory, zone *time.Location) {
	if len(h.Operations) == 0 {
		fmt.Fprintln(w, "no fencing is remembered")
		return
	}
	t := table{{"FENCING", "WHEN", "NODE", "ACTION", "RESULT", "TOOK", "ASKED BY", "EXECUTOR", "WHY, AND HOW IT ENDED"}}
	for _, o := range h.Operations {
		t.row(number(o.Op), at(o.StartedAt, zone), o.Node, action(o), o.Phase, shortMS(o.TookMS), askedBy(o), o.Executor, brief(operationNote(o)))
	}
	t.write(w, "")
}

// writeStories prints each operation at length.
func writeStories(w io.Writer, h api.FenceHistory, zone *time.Location) {
	if len(h.Operations) == 0 {
		fmt.Fprintln(w, "no fencing is remembered")
	}
	for i, o := range h.Operations {
		if i > 0 {
			fmt.Fprintln(w)
		}
		line := func(indent, format string, args ...any) {
			fmt.Fprintln(w, indent+printable(fmt.Sprintf(format, args...)))
		}
		line("", "operation %d: %s %s, %s", o.Op, action(o), o.Node, o.Phase)
		line("  ", "%s, took %s, asked by %s", orNever(at(o.StartedAt, zone)), shortMS(o.TookMS), askedBy(o))
		for _, fact := range [][2]string{{"boot", o.Boot}, {"executor", o.Executor}, {"reason", o.Reason}, {"proof", o.Proof}, {"note", o.Note}, {"waits", o.Waits}, {"error", o.Error}} {
			if fact[1] != "" {
				line("  ", "%-9s %s", fact[0], fact[1])
			}
		}
		for n, a := range o.Attempts {
			writeAttempt(line, n+1, a, zone)
		}
	}
}

func writeAttempt(line func(indent, format string, args ...any), n int, a api.FenceAttempt, zone *time.Location) {
	result := "proven off"
	if !a.Proven {
		result = strings.TrimSuffix("failed: "+a.Error, ": ")
	}
	line("  ", "attempt %d, ended %s, by %s: %s", n, orNever(at(a.At, zone)), orNobody(a.Executor), result)
	for _, d := range a.Devices {
		line("    ", "level %d, %s: %s", d.Level, strings.TrimSpace(d.Device+" "+d.Plug), deviceResult(d))
	}
	for _, o := range a.Opinions {
		line("    ", "second opinion: %s", o)
	}
}

// deviceResult tells what was done at one plug and what came of it.
func deviceResult(d api.DeviceResult) string {
	words := d.State
	if d.Detail != "" {
		words += " (" + d.Detail + ")"
	}
	switch {
	case d.WasOff:
		words += ", was off before"
	case d.Commands == 0:
		words += ", nothing sent"
	default:
		words += ", " + plural(d.Commands, "command")
	}
	words += ", " + shortMS(d.TookMS)
	if d.Trouble != "" {
		words += ", " + d.Trouble
	}
	if d.Error != "" {
		words += ": " + d.Error
	}
	return words
}

// action names a rehearsal with its level.
func action(o api.Operation) string {
	if o.Level > 0 {
		return fmt.Sprintf("%s level %d", o.Action, o.Level)
	}
	return o.Action
}

func askedBy(o api.Operation) string { return or(o.By, "cluster") }

func orNever(s string) string  { return or(s, "at an unknown time") }
func orNobody(s string) string { return or(s, "nobody") }

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// brief cuts what would fill lines of a table; hamgr fence history -v has all of it.
func brief(text string) string {
	const enough = 240
	if runes := []rune(text); len(runes) > enough {
		return string(runes[:enough-1]) + "…"
	}
	return text
}

// operationNote is all that was said about an operation, each thing once: a proof may quote the reason.
func operationNote(o api.Operation) string {
	waits := o.Waits
	if waits != "" {
		waits = "WAITS: " + waits
	}
	said := []string{waits, o.Reason, o.Proof, o.Note, o.Error}
	var notes []string
	for i, text := range said {
		again := func(other string) bool { return strings.Contains(other, text) }
		if text != "" && !slices.ContainsFunc(said[i+1:], again) {
			notes = append(notes, text)
		}
	}
	return strings.Join(notes, "; ")
}
