package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
)

var errNotConfirmed = errors.New("not confirmed; nothing was done")

// agree has the operator answer a question with yes.
func (c *cli) agree(ctx context.Context, question string) error {
	fmt.Fprint(c.err, printable(question+" [y/N] "))
	switch text, err := c.answer(ctx); {
	case err != nil:
		return err
	case !strings.EqualFold(text, "y") && !strings.EqualFold(text, "yes"):
		return errNotConfirmed
	}
	return nil
}

// typed has the operator type a name: what it is for cannot be undone by a habit of saying yes.
func (c *cli) typed(ctx context.Context, prompt, name string) error {
	fmt.Fprintf(c.err, "Type %s: ", prompt)
	switch text, err := c.answer(ctx); {
	case err != nil:
		return err
	case text != name:
		return errNotConfirmed
	}
	return nil
}

// answer reads one line. Reading a terminal cannot be cancelled; a reader that is left
// behind ends with the process.
func (c *cli) answer(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(c.in).ReadString('\n')
		line <- text
	}()
	select {
	case text := <-line:
		return strings.TrimSpace(text), nil
	case <-ctx.Done():
		return "", errors.New("no answer; nothing was done")
	}
}

// stakes asks the daemon what is at stake with a node, and tells how far that is to be believed.
func (c *cli) stakes(ctx context.Context, client *api.Client, node string) (string, error) {
	status, err := client.Status(ctx)
	if err != nil {
		return "", err
	}
	if status.Note != "" {
		c.say("%s", status.Note)
	}
	n, err := nodeOf(status, node)
	if err != nil {
		return "", err
	}
	return atStake(status, n), nil
}

// nodeOf finds a node in a status.
func nodeOf(s api.Status, name string) (api.NodeStatus, error) {
	for _, n := range s.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return api.NodeStatus{}, &api.Error{Code: api.ErrNotFound, Message: fmt.Sprintf("no node is named %q", name), Hint: "the nodes are " + strings.Join(names, ", ")}
}

// atStake says in words what a node is and holds.
func atStake(s api.Status, n api.NodeStatus) string {
	words := fmt.Sprintf("%s is %s", n.Name, n.State)
	if n.Coordinator {
		words += " and the coordinator"
	}
	if held := holds(s, n.Name); len(held) > 0 {
		return words + ", and holds " + strings.Join(held, ", ")
	}
	return words + ", and holds no group"
}

// holds are the groups that are granted to a node.
func holds(s api.Status, node string) []string {
	var groups []string
	for _, g := range s.Groups {
		if g.Node == node {
			groups = append(groups, g.Name)
		}
	}
	return groups
}
