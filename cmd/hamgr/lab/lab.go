// Package lab shows the ideas behind hamgr, one story each: what goes wrong without a rule, and how the rule holds.
//
// A story is run, not told: bully and ring run the algorithms of the textbooks (package election); quorum, lease, token and
// stonith drive the packages that the daemon is made of, on memory, an in-memory network and fake
// devices. What a story prints is what it saw, so it is the same each time only as long as the rule
// holds; where one does not, the story ends with an error.
package lab

import (
	"context"
	"fmt"
	"slices"
)

// Story is what was shown. Its steps are absent where it was not run.
type Story struct {
	Name      string  `json:"name"`
	Partition bool    `json:"partition,omitempty"` // the same in a network that is cut in two
	Title     string  `json:"title"`
	Rule      Rule    `json:"rule"`
	Scenes    []Scene `json:"scenes,omitempty"`
}

// Rule is the rule of hamgr's design that a story shows.
type Rule struct {
	Name  string   `json:"name"` // S1 to S8, see docs/lab.md
	Title string   `json:"title"`
	Text  string   `json:"text"`
	Read  []string `json:"read"` // where to read on: files of the source
}

// Scene is a part of a story.
type Scene struct {
	Title    string `json:"title"`
	Steps    []Step `json:"steps"`
	Messages int    `json:"messages,omitempty"` // of an election, as its outcome counts them
	Leaders  []int  `json:"leaders,omitempty"`  // of an election: all that lead at the end
	Outcome  string `json:"outcome"`
}

// Step is one thing that happened.
type Step struct {
	Who   string `json:"who"`
	To    string `json:"to,omitempty"`
	What  string `json:"what"`
	Lost  bool   `json:"lost,omitempty"` // a message that nobody got
	Token uint64 `json:"token,omitempty"`
	Text  string `json:"text,omitempty"`
}

// step adds one.
func (s *Scene) step(who, what, format string, args ...any) {
	s.Steps = append(s.Steps, Step{Who: who, What: what, Text: fmt.Sprintf(format, args...)})
}

// wrote adds one under a token.
func (s *Scene) wrote(who, what string, token uint64, format string, args ...any) {
	s.Steps = append(s.Steps, Step{Who: who, What: what, Token: token, Text: fmt.Sprintf(format, args...)})
}

// subject is one story and what runs it.
type subject struct {
	name, title string
	cut         string // title of the same with a cut network; empty: there is none
	rule        Rule
	run         func(ctx context.Context, partition bool) ([]Scene, error)
}

var subjects = []subject{
	{"bully", "the largest ID that answers leads", "two leaders, each the largest that its side can hear", ruleQuorum, bullyStory},
	{"ring", "a message goes round, and the largest ID that it met leads", "two rings, two leaders", ruleQuorum, ringStory},
	{"quorum", "the same cut: the minority elects nobody, the majority does; half is no majority", "", ruleQuorum, quorumStory},
	{"lease", "a holder that pauses, and writes after its lease has expired", "", ruleClocks, leaseStory},
	{"token", "the same pause, and a storage that refuses the older token", "", ruleTokens, tokenStory},
	{"stonith", "a storage that cannot check tokens: power off, read back, then mount", "", ruleProof, stonithStory},
}

// Stories lists them all, without running them, in the order in which they build upon each other.
func Stories() []Story {
	var all []Story
	for _, s := range subjects {
		all = append(all, s.story(false))
	}
	return all
}

// All runs them all, also those with a cut network.
func All(ctx context.Context) ([]Story, error) {
	var all []Story
	for _, s := range subjects {
		for _, partition := range []bool{false, true} {
			if partition && !s.cuts() {
				continue
			}
			story, err := Run(ctx, s.name, partition)
			if err != nil {
				return nil, err
			}
			all = append(all, story)
		}
	}
	return all, nil
}

// Cuts tells whether a story can be run in a cut network.
func Cuts(name string) bool {
	i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
	return i >= 0 && subjects[i].cuts()
}

// Run runs one. An error means that it could not be shown, or that the rule did not hold.
func Run(ctx context.Context, name string, partition bool) (Story, error) {
	i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
	if i < 0 || partition && !subjects[i].cuts() {
		return Story{}, fmt.Errorf("lab: no story %q (partition: %v)", name, partition)
	}
	story := subjects[i].story(partition)
	scenes, err := subjects[i].run(ctx, partition)
	if err != nil {
		return Story{}, fmt.Errorf("lab %s: %w", name, err)
	}
	story.Scenes = scenes
	return story, nil
}

func (s subject) cuts() bool { return s.cut != "" }

func (s subject) story(partition bool) Story {
	story := Story{Name: s.name, Partition: partition, Title: s.title, Rule: s.rule}
	if partition {
		story.Title = s.cut
	}
	return story
}
