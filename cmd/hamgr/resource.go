package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/config"
)

// kindsOutput is what `hamgr resource kinds --json` prints.
type kindsOutput struct {
	Schema int          `json:"schema"`
	Kinds  []listedKind `json:"kinds"`
}

// kindOutput is what `hamgr resource describe KIND --json` prints.
type kindOutput struct {
	Schema  int             `json:"schema"`
	Kind    string          `json:"kind"`
	Program string          `json:"program,omitempty"`
	Doc     string          `json:"doc"`
	Keys    []config.KeyDoc `json:"keys"`
	Common  []config.KeyDoc `json:"common"`
	// Options and Notes are there if a program was asked for.
	Options []kindOption `json:"options,omitempty"`
	Notes   []string     `json:"notes,omitempty"`
	Example string       `json:"example"`
}

// kindOption is a parameter of a program behind a kind.
type kindOption struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Choices  []string `json:"choices,omitempty"`
	Doc      string   `json:"doc"`
}

func (c *cli) resourceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resource",
		Short: "Show the kinds of resources and how they are configured",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usagef("resource what: kinds or describe?") },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "kinds",
		Short: "List the kinds of resources, and the foreign agents that are found on this host",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			out := listKinds()
			if c.json {
				return c.printJSON(out)
			}
			writeKinds(c.out, []string{"KIND", "RUNS"}, out.Kinds)
			return nil
		},
	}, &cobra.Command{
		Use:   "describe KIND[:PROGRAM]",
		Short: "Show the keys of a kind of resource, with an example",
		Long: "Show the keys of a kind of resource, with an example. For a kind that drives foreign agents,\n" +
			"ocf:PROVIDER:TYPE shows the agent's own parameters, as the agent tells them.",
		Args:              oneArg,
		ValidArgsFunction: completeKind,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := describeKind(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.printJSON(out)
			}
			writeKind(c.out, out)
			return nil
		},
	})
	return cmd
}

func listKinds() kindsOutput {
	registry := kinds().Resources
	out := kindsOutput{Schema: api.Schema, Kinds: []listedKind{}}
	for _, name := range registry.Names() {
		k := registry[name]
		out.Kinds = append(out.Kinds, newKind(name, k.Doc, k.Programs))
	}
	return out
}

func describeKind(ctx context.Context, what string) (kindOutput, error) {
	name, _, ofProgram := strings.Cut(what, ":")
	registry := kinds().Resources
	kind, ok := registry[name]
	if !ok {
		return kindOutput{}, &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no kind of resource %q", name),
			Hint: "the kinds are " + strings.Join(registry.Names(), ", ")}
	}
	out := kindOutput{
		Schema: api.Schema, Kind: name, Doc: kind.Doc, Example: kind.Example,
		Keys: config.Describe(kind.Options()), Common: config.DescribeResource(),
	}
	if !ofProgram {
		return out, nil
	}
	if kind.Describe == nil {
		return kindOutput{}, usagef("the kind %s drives no programs: ask for it alone", name)
	}
	d, err := kind.Describe(ctx, what) // a program is called as in the file: ocf:heartbeat:IPaddr2
	if err != nil {
		e := &api.Error{Code: api.ErrFailed, Message: err.Error()}
		if kind.Programs != nil && !slices.Contains(kind.Programs(), what) {
			e.Code, e.Hint = api.ErrNotFound, "it has to be installed on this host; hamgr resource kinds shows what is"
		}
		return kindOutput{}, e
	}
	out.Program, out.Doc, out.Example, out.Notes = d.Program, d.Doc, d.Example, d.Notes
	for _, o := range d.Options {
		out.Options = append(out.Options, kindOption(o))
	}
	return out, nil
}

func writeKind(w io.Writer, out kindOutput) {
	title := out.Kind
	if out.Program != "" {
		title = out.Program
	}
	writeWords(w, strings.Fields(title+": "+out.Doc), "")
	if out.Program == "" {
		fmt.Fprintln(w)
		writeKeys(w, out.Keys)
		fmt.Fprintln(w, "\nKeys of every resource:")
		writeKeys(w, out.Common)
	} else {
		fmt.Fprintln(w)
		for _, n := range out.Notes {
			fmt.Fprintln(w, "note: "+printable(n))
		}
		t := table{{"PARAMETER", "TYPE", "DEFAULT", "NEEDED", "MEANING"}}
		for _, o := range out.Options {
			needed := ""
			if o.Required {
				needed = "yes"
			}
			t.row(o.Name, typeText(o.Type, o.Choices), o.Default, needed, o.Doc)
		}
		t.write(w, "")
	}
	writeExample(w, out.Example)
}

// completeKind offers the kinds, and the programs behind them.
func completeKind(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) == 0 {
		for _, k := range listKinds().Kinds {
			names = append(append(names, k.Name), k.Programs...)
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, begun) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
