package exec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

var (
	errClosed = errors.New("closed")
	// errFailed: the agent ended with another status than success, and its words tell no more.
	errFailed = errors.New("the agent reports a failure")
)

// sayings are messages of the fence agents, of their library (fencing.py, fail and _validate_input)
// and of the programs that they call, with what they mean for sure. In lower case; the first that
// occurs counts. A message that may mean several things has no sentinel that would end the attempts.
var sayings = []struct {
	text string
	is   error
	note string
}{
	{text: "correct privileges", is: agents.ErrPrivilege},
	{text: "insufficient privilege", is: agents.ErrPrivilege},
	{text: "you have to", is: agents.ErrUnfit},
	{text: "unrecognised action", is: agents.ErrUnfit},
	{text: "is not a valid", is: agents.ErrUnfit},
	{text: "unable to run", is: agents.ErrUnfit},
	{text: "command was not found", is: agents.ErrUnfit},
	{text: "no module named", is: agents.ErrUnfit},
	{text: "modulenotfounderror", is: agents.ErrUnfit},
	{text: "can not find vm uuid", is: agents.ErrPlug},
	{text: "authentication failure", is: agents.ErrCredentials},
	{text: "authentication failed", is: agents.ErrCredentials},
	{text: "unknown user name", is: agents.ErrCredentials},
	{text: "permission denied (", is: agents.ErrCredentials},
	{text: "401 unauthorized", is: agents.ErrCredentials},
	{text: "unable to connect/login", is: agents.ErrUnreachable, note: "or the credentials are wrong: the agent does not tell"},
	{text: "no response from", is: agents.ErrUnreachable, note: "or the community is wrong: SNMP answers that with silence"},
	{text: "connection timed out", is: agents.ErrUnreachable},
	{text: "connection lost", is: agents.ErrUnreachable},
	{text: "connection refused", is: agents.ErrUnreachable},
	{text: "no route to host", is: agents.ErrUnreachable},
	{text: "network is unreachable", is: agents.ErrUnreachable},
	{text: "could not resolve", is: agents.ErrUnreachable},
	{text: "failed to connect to", is: agents.ErrUnreachable},
}

// refusal is the error for a run that did not succeed. Its words are the agent's, without secrets.
func (r result) refusal(c censor) error {
	said := c.say(r.stderr)
	if said == "" {
		said = c.say(r.stdout)
	}
	ending := r.ending
	if said != "" {
		ending += ": " + said
	}
	words := strings.ToLower(r.stderr + "\n" + r.stdout)
	for _, s := range sayings {
		if !strings.Contains(words, s.text) {
			continue
		}
		if s.note != "" {
			return fmt.Errorf("%w (%s): %s", s.is, s.note, ending)
		}
		return fmt.Errorf("%w: %s", s.is, ending)
	}
	return fmt.Errorf("%w: %s", errFailed, ending)
}

// fail names what was being done and to whom, and lets an ended context win over what
// the broken-off run reported.
func (a *agent) fail(ctx context.Context, doing, plug string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", ended, err)
	}
	if plug != "" {
		doing += fmt.Sprintf(" of plug %q", plug)
	}
	return fmt.Errorf("%s: %s: %w", a.opts.Command, doing, err)
}
