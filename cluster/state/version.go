package state

import "fmt"

// The versions of the log's format. A daemon speaks all from Oldest to Version, and a cluster keeps to one that all of
// its daemons speak (State.Format): it is raised by a command of its own, once all of them said that they know
// more. A node refuses what it does not know, and says so: it never applies the rest.
//
//	1  the first
//	2  Away, Leaving, Force; the text of the configuration; the watchdogs' claims and proof (e)
const (
	Oldest  = 1
	Version = 2
)

// Upgrade raises the format of the log. Every daemon of the cluster has to speak it.
type Upgrade struct {
	Version int `json:"version"`
}

// Format is the version to which the cluster keeps now.
func (s *State) Format() int { return max(Oldest, s.Level) }

// Needs gives the lowest version of the format in which the command can be said.
func (c Command) Needs() int {
	switch {
	case c.Away != nil, c.Leaving != nil, c.Force != nil, c.Upgrade != nil:
		return 2
	case c.Configure != nil && (c.Configure.Text != "" || c.Configure.By != "" || c.Configure.TwoNode || c.Configure.From != 0 || c.Configure.LastToken != 0):
		return 2
	case c.ShotProven != nil && c.ShotProven.Kind != "", c.Join != nil && c.Join.Watchdog != nil:
		return 2
	}
	return Oldest
}

// speaks refuses a command that the cluster is not ready for. The upgrade itself is what makes it ready.
func (t *step) speaks(c Command) error {
	if need := c.Needs(); c.Upgrade == nil && need > t.Format() {
		return fmt.Errorf("the command needs version %d of the log's format, the cluster keeps to %d until all nodes know more: %w", need, t.Format(), ErrFormat)
	}
	return nil
}

func (t *step) upgrade(c *Upgrade) error {
	if c.Version <= t.Format() {
		return fmt.Errorf("upgrade to version %d of the log's format: it is at %d: %w", c.Version, t.Format(), ErrSuperseded)
	}
	t.Level = c.Version
	return nil
}
