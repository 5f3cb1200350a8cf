package state

import (
	"errors"
	"fmt"
	"slices"
)

// Check verifies what must hold of every state by itself. Tests call it after every
// step; nil means that nothing is broken.
func Check(s *State) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	holder := map[uint64]string{}
	for _, name := range s.GroupNames() {
		g := s.Groups[name]
		if g.Released != nil && g.Released.Token > s.LastToken {
			bad("S2: %s was released with token %d, above the last one %d", name, g.Released.Token, s.LastToken)
		}
		if w := g.Wish; w != nil && w.Until > s.Clock+longestWish {
			bad("%s: a wish that does not end: %+v", name, *w)
		}
		if g.Grant == nil {
			continue
		}
		gr := g.Grant
		if gr.Token == 0 || gr.Token > s.LastToken {
			bad("S2: %s is held with token %d, the last one is %d", name, gr.Token, s.LastToken)
		}
		if g.Released != nil && g.Released.Token >= gr.Token {
			bad("S2: %s is held with token %d, but was held before with %d", name, gr.Token, g.Released.Token)
		}
		if other, twice := holder[gr.Token]; twice {
			bad("S2: token %d is held by %s and %s", gr.Token, other, name)
		}
		holder[gr.Token] = name
		n := s.Nodes[gr.Node]
		if n == nil || n.Role != Member || !n.Up || n.Boot != gr.Boot || slices.Contains(n.Ended, gr.Boot) {
			bad("S3: %s is held by %s in boot %s, which is not a boot that can hold it: %+v", name, gr.Node, gr.Boot, n)
		}
	}
	errs = append(errs, checkOperations(s)...)
	for _, name := range s.NodeNames() {
		errs = append(errs, checkNode(s, s.Nodes[name]))
	}
	return errors.Join(errs...)
}

// CheckStep verifies what must hold from one state to the next one.
func CheckStep(before, after *State) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if after.LastToken < before.LastToken {
		bad("S2: the last token fell from %d to %d", before.LastToken, after.LastToken)
	}
	if after.LastOp < before.LastOp {
		bad("S8: the newest operation fell from %d to %d", before.LastOp, after.LastOp)
	}
	if after.Format() < before.Format() || len(after.Forced) < len(before.Forced) {
		bad("the log's format went from %d to %d, the forced quorums from %d to %d", before.Format(), after.Format(), len(before.Forced), len(after.Forced))
	}
	if after.Clock < before.Clock || after.Clock > before.Clock+maxElapsed {
		bad("S7: the clock went from %d to %d", before.Clock, after.Clock)
	}
	for name, g := range after.Groups {
		var was *Grant
		if b := before.Groups[name]; b != nil {
			was = b.Grant
		}
		if g.Grant != nil && (was == nil || was.Token != g.Grant.Token) {
			if g.Grant.Token <= before.LastToken {
				bad("S2: new grant of %s with token %d, %d was granted before", name, g.Grant.Token, before.LastToken)
			}
			if n := after.Nodes[g.Grant.Node]; n == nil || n.Aside() != "" || n.Maintenance || n.Op != 0 || n.Unclean != "" {
				bad("S3: %s was granted to %s, which may hold nothing: %+v", name, g.Grant.Node, n)
			}
			if g.Disabled || g.Halted != "" || g.Maintenance || after.Maintenance || !g.Allows(g.Grant.Node) {
				bad("%s was granted against an operator's word, or the configuration: %+v", name, g)
			}
			if was != nil {
				bad("S3: %s went from token %d to %d in one step", name, was.Token, g.Grant.Token)
			}
		}
		if was != nil && g.Grant == nil {
			errs = append(errs, checkRelease(after, name, *was, g.Released))
		}
	}
	for name, b := range before.Groups {
		if b.Grant != nil && after.Groups[name] == nil && !b.Removed {
			bad("S3: held group %s vanished", name)
		}
	}
	for name, b := range before.Nodes {
		if a := after.Nodes[name]; a != nil {
			errs = append(errs, checkNodeStep(before, after, b, a), checkShown(before, after, b, a))
		}
	}
	for id, b := range before.Operations {
		if a := after.Operations[id]; a == nil && b.Open() {
			bad("S6: open operation %d vanished", id)
		} else if a != nil && phaseOrder[a.Phase] < phaseOrder[b.Phase] {
			bad("S6: operation %d went back from %s to %s", id, b.Phase, a.Phase)
		} else if a != nil {
			errs = append(errs, checkOperationStep(b, a), checkExpired(before, b, a))
		}
	}
	return errors.Join(errs...)
}

var phaseOrder = map[OpPhase]int{Ordered: 0, Shooting: 1, ProvenOff: 2, Done: 3, CalledOff: 3}

// checkRelease demands that a grant ended by a proof that speaks of its node, its boot and itself.
func checkRelease(s *State, group string, was Grant, r *Release) error {
	if r == nil || r.Token != was.Token {
		return fmt.Errorf("S3: %s was taken from %s (token %d) without a proof", group, was.Node, was.Token)
	}
	p := r.Proof
	if p.Node != was.Node || p.Boot != was.Boot {
		return fmt.Errorf("S3: %s was held by %s in boot %s; the proof is of %s in boot %s", group, was.Node, was.Boot, p.Node, p.Boot)
	}
	switch p.Kind {
	case CleanStop:
		return nil
	case PowerOff, Watchdog:
		o := s.Operations[p.Op]
		if o == nil || o.Proof == nil || o.Proof.Kind != p.Kind || o.Node != was.Node || o.Boot != was.Boot || len(p.Evidence) == 0 {
			return fmt.Errorf("S3: %s: no operation %d that proves %s off in boot %s", group, p.Op, was.Node, was.Boot)
		}
		return nil
	case OperatorWord:
		o := s.Operations[p.Op]
		if o == nil || o.Action != FenceConfirm || o.Node != was.Node || o.Boot != was.Boot {
			return fmt.Errorf("S3: %s: no word of an operator (operation %d) that %s is down in boot %s", group, p.Op, was.Node, was.Boot)
		}
		return nil
	case NewBoot:
		if n := s.Nodes[was.Node]; n == nil || n.Boot == was.Boot {
			return fmt.Errorf("S3: %s: %s has no newer boot than %s", group, was.Node, was.Boot)
		}
		return nil
	}
	return fmt.Errorf("S3: %s: %q is not a proof", group, p.Kind)
}

func checkNodeStep(before, after *State, b, a *Node) error {
	for _, boot := range b.Ended {
		if a.Up && a.Boot == boot {
			return fmt.Errorf("S3: %s is up again in boot %s, which is proven over", a.Name, boot)
		}
	}
	if b.Unclean == "" || a.Unclean != "" {
		return nil
	}
	if slices.Contains(a.Ended, b.Boot) {
		return nil
	}
	if o := after.Operations[b.Op]; o != nil && o.Proof != nil {
		return nil // of a node that never joined: there is no boot to end
	}
	if o := before.Operations[b.Op]; o != nil && o.Phase == Ordered && after.Operations[b.Op].Phase == CalledOff {
		return nil
	}
	return fmt.Errorf("S6: %s no longer needs fencing, without a proof", a.Name)
}
