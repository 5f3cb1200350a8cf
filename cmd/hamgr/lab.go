package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cmd/hamgr/lab"
)

// labOutput is what `hamgr lab --json` prints, with or without a story.
type labOutput struct {
	Schema  int         `json:"schema"`
	Stories []lab.Story `json:"stories"`
}

func (c *cli) labCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Show the ideas behind hamgr, step by step, in a second each: elections, quorum, leases, tokens, fencing",
		Long: `Show the ideas behind hamgr, step by step, in a second each: what goes wrong without a rule, and how the rule holds.
Nothing outside of this process is touched. Without a story: the list of them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !all {
				return c.listStories(lab.Stories())
			}
			stories, err := lab.All(cmd.Context())
			if err != nil {
				return err
			}
			return c.tellStories(stories)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "run them all, also with the network cut in two")
	for _, s := range lab.Stories() {
		cmd.AddCommand(c.storyCommand(s))
	}
	return cmd
}

// storyCommand runs one story.
func (c *cli) storyCommand(s lab.Story) *cobra.Command {
	var partition bool
	cmd := &cobra.Command{
		Use:   s.Name,
		Short: strings.ToUpper(s.Title[:1]) + s.Title[1:],
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			story, err := lab.Run(cmd.Context(), s.Name, partition)
			if err != nil {
				return err
			}
			return c.tellStories([]lab.Story{story})
		},
	}
	if lab.Cuts(s.Name) {
		cmd.Flags().BoolVar(&partition, "partition", false, "the same in a network that is cut in two")
	}
	return cmd
}

func (c *cli) listStories(stories []lab.Story) error {
	if c.json {
		return c.printJSON(labOutput{Schema: api.Schema, Stories: stories})
	}
	t := table{{"STORY", "SHOWS", "RULE"}}
	for _, s := range stories {
		t.row(s.Name, s.Title, s.Rule.Name+" "+s.Rule.Title)
	}
	t.write(c.out, "")
	fmt.Fprintln(c.out, "\nhamgr lab STORY tells one, hamgr lab --all all of them; bully and ring have --partition")
	return nil
}

func (c *cli) tellStories(stories []lab.Story) error {
	if c.json {
		return c.printJSON(labOutput{Schema: api.Schema, Stories: stories})
	}
	for i, s := range stories {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		if err := s.WriteText(c.out); err != nil {
			return fmt.Errorf("write the story: %w", err)
		}
	}
	return nil
}
