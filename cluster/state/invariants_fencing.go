package state

import (
	"fmt"
	"slices"
)

func checkOperations(s *State) (errs []error) {
	open := map[string]uint64{}
	for id, o := range s.Operations {
		if id > s.LastOp {
			errs = append(errs, fmt.Errorf("S8: operation %d is newer than the newest, %d", id, s.LastOp))
		}
		if o.Phase == ProvenOff && o.Proof == nil {
			errs = append(errs, fmt.Errorf("S3: operation %d is proven off without a proof", id))
		}
		if o.Executor == o.Node {
			errs = append(errs, fmt.Errorf("S8: operation %d: %s fences itself", id, o.Node))
		}
		errs = append(errs, checkOperation(s, o))
		if o.Open() {
			if other, twice := open[o.Node]; twice {
				errs = append(errs, fmt.Errorf("S8: operations %d and %d are open against %s", id, other, o.Node))
			}
			open[o.Node] = id
		}
	}
	for name, n := range s.Nodes {
		if n.Op != open[name] {
			errs = append(errs, fmt.Errorf("S6: node %s points to operation %d, open is %d", name, n.Op, open[name]))
		}
	}
	return errs
}

// checkOperation verifies what each action and each proof demands.
func checkOperation(s *State, o *Operation) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("operation %d (%s of %s): %s", o.ID, o.Action, o.Node, fmt.Sprintf(format, args...))
	}
	n, word := s.Nodes[o.Node], o.By != "" && o.By != ByCluster
	switch p := o.Proof; {
	case o.Action == FenceConfirm && (p == nil || p.Kind != OperatorWord || o.Phase != Done || !word):
		return bad("S3: an operator's word that is none: %+v", o)
	case p != nil && p.Kind == PowerOff && (o.Attempts == 0 || o.Executor == "" || p.Op != o.ID):
		return bad("S3: proven off by nobody: %+v", o)
	case p != nil && p.Kind == OperatorWord && (s.Operations[p.Op] == nil || s.Operations[p.Op].Action != FenceConfirm):
		return bad("S3: operation %d is no operator's word", p.Op)
	case o.Action == FenceRehearse && !word:
		return bad("%q rehearses", o.By)
	case o.Action == FenceRehearse && o.CutsPower() && (n == nil || !n.Standby || n.Unclean != "" || len(granted(s, o.Node)) > 0):
		return bad("S8: a rehearsal of a node that is not on standby, or holds something: %+v", n)
	case o.Clock > s.Clock || o.Attempts > 0 && (o.ShotClock < o.Clock || o.ShotClock > s.Clock):
		return bad("S7: ordered at %d, shot at %d, it is %d", o.Clock, o.ShotClock, s.Clock)
	}
	most := keepAttempts
	if !o.Open() {
		most = keepClosed
	}
	if len(o.Trail) > most || slices.ContainsFunc(o.Trail, func(a Attempt) bool { return len(a.Devices) > keepDevices }) {
		return bad("its trail is longer than what is kept")
	}
	return nil
}

func granted(s *State, node string) []string {
	return slices.DeleteFunc(s.GroupNames(), func(name string) bool {
		g := s.Groups[name].Grant
		return g == nil || g.Node != node
	})
}

// checkNode verifies what is remembered of a node's fencings.
func checkNode(s *State, n *Node) error {
	switch f := n.Fenced; {
	case n.Away != nil && (!n.Up || n.Away.Until > s.Clock+maxAway):
		return fmt.Errorf("%s is away without being up, or without end: %+v", n.Name, *n.Away)
	case n.Leaving && !n.Up:
		return fmt.Errorf("%s is being stopped, and not up", n.Name)
	case n.Standby && n.Role != Member:
		return fmt.Errorf("%s %s is on standby", n.Role, n.Name)
	case len(f) > keepFenced || !slices.IsSorted(f) || len(f) > 0 && f[len(f)-1] > s.Clock:
		return fmt.Errorf("S7: %s was fenced at %v, it is %d", n.Name, f, s.Clock)
	case len(n.Rehearsals) > keepRehearsals:
		return fmt.Errorf("%s: %d rehearsals are remembered", n.Name, len(n.Rehearsals))
	}
	return nil
}

// checkOperationStep verifies that an operation stays what was ordered: it may become an operator's, stricter, or a
// rehearsal that failed, and what is proven stays so.
func checkOperationStep(b, a *Operation) error {
	takenOver := b.By == ByCluster && a.By != ByCluster && b.CutsPower() && a.Lasting
	switch {
	case a.ID != b.ID || a.Node != b.Node || a.Boot != b.Boot || a.Level != b.Level || a.Clock != b.Clock:
		return fmt.Errorf("S8: operation %d became another one: %+v, was %+v", b.ID, a, b)
	case a.By != b.By && !takenOver:
		return fmt.Errorf("operation %d went from %q to %q", b.ID, b.By, a.By)
	case b.Attempts > 0 && a.ShotClock != b.ShotClock || a.Attempts < b.Attempts:
		return fmt.Errorf("S7: the first shot of operation %d moved from %d to %d", b.ID, b.ShotClock, a.ShotClock)
	case b.Proof != nil && a.Proof != b.Proof:
		return fmt.Errorf("S3: the proof of operation %d changed", b.ID)
	case b.Proof == nil && a.Proof != nil && a.Proof.Kind == PowerOff && (b.Phase != Shooting || b.Action == FenceOn):
		return fmt.Errorf("S3: operation %d (%s, %s) was proven off", b.ID, b.Action, b.Phase)
	case !b.Open() && a.Phase != b.Phase:
		return fmt.Errorf("S6: operation %d was over and is %s", b.ID, a.Phase)
	case a.Action == b.Action:
		return nil
	case b.Action == FenceReboot && a.Action == FenceOff && takenOver:
		return nil
	case b.Action == FenceRehearse && a.Action == FenceOn && b.Phase == Shooting && a.Failures > b.Failures:
		return nil
	}
	return fmt.Errorf("operation %d went from %s to %s", b.ID, b.Action, a.Action)
}

// checkShown verifies that what a node's fencings showed was shown by a proof of this very step.
func checkShown(before, after *State, b, a *Node) error {
	proven := func(id uint64) *Operation {
		was, is := before.Operations[id], after.Operations[id]
		if was == nil || is == nil || was.Proof != nil || is.Proof == nil || is.Proof.Kind != PowerOff || is.Node != a.Name {
			return nil
		}
		return is
	}
	for device, r := range a.Rehearsals {
		if old, known := b.Rehearsals[device]; known && old.Op == r.Op {
			continue
		}
		if proven(r.Op) == nil {
			return fmt.Errorf("S3: device %s is rehearsed by operation %d, which proves nothing of %s", device, r.Op, a.Name)
		}
	}
	if slices.Equal(a.Fenced, b.Fenced) || len(a.Fenced) == 0 {
		return nil
	}
	want := append(slices.Clone(b.Fenced), after.Clock)
	want = want[max(0, len(want)-keepFenced):]
	if o := proven(b.Op); o == nil || o.By != ByCluster || !slices.Equal(a.Fenced, want) {
		return fmt.Errorf("%s was fenced by the cluster at %v, before this step at %v", a.Name, a.Fenced, b.Fenced)
	}
	return nil
}
