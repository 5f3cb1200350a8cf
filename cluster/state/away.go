package state

import "fmt"

// maxAway bounds, in milliseconds, for how long a daemon may say that it will be away: for that time its host could
// die unnoticed.
const maxAway = 60_000

// Away says that a node's daemon restarts, leaves what it holds as it is, and for how long at most. The
// node is not missed for that time.
type Away struct {
	Node    string `json:"node"`
	Boot    string `json:"boot"`
	Session string `json:"session"` // of the daemon that goes away
	For     int64  `json:"for_ms"`
	Reason  string `json:"reason,omitempty"`
}

// Absence is a node's announced absence.
type Absence struct {
	Until  int64  `json:"until"` // State.Clock
	For    int64  `json:"for_ms"`
	Reason string `json:"reason,omitempty"`
}

// Leaving says that a node's daemon is being stopped and lets go of all that it holds, in order, before it takes its
// leave. Another daemon of the node, or another boot, ends that.
type Leaving struct {
	Node    string `json:"node"`
	Boot    string `json:"boot"`
	Session string `json:"session"`
}

// away notes the absence. It only ever delays a suspicion, by a bounded time; whatever ends the boot ends it.
func (t *step) away(c *Away) error {
	n, err := t.present(c.Node, c.Boot, c.Session)
	if err != nil {
		return fmt.Errorf("absence: %w", err)
	}
	d := min(max(c.For, 0), maxAway)
	n.Away = &Absence{Until: t.Clock + d, For: d, Reason: clip(c.Reason, maxText)}
	return nil
}

func (t *step) leaving(c *Leaving) error {
	n, err := t.present(c.Node, c.Boot, c.Session)
	if err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	n.Leaving = true
	return nil
}

// present finds the node whose present daemon speaks.
func (t *step) present(name, boot, session string) (*Node, error) {
	n, err := t.node(name)
	if err != nil {
		return nil, err
	}
	switch {
	case n.Boot != boot || !n.Up:
		return nil, fmt.Errorf("%s in boot %s: %w", name, boot, ErrSuperseded)
	case n.Session != session:
		return nil, fmt.Errorf("%s: %w", name, ErrSession)
	}
	return n, nil
}

// Aside says why a node is to hold no groups, by somebody's word; empty if it may.
func (n *Node) Aside() string {
	switch {
	case n.Standby:
		return "on standby"
	case n.Leaving:
		return "being stopped"
	}
	return ""
}
