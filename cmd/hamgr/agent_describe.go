package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// agentOutput is what `hamgr agent describe AGENT --json` prints.
type agentOutput struct {
	Schema  int             `json:"schema"`
	Agent   string          `json:"agent"`
	Program string          `json:"program,omitempty"`
	Doc     string          `json:"doc"`
	Keys    []config.KeyDoc `json:"keys"`
	Common  []config.KeyDoc `json:"common"`
	Secrets []secretWay     `json:"secrets"`
	// Options and Notes are there if a program was asked for.
	Options []programOption `json:"options,omitempty"`
	Notes   []string        `json:"notes,omitempty"`
	Example string          `json:"example"`
}

// programOption is an option of a program behind an agent.
type programOption struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Doc      string   `json:"doc"`
	Set      bool     `json:"set,omitempty"`
}

// secretWay is one way to give the secret that is called KEY.
type secretWay struct {
	Write string `json:"write"`
	Doc   string `json:"doc"`
}

var secretWays = []secretWay{
	{`KEY_file = "/PATH"`, "a file of its own that only its owner can read; one line end at its end is not part of the secret"},
	{`KEY_env = "NAME"`, "an environment variable of the daemon"},
	{`KEY_credential = "NAME"`, "a systemd credential: LoadCredential=NAME:PATH in the unit"},
	{`KEY = "..."`, "in the configuration itself, where nobody else can read that"},
}

func (c *cli) agentDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe AGENT[:PROGRAM]",
		Short: "Show the keys of a fence agent's devices, with an example",
		Long: "Show the keys of a fence agent's devices, with an example. For an agent that drives foreign\n" +
			"programs, exec:PROGRAM shows the program's own options, as the program tells them.",
		Args:              oneArg,
		ValidArgsFunction: completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := describeAgent(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			writeAgent(c.out, out)
			return nil
		},
	}
}

func describeAgent(ctx context.Context, what string) (agentOutput, error) {
	name, program, ofProgram := strings.Cut(what, ":")
	registry := kinds().Agents
	kind, ok := registry[name]
	if !ok {
		hint := "the agents are " + strings.Join(registry.Names(), ", ")
		if strings.HasPrefix(name, "fence_") {
			hint = "for a fence agent of this host, ask for exec:" + name
		}
		return agentOutput{}, &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no agent %q", name), Hint: hint}
	}
	out := agentOutput{
		Schema: api.Schema, Agent: name, Doc: kind.Doc, Example: kind.Example,
		Keys: config.Describe(kind.Options()), Common: config.DescribeDevice(), Secrets: secretWays,
	}
	if !ofProgram {
		return out, nil
	}
	if kind.Describe == nil {
		return agentOutput{}, usagef("the agent %s drives no programs: ask for it alone", name)
	}
	d, err := kind.Describe(ctx, program)
	if err != nil {
		e := &api.Error{Code: api.ErrFailed, Message: err.Error()}
		if !filepath.IsAbs(program) && kind.Programs != nil && !slices.Contains(kind.Programs(), program) {
			e.Code, e.Hint = api.ErrNotFound, "it has to be installed on this host; hamgr agent list shows what is"
		}
		return agentOutput{}, e
	}
	out.Program, out.Doc, out.Example, out.Notes = d.Program, d.Doc, d.Example, d.Notes
	for _, o := range d.Options {
		out.Options = append(out.Options, programOption(o))
	}
	return out, nil
}

func writeAgent(w io.Writer, out agentOutput) {
	title := out.Agent
	if out.Program != "" {
		title += ":" + out.Program
	}
	writeWords(w, strings.Fields(title+": "+out.Doc), "")
	if out.Program != "" {
		writeOptions(w, out)
	} else {
		fmt.Fprintln(w)
		writeKeys(w, out.Keys)
		fmt.Fprintln(w, "\nKeys of every fence device:")
		writeKeys(w, out.Common)
	}
	fmt.Fprintln(w, "\nA secret KEY is given in one of these ways:")
	var t table
	t.row("WRITE", "WHERE IT IS")
	for _, s := range out.Secrets {
		t.row(s.Write, s.Doc)
	}
	t.write(w, "  ")
	writeExample(w, out.Example)
}

func writeExample(w io.Writer, example string) {
	fmt.Fprintln(w, "\nExample:")
	fmt.Fprintln(w)
	for line := range strings.Lines(example) {
		fmt.Fprintln(w, printable(strings.TrimRight(line, "\n")))
	}
}

func writeOptions(w io.Writer, out agentOutput) {
	if len(out.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range out.Notes {
		fmt.Fprintln(w, "note: "+printable(n))
	}
	t := table{{"OPTION", "TYPE", "DEFAULT", "NEEDED", "MEANING"}}
	for _, o := range out.Options {
		needed := ""
		switch {
		case o.Set:
			needed = "set by hamgr"
		case o.Required:
			needed = "yes"
		}
		t.row(o.Name, typeText(o.Type, o.Choices), o.Default, needed, o.Doc)
	}
	fmt.Fprintln(w, "\nIts options, each written as a string in the table options:")
	t.write(w, "")
}

func writeKeys(w io.Writer, keys []config.KeyDoc) {
	t := table{{"KEY", "TYPE", "DEFAULT", "RANGE", "MEANING"}}
	for _, k := range keys {
		t.row(k.Key, typeText(k.Type, k.Choices), k.Default, strings.Replace(k.Range, "..", " to ", 1), k.Doc)
	}
	t.write(w, "")
}

// typeText says how a value is written.
func typeText(typ string, choices []string) string {
	switch {
	case len(choices) > 0:
		return `"` + strings.Join(choices, `", "`) + `"`
	case typ == "duration":
		return `duration ("1.5s")`
	}
	return typ
}
