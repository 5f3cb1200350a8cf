package api

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The verbs of a change.
const (
	ChangeStandby        = "standby"         // of a node: it holds no groups
	ChangeOnline         = "online"          // of a node: it may hold groups again
	ChangeMaintenanceOn  = "maintenance_on"  // of a node, a group, or, with neither, the cluster: left alone
	ChangeMaintenanceOff = "maintenance_off" // of the same
	ChangeEnable         = "enable"          // of a group: it is to run
	ChangeDisable        = "disable"         // of a group: it is to run nowhere
	ChangeMove           = "move"            // of a group: to Node, or with Away from it; or with End, no longer
	ChangeRestart        = "restart"         // of a group: stopped and started, under a new token
	ChangeClear          = "clear"           // of a group: its failures (on Node, if given) are forgotten, and why it was halted
)

// changes says what each verb is of.
var changes = map[string]struct{ node, group need }{
	ChangeStandby:        {node: must},
	ChangeOnline:         {node: must},
	ChangeMaintenanceOn:  {node: may, group: may},
	ChangeMaintenanceOff: {node: may, group: may},
	ChangeEnable:         {group: must},
	ChangeDisable:        {group: must},
	ChangeMove:           {node: may, group: must},
	ChangeRestart:        {group: must},
	ChangeClear:          {node: may, group: must},
}

type need int

const (
	mustNot need = iota
	may
	must
)

// ChangeRequest asks for one change of what the cluster is to do with a node, a group, or all of itself.
type ChangeRequest struct {
	Verb  string `json:"verb"`
	Node  string `json:"node,omitempty"`
	Group string `json:"group,omitempty"`
	// Away has a move go away from Node; an empty Node is then the present holder.
	Away bool `json:"away,omitempty"`
	// ForMS is for how long a move lasts; 0 is until the group runs again.
	ForMS int64 `json:"for_ms,omitempty"`
	// End ends an earlier move.
	End bool `json:"end,omitempty"`
	// Token is that of the grant which a restart ends. The daemon that is asked first fills it in, so that a
	// request which is repeated restarts once.
	Token uint64 `json:"token,omitempty"`
	// By is the operator, for the record.
	By string `json:"by,omitempty"`
	// DryRun has everything foretold, and nothing changed.
	DryRun bool `json:"dry_run,omitempty"`
}

// Validate reports what is wrong with a request in itself, as ErrInvalid.
func (r ChangeRequest) Validate() error {
	of, known := changes[r.Verb]
	if !known {
		verbs := make([]string, 0, len(changes))
		for v := range changes {
			verbs = append(verbs, v)
		}
		slices.Sort(verbs)
		return fmt.Errorf("%w: verb %q is none of %s", ErrInvalid, r.Verb, strings.Join(verbs, ", "))
	}
	for _, n := range []struct {
		what, name string
		need       need
	}{{"node", r.Node, of.node}, {"group", r.Group, of.group}} {
		switch {
		case n.need == must && n.name == "" || len(n.name) > maxName:
			return fmt.Errorf("%w: %s: a %s name of 1 to %d bytes is needed", ErrInvalid, r.Verb, n.what, maxName)
		case n.need == mustNot && n.name != "":
			return fmt.Errorf("%w: %s is of no %s", ErrInvalid, r.Verb, n.what)
		}
	}
	switch {
	case strings.HasPrefix(r.Verb, "maintenance") && r.Node != "" && r.Group != "":
		return fmt.Errorf("%w: maintenance is of a node or of a group", ErrInvalid)
	case r.Token != 0 && r.Verb != ChangeRestart:
		return fmt.Errorf("%w: only a restart names a token", ErrInvalid)
	case len(r.By) > maxName:
		return fmt.Errorf("%w: the operator's name is longer than %d bytes", ErrInvalid, maxName)
	}
	return r.validateMove()
}

// longestMove is how long the cluster remembers an operator's move at most.
const longestMove = 7 * 24 * time.Hour

func (r ChangeRequest) validateMove() error {
	where := r.Node != "" || r.Away
	switch {
	case r.Verb != ChangeMove && (r.Away || r.End || r.ForMS != 0):
		return fmt.Errorf("%w: only a move goes away, lasts or is ended", ErrInvalid)
	case r.Verb != ChangeMove:
		return nil
	case r.End && (where || r.ForMS != 0):
		return fmt.Errorf("%w: a move is ordered or ended, not both", ErrInvalid)
	case !r.End && !where:
		return fmt.Errorf("%w: move %s where?", ErrInvalid, r.Group)
	case r.ForMS < 0:
		return fmt.Errorf("%w: a move cannot last for %d ms", ErrInvalid, r.ForMS)
	case r.ForMS > longestMove.Milliseconds():
		return fmt.Errorf("%w: a move lasts for 7 days (%gh) at most; what is to last is a rule of the file: prefer, allow", ErrInvalid, longestMove.Hours())
	}
	return nil
}

// ChangeResult tells that a change is committed, and what comes of it; after a dry run, what would. What is
// foretold is what happens if every node does as it is told, and nothing fails meanwhile.
type ChangeResult struct {
	Schema int    `json:"schema"`
	Verb   string `json:"verb"`
	Node   string `json:"node,omitempty"`
	Group  string `json:"group,omitempty"`
	DryRun bool   `json:"dry_run"`
	// Changed is false where all was so already.
	Changed bool `json:"changed"`
	// Standby is whether the node is on standby now; of ChangeStandby and ChangeOnline alone.
	Standby *bool `json:"standby,omitempty"`
	// Holds are the groups that the node still holds; of ChangeStandby and ChangeOnline alone.
	Holds []string `json:"holds,omitzero"`
	// Steps are the stops and starts to come, in their order.
	Steps []ChangeStep `json:"steps"`
	// Groups has one entry for each group of the steps, and for the request's own.
	Groups []ChangedGroup `json:"groups"`
}

// The kinds of a step.
const (
	StepStop  = "stop"
	StepStart = "start"
)

// ChangeStep is one thing that is going to happen to a group.
type ChangeStep struct {
	Group  string `json:"group"`
	Node   string `json:"node"`
	Action string `json:"action"`
	Reason string `json:"reason"`
}

// ChangedGroup is where a group is going to be.
type ChangedGroup struct {
	Group string `json:"group"`
	Node  string `json:"node,omitempty"`  // empty for nowhere
	Waits string `json:"waits,omitempty"` // why nowhere; with a node, what its stop waits for
	// Token is that of the newest grant before the change: a start that is still to come has a higher one.
	Token uint64 `json:"token,omitempty"`
}
