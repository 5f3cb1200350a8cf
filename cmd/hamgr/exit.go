package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
)

// The exit statuses, the same for every verb; `guard` passes its command's status on.
const (
	exitDone          = 0
	exitFailed        = 1
	exitUsage         = 2 // wrong command line; for `run`, wrong configuration too
	exitUnreachable   = 3 // no daemon answers
	exitNoCoordinator = 4 // or no quorum
	exitUnsafe        = 5 // refused, nothing was done
	exitNotFound      = 6
	exitUnknown       = 7 // timed out, or the outcome is not known
)

// usageError is a command line that is wrong.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// outcome is the end of a command that has printed its data already and still did not
// end well. Its text is talk, also under --json.
type outcome struct {
	status int
	text   string // may be empty
}

func (o *outcome) Error() string { return o.text }

// end tells of an error, once, and gives the exit status.
func (c *cli) end(err error) int {
	if err == nil {
		return exitDone
	}
	if o := (*outcome)(nil); errors.As(err, &o) {
		if o.text != "" {
			c.say("hamgr: %s", o.text)
		}
		return o.status
	}
	e := api.AsError(err)
	if u := (*usageError)(nil); errors.As(err, &u) {
		e.Code = api.ErrInvalid
		if e.Hint == "" {
			e.Hint = "see " + or(c.help, "hamgr help")
		}
	}
	if c.json {
		c.out.Write(api.EncodeError(e))
	} else {
		for line := range strings.Lines(strings.TrimSpace(e.Message)) {
			c.say("hamgr: %s", strings.TrimSpace(line))
		}
		if e.Hint != "" {
			c.say("hint: %s", e.Hint)
		}
	}
	return statusOf(e.Code)
}

func statusOf(code api.Code) int {
	switch code {
	case api.ErrInvalid:
		return exitUsage
	case api.ErrUnreachable:
		return exitUnreachable
	case api.ErrNoCoordinator, api.ErrNoQuorum:
		return exitNoCoordinator
	case api.ErrUnsafe:
		return exitUnsafe
	case api.ErrNotFound:
		return exitNotFound
	case api.ErrTimeout, api.ErrUnknownOutcome:
		return exitUnknown
	default:
		return exitFailed
	}
}
