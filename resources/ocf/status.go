package ocf

import (
	"fmt"

	"github.com/hamgr/hamgr/resources"
)

// The exit statuses of agents (API 1.1, Exit Status Codes).
const (
	success          = 0
	generic          = 1
	wrongArguments   = 2
	unimplemented    = 3
	noPermission     = 4
	notInstalled     = 5
	notConfigured    = 6
	notRunning       = 7
	runningPromoted  = 8
	failedPromoted   = 9
	degraded         = 190
	degradedPromoted = 191
)

// meanings are the statuses in words. 192 and above are the cluster managers' own, and no agent's.
var meanings = map[int]string{
	success: "success", generic: "failed", wrongArguments: "wrong parameters", unimplemented: "not implemented",
	noPermission: "lacks a privilege", notInstalled: "something is not installed", notConfigured: "wrong configuration",
	notRunning: "not running", runningPromoted: "runs promoted", failedPromoted: "failed while promoted",
	degraded: "runs, degraded", degradedPromoted: "runs promoted, degraded",
}

// result is what a run of an agent that ended by itself has left.
type result struct {
	status  int    // exit status; -1 if a signal ended it
	ending  string // in words
	stdout  string
	cut     bool // stdout was longer
	stderr  string
	secrets []string // not to be repeated
}

func describeEnding(status int, words string) string {
	if m := meanings[status]; m != "" {
		return fmt.Sprintf("%s (exit status %d)", m, status)
	}
	return words
}

// state is what a monitor's status means. Only 7 says that nothing is here. That something runs promoted was
// nobody's order, so it has to be stopped. Every status that a monitor should not end with leaves it open.
func (r result) state() (resources.State, string, error) {
	switch r.status {
	case success:
		return resources.Active, "runs", nil
	case degraded:
		return resources.Active, r.says(), nil
	case notRunning:
		return resources.Inactive, "not running", nil
	case generic, runningPromoted, failedPromoted, degradedPromoted:
		return resources.Failed, r.says(), nil
	}
	return resources.Unknown, "", r.err()
}

// err is the error of an action that did not succeed, with whose fault it is if the status tells.
func (r result) err() error {
	switch r.status {
	case wrongArguments, unimplemented, notConfigured:
		return fmt.Errorf("%w: %s", resources.ErrSetup, r.says())
	case noPermission, notInstalled:
		return fmt.Errorf("%w: %s", resources.ErrNode, r.says())
	}
	return fmt.Errorf("%s", r.says())
}

// refused are the statuses of a start that did not even begin.
func (r result) refused() bool { return r.status >= wrongArguments && r.status <= notConfigured }
