package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// diffOutput is what `hamgr config diff --json` prints.
type diffOutput struct {
	Schema  int             `json:"schema"`
	Old     string          `json:"old"` // what would be replaced
	New     string          `json:"new"`
	Same    bool            `json:"same"`
	Changes []config.Change `json:"changes"`
	Refused []objection     `json:"refused"`
	// Warnings are what is allowed but doubtful.
	Warnings []objection `json:"warnings"`
	// Judged says that the state of the cluster was looked at too.
	Judged bool `json:"judged"`
}

// objection is what speaks against a change.
type objection = config.Objection

// text is a configuration as it was written, with the name by which messages call it.
type text struct {
	name  string
	data  []byte
	index uint64 // of the log entry that holds it; 0: a file
}

func (c *cli) configDiffCommand() *cobra.Command {
	against := ""
	cmd := &cobra.Command{
		Use:   "diff [FILE]",
		Short: "Show what a configuration file changes, and what each change does",
		Long: "Show what a configuration file (" + defaultConfig + " if none is named) changes in what the cluster goes by,\n" +
			"what each change does when it is applied, and what speaks against it. Changes nothing. Status 0: no difference;\n1: there is one.",
		Args: atMostOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			path := defaultConfig
			if len(args) > 0 {
				path = args[0]
			}
			return c.diff(cmd.Context(), path, against)
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "the file to compare with, in place of the running cluster's configuration")
	return cmd
}

func (c *cli) diff(ctx context.Context, path, against string) error {
	before, err := c.before(ctx, against)
	if err != nil {
		return err
	}
	data, err := readConfig(path)
	if err != nil {
		return err
	}
	out, err := difference(before, text{name: path, data: data})
	if err != nil {
		return err
	}
	if against == "" && !out.Same && len(out.Refused) == 0 { // what must not leave this host is refused already
		c.judge(ctx, out, before.index, data)
	}
	if c.json {
		err = c.printJSON(out)
	} else {
		writeDiff(c.out, out)
	}
	if err == nil && !out.Same {
		return &outcome{status: exitFailed}
	}
	return err
}

// before is what would be replaced: a file, or what the cluster goes by.
func (c *cli) before(ctx context.Context, against string) (text, error) {
	if against != "" {
		data, err := readConfig(against)
		return text{name: against, data: data}, err
	}
	now, err := c.client().Configuration(ctx)
	if err != nil {
		return text{}, err
	}
	if now.Text == "" {
		return text{}, &api.Error{Code: api.ErrUnsafe, Message: "the cluster keeps no configuration yet: " + now.Note, Hint: "hamgr config diff FILE --against FILE2 compares two files"}
	}
	return text{name: config.CommittedName(now.Index), data: []byte(now.Text), index: now.Index}, nil
}

// judge asks the cluster what, as it is now, speaks against the change. Without an answer the rest still stands.
func (c *cli) judge(ctx context.Context, out *diffOutput, from uint64, data []byte) {
	verdict, err := c.client().Apply(ctx, api.ApplyRequest{Text: string(data), From: from, By: operator(), DryRun: true})
	if err != nil {
		c.say("hamgr: the cluster did not judge it: %s", api.AsError(err).Message)
		return
	}
	out.Judged, out.Refused, out.Warnings = true, objections(verdict.Refused), objections(verdict.Warnings)
}

// objections are those that the cluster made.
func objections(from []api.Objection) []objection {
	all := []objection{}
	for _, o := range from {
		all = append(all, objection{Key: o.Key, Msg: o.Message, Cure: o.Cure})
	}
	return all
}

// readConfig reads a file that is to be compared.
func readConfig(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, invalid(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, config.MaxSize+1))
	if err != nil {
		return nil, invalid(err)
	}
	return data, nil
}

// invalid is the end for a configuration that cannot be used.
func invalid(err error) error {
	e := &api.Error{Code: api.ErrInvalid, Message: err.Error()}
	if problems := (config.Errors)(nil); errors.As(err, &problems) && len(problems) > 0 {
		e.Hint = "hamgr config check " + problems[0].File
	}
	return e
}

// difference compares two texts, and says what speaks against the change whatever the state of the cluster.
func difference(before, after text) (*diffOutput, error) {
	var cfg [2]*config.Config
	for i, t := range []text{before, after} {
		var err error
		if cfg[i], err = config.Parse(t.name, t.data, kinds()); err != nil {
			return nil, invalid(err)
		}
	}
	out := &diffOutput{Schema: api.Schema, Old: before.name, New: after.name, Changes: []config.Change{}, Refused: []objection{}, Warnings: []objection{}}
	out.Changes = append(out.Changes, config.Diff(cfg[0], cfg[1])...)
	out.Same = len(out.Changes) == 0
	if !out.Same {
		verdict := config.Judge(cfg[0], cfg[1], nil)
		out.Refused, out.Warnings = append(out.Refused, verdict.Refused...), append(out.Warnings, verdict.Warnings...)
	}
	return out, nil
}

// writeDiff writes one change a line, below the table that it is of.
func writeDiff(w io.Writer, out *diffOutput) {
	if out.Same {
		fmt.Fprintln(w, printable(fmt.Sprintf("%s means the same as %s", out.New, out.Old)))
		return
	}
	table := ""
	for _, change := range out.Changes {
		if t := change.Table(); t != table {
			table = t
			fmt.Fprintln(w, printable(t)+":")
		}
		fmt.Fprintln(w, "  "+printable(change.String()+"; "+change.Effect))
	}
	for _, o := range out.Warnings {
		fmt.Fprintln(w, "warning: "+printable(o.String()))
	}
	for _, o := range out.Refused {
		fmt.Fprintln(w, "refused: "+printable(o.String()))
	}
	if !out.Judged {
		fmt.Fprintln(w, "The state of a cluster was not looked at: it may speak against more.")
	}
}
