package state

import "fmt"

// WatchdogClaim is what a node told of its watchdog with its last greeting that was answered: whether its silence can be
// counted on, as proof (e).
type WatchdogClaim struct {
	// Number counts the claims of one daemon: what comes late is not taken for the present.
	Number uint64 `json:"number"`
	// Armed says that the node is reset by itself once it hears no coordinator and does not stop.
	Armed  bool   `json:"armed"`
	Tested bool   `json:"tested"`
	Why    string `json:"why,omitempty"` // what is missing
	// ExpiryMS is after how much silence it must have fired.
	ExpiryMS int64 `json:"expiry_ms"`
}

// Kept is the claim as the state keeps it.
func (c *WatchdogClaim) Kept() *WatchdogClaim {
	if c == nil {
		return nil
	}
	kept := *c
	kept.Why = Kept(kept.Why)
	return &kept
}

// Same reports whether the state's claim is this one.
func (c *WatchdogClaim) Same(other *WatchdogClaim) bool {
	a, b := c.Kept(), other.Kept()
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// late refuses a claim that is older than the present one: the node may have been told already that this one is known.
func (n *Node) late(c *Join) error {
	was, is := n.Watchdog, c.Watchdog
	if was != nil && is != nil && n.Boot == c.Boot && n.Session == c.Session && is.Number < was.Number {
		return fmt.Errorf("claim %d of %s's watchdog came after claim %d: %w", is.Number, n.Name, was.Number, ErrSuperseded)
	}
	return nil
}

// mayExpire holds proof (e) to what the node's claim allows. That its silence lasted is what the coordinator measured.
func (t *step) mayExpire(n *Node, o *Operation) error {
	c := n.Watchdog
	switch {
	case t.TwoNode:
		return fmt.Errorf("operation %d: of two nodes the one that is left must see for itself that the other is off: %w", o.ID, ErrConflict)
	case o.Action != FenceOff && o.Action != FenceReboot:
		return fmt.Errorf("operation %d is to %s: %w", o.ID, o.Action, ErrConflict)
	case o.Failures == 0:
		return fmt.Errorf("operation %d: its devices were not tried: %w", o.ID, ErrConflict)
	case c == nil || !c.Armed || !c.Tested || c.ExpiryMS <= 0:
		return fmt.Errorf("operation %d: the watchdog of %s proves nothing (%s): %w", o.ID, n.Name, c.missing(), ErrConflict)
	}
	return nil
}

func (c *WatchdogClaim) missing() string {
	switch {
	case c == nil:
		return "the node told of none"
	case c.Why == "":
		return "it is not known when it fires"
	}
	return c.Why
}

// checkExpired verifies that a step that proves by a watchdog had the node's word for it before.
func checkExpired(before *State, b, a *Operation) error {
	if b.Proof != nil || a.Proof == nil || a.Proof.Kind != Watchdog {
		return nil
	}
	n := before.Nodes[a.Node]
	if before.TwoNode || b.Phase != Shooting || b.Action != FenceOff && b.Action != FenceReboot || b.Failures == 0 ||
		n == nil || n.Boot != a.Boot || n.Watchdog == nil || !n.Watchdog.Armed || !n.Watchdog.Tested {
		return fmt.Errorf("S3: operation %d (%s, %s, %d failures) was proven by a watchdog that proves nothing: %+v", b.ID, b.Action, b.Phase, b.Failures, n)
	}
	return nil
}
