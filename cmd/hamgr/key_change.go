package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
)

// keyChangeOutput is what `hamgr key add|use|drop --json` prints.
type keyChangeOutput struct {
	Schema  int      `json:"schema"`
	Change  string   `json:"change"` // add, use or drop
	Key     string   `json:"key"`
	File    string   `json:"file"`
	Keys    []string `json:"keys"`    // of the file now, in its order
	Checked bool     `json:"checked"` // the daemon was asked before
	Against []string `json:"against"` // what --force passed over
	Taken   bool     `json:"taken"`   // the daemon of this host goes by it
	Next    []string `json:"next"`    // what to do, in words
}

// keyChange is one change of this host's key file.
type keyChange struct {
	verb    string
	key     string // of use and drop
	file    string
	force   bool
	timeout time.Duration
}

func (c *cli) keyAddCommand() *cobra.Command {
	k := keyChange{verb: "add"}
	return c.keyChangeCommand(&k, &cobra.Command{
		Use:   "add",
		Short: "Add a fresh key to this host's file, as one that is accepted and not used yet",
		Long: `Add a fresh key to this host's file, as one that is accepted and not used yet. Then copy the file to all other nodes.
Refused (status 5) while a node accepts a key that this file has not.`,
		Args: cobra.NoArgs,
	})
}

func (c *cli) keyUseCommand() *cobra.Command {
	k := keyChange{verb: "use"}
	return c.keyChangeCommand(&k, &cobra.Command{
		Use:   "use KEY",
		Short: "Have this host use a key that every node accepts",
		Long: `Have this host use a key, named by its fingerprint: it becomes the first of the file. Refused (status 5) unless every
node of the cluster says that it accepts it. Do it on every node; in which order is all the same.`,
		Args: oneArg, ValidArgsFunction: completeKey,
	})
}

func (c *cli) keyDropCommand() *cobra.Command {
	k := keyChange{verb: "drop"}
	return c.keyChangeCommand(&k, &cobra.Command{
		Use:   "drop KEY",
		Short: "Remove a key that no node uses from this host's file",
		Long: `Remove a key, named by its fingerprint, from this host's file: from then on nobody is let in with it here. Refused
(status 5) unless every node of the cluster says that it uses another one, which is accepted here; a node that does not answer
may have no other. The key that this host uses is never dropped, not by --force either.`,
		Args: oneArg, ValidArgsFunction: completeKey,
	})
}

func (c *cli) keyChangeCommand(k *keyChange, cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			k.key = args[0]
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), k.timeout)
		defer cancel()
		return c.changeKeys(ctx, *k)
	}
	keyFlags(cmd, &k.file, &k.timeout)
	cmd.Flags().BoolVar(&k.force, "force", false, "do it whatever speaks against it: a node may be cut off, and fenced for that")
	return cmd
}

// completeKey offers the keys of the file.
func completeKey(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	file, _ := cmd.Flags().GetString("key-file")
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	keys, _ := keyFile(or(file, defaultKeyFile)).Keys()
	return keys, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) changeKeys(ctx context.Context, k keyChange) error {
	client := c.client()
	defer client.Close()
	// What is checked is the file as it is now, and so it has to be in force.
	known, err := client.ReloadKeys(ctx)
	switch {
	case api.CodeOf(err) == api.ErrUnreachable && k.force:
		known = api.Keys{}
		c.say("no daemon answers: nothing was checked")
	case api.CodeOf(err) == api.ErrUnreachable:
		return &api.Error{Code: api.ErrUnreachable, Message: "no daemon answers, so nothing can be checked; the file is as it was", Hint: "start hamgr, or give --force to change the file all the same"}
	case err != nil:
		return err
	}
	out := &keyChangeOutput{Schema: api.Schema, Change: k.verb, Key: k.key, Checked: known.Node != ""}
	if out.File, err = whichKeyFile(k.file, known.File); err != nil {
		return err
	}
	if err := c.mayChangeKeys(k, out, known); err != nil {
		return err
	}
	if err := k.do(out); err != nil {
		return err
	}
	if out.Checked {
		if known, err = c.takenOver(ctx, client, out); err != nil {
			return err
		}
	}
	out.Next = k.next(out, known)
	if c.json {
		return c.printJSON(out)
	}
	c.tellKeyChange(out)
	return nil
}

// whichKeyFile is the file to change. That of another daemon would be judged by what this one knows.
func whichKeyFile(given, daemons string) (string, error) {
	if given == "" || daemons == "" {
		return or(given, or(daemons, defaultKeyFile)), nil
	}
	one, err := os.Stat(given)
	if err != nil {
		return "", &api.Error{Code: api.ErrNotFound, Message: err.Error()}
	}
	if other, err := os.Stat(daemons); err != nil || !os.SameFile(one, other) {
		return "", &api.Error{Code: api.ErrInvalid, Message: fmt.Sprintf("the daemon here goes by %s, not by %s", daemons, given), Hint: "--socket names the daemon that goes by it"}
	}
	return daemons, nil
}

// mayChangeKeys refuses what would cut a node off, unless it is forced.
func (c *cli) mayChangeKeys(k keyChange, out *keyChangeOutput, known api.Keys) error {
	keys, err := keyFile(out.File).Keys()
	if err != nil {
		return err
	}
	hint := "hamgr key list shows how far every node is"
	switch at := slices.Index(keys, k.key); {
	case k.verb == "add":
		out.Against = againstAdding(out.File, keys, known.Nodes)
	case at < 0:
		return &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("%s has no key %s", out.File, k.key), Hint: "its keys are " + strings.Join(keys, ", ")}
	case k.verb == "use":
		out.Against = againstUsing(k.key, known.Nodes)
		hint = "copy the file to every node first; " + hint
	case at == 0:
		return &api.Error{Code: api.ErrUnsafe, Message: fmt.Sprintf("%s is the key that this host uses", k.key), Hint: "have another one used first, on every node: hamgr key use"}
	default:
		out.Against = againstDropping(k.key, keys, known.Nodes)
		hint = "have another key used on every node first: hamgr key use; " + hint
	}
	if len(out.Against) > 0 && !k.force {
		return &api.Error{Code: api.ErrUnsafe, Message: strings.Join(out.Against, "\n"), Hint: hint}
	}
	for _, words := range out.Against {
		c.say("passed over: %s", words)
	}
	return nil
}

// do changes the file.
func (k keyChange) do(out *keyChangeOutput) (err error) {
	file := keyFile(out.File)
	switch k.verb {
	case "add":
		out.Key, err = file.Add()
	case "use":
		err = file.Use(k.key)
	case "drop":
		err = file.Drop(k.key)
	}
	if err == nil {
		out.Keys, err = file.Keys()
	}
	if out.Against == nil {
		out.Against = []string{}
	}
	return err
}

// takenOver has the daemon of this host read the changed file.
func (c *cli) takenOver(ctx context.Context, client *api.Client, out *keyChangeOutput) (api.Keys, error) {
	known, err := client.ReloadKeys(ctx)
	if err != nil {
		return known, fmt.Errorf("%s is changed, and the daemon was to take it over: %w", out.File, err)
	}
	for _, n := range known.Nodes {
		if n.Name == known.Node && !slices.Equal(n.Accepts, out.Keys) {
			return known, &api.Error{Code: api.ErrFailed, Message: fmt.Sprintf("%s is changed, but the daemon has not taken it over: %s", out.File, or(n.Trouble, "it goes by "+strings.Join(n.Accepts, ", "))),
				Hint: "hamgr status, and the daemon's log, tell more"}
		}
	}
	out.Taken = true
	return known, nil
}

// next is what to do after that.
func (k keyChange) next(out *keyChangeOutput, known api.Keys) []string {
	others := func(such func(api.NodeKeys) bool) string {
		var names []string
		for _, n := range known.Nodes {
			if n.Name != known.Node && (n.Silent != "" || such(n)) {
				names = append(names, n.Name)
			}
		}
		return strings.Join(names, ", ")
	}
	every := func(api.NodeKeys) bool { return true }
	switch k.verb {
	case "add":
		return []string{
			fmt.Sprintf("copy %s in place of the key file on %s, over a channel that you trust; owner and mode as they are there", out.File, or(others(every), "every other node")),
			"wait until every node accepts it, which takes a few seconds: hamgr key list",
			"on every node, in any order: hamgr key use " + out.Key,
		}
	case "use":
		behind := others(func(n api.NodeKeys) bool { return n.Uses() != out.Key })
		next := []string{}
		if behind != "" || !out.Checked {
			next = append(next, fmt.Sprintf("hamgr key use %s, on %s", out.Key, or(behind, "every other node")))
		}
		for _, old := range out.Keys[1:] {
			next = append(next, "when every node uses it, on every node: hamgr key drop "+old)
		}
		return next
	}
	behind := others(func(n api.NodeKeys) bool { return slices.Contains(n.Accepts, out.Key) })
	if behind == "" && out.Checked {
		return []string{}
	}
	return []string{fmt.Sprintf("hamgr key drop %s, on %s", out.Key, or(behind, "every other node"))}
}

func (c *cli) tellKeyChange(out *keyChangeOutput) {
	did := map[string]string{"add": "is added to", "use": "is now the first of", "drop": "is removed from"}[out.Change]
	fmt.Fprintln(c.out, printable(fmt.Sprintf("%s %s %s", out.Key, did, out.File)))
	switch {
	case out.Taken:
		c.say("the daemon of this host goes by it")
	default:
		c.say("the daemon of this host will go by it when it runs")
	}
	if out.Change == "drop" && len(out.Next) == 0 {
		c.say("no node accepts it any more")
	}
	c.sayNext(out.Next)
}
