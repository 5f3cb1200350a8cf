package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// legal is a random run in which every rule holds: groups move in order, and are taken over after every kind of proof.
// Each grant is used, so that an edit can break something.
func legal(t *rapid.T) History {
	nodes := []string{"a", "b", "c"}[:rapid.IntRange(2, 3).Draw(t, "nodes")]
	groups := []string{"g", "h"}[:rapid.IntRange(1, 2).Draw(t, "groups")]
	var h History
	now, token, boots, lines := time.Duration(0), uint64(0), map[string]int{}, map[string]int{}
	say := func(e Event) {
		now += time.Duration(rapid.IntRange(1, 500).Draw(t, "ms")) * time.Millisecond
		e.At = now
		h = append(h, e)
	}
	bootOf := func(n string) string { return fmt.Sprint(n, boots[n]) }
	boot := func(n string) {
		boots[n]++
		say(Event{Kind: Boot, Node: n, Boot: bootOf(n)})
	}
	type grant struct {
		node  string
		token uint64
	}
	holder := map[string]grant{}
	give := func(g, n string) {
		token += uint64(rapid.IntRange(1, 3).Draw(t, "skipped"))
		holder[g] = grant{n, token}
		if rapid.IntRange(0, 3).Draw(t, "told") > 0 {
			say(Event{Kind: Granted, Node: n, Group: g, Token: token})
		}
		for range rapid.IntRange(1, 4).Draw(t, "writes") {
			lines[g]++
			say(Event{Kind: Write, Node: n, Boot: bootOf(n), Group: g, Token: token, Line: lines[g]})
		}
	}
	for _, n := range nodes {
		boot(n)
	}
	for _, g := range groups {
		give(g, rapid.SampledFrom(nodes).Draw(t, "node"))
	}
	for range rapid.IntRange(1, 8).Draw(t, "changes") {
		g := rapid.SampledFrom(groups).Draw(t, "group")
		was := holder[g]
		var lost []string // groups
		for _, g := range groups {
			if holder[g].node == was.node {
				lost = append(lost, g)
			}
		}
		how := rapid.SampledFrom([]string{"stop", "shot", "reboot", "word"}).Draw(t, "how")
		switch how {
		case "stop":
			lost = []string{g}
			say(Event{Kind: Stopped, Node: was.node, Group: g, Token: was.token})
		case "shot":
			say(Event{Kind: Frozen, Node: was.node})
			say(Event{Kind: Commanded, Node: was.node})
			say(Event{Kind: SeenOff, Node: was.node})
		case "reboot":
			boot(was.node)
		case "word":
			say(Event{Kind: Word, Node: was.node, Boot: bootOf(was.node)})
		}
		to := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == was.node })
		if how == "stop" || how == "reboot" {
			to = nodes // it may come back
		}
		for _, g := range lost {
			give(g, rapid.SampledFrom(to).Draw(t, "to"))
		}
		if how == "shot" || how == "word" {
			say(Event{Kind: PowerOn, Node: was.node})
			boot(was.node)
		}
	}
	return h
}

func TestLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := legal(t)
		if all := append(Check(h), Linearizable(h)...); len(all) > 0 {
			t.Fatalf("%v\n%v", all, h)
		}
	})
}

// TestIllegal: whatever is done to a legal run that a rule forbids is found, by Check and by the lock.
func TestIllegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := legal(t)
		s := look(h)
		g := rapid.SampledFrom(s.groups).Draw(t, "group")
		reigns := s.reigns[g]
		if len(reigns) < 2 {
			t.Skip("nothing was taken over")
		}
		i := rapid.IntRange(0, len(reigns)-2).Draw(t, "reign")
		old, next := reigns[i], reigns[i+1]
		of := func(r *reign) func(Event) bool {
			return func(e Event) bool { return e.Group == g && e.Token == r.token }
		}
		byClock := true
		edits := []string{"write moved", "write moved in the storage", "proof removed", "proof late"}
		if old.node != next.node || old.boot != next.boot { // in one boot of one node it would be the same grant, which restarted
			edits = append(edits, "token repeated")
		}
		edit := rapid.SampledFrom(edits).Draw(t, "edit")
		var want []Rule
		switch edit {
		case "write moved": // behind the first one of the next grant
			w := slices.Index(h, old.writes[len(old.writes)-1])
			h[w].At = next.writes[0].At + 1
			want = []Rule{OneWriter}
		case "write moved in the storage": // which the clocks do not show
			w, n := slices.Index(h, old.writes[len(old.writes)-1]), slices.Index(h, next.writes[0])
			h[w].Line, h[n].Line = h[n].Line, h[w].Line
			want, byClock = []Rule{OneWriter}, false
		case "token repeated":
			for n := range h {
				if of(next)(h[n]) {
					h[n].Token = old.token
				}
			}
			want = []Rule{TokensGrow}
		case "proof removed": // and all that it could be inferred from
			h = slices.DeleteFunc(h, func(e Event) bool {
				return e.Node == old.node && e.At > old.evidence && e.At <= next.evidence && isProof(e)
			})
			want = []Rule{ProofFirst}
		case "proof late":
			for n, e := range h {
				if e.Node == old.node && e.At > old.evidence && e.At <= next.evidence && isProof(e) {
					h[n].At = next.evidence + 1
				}
			}
			want = []Rule{ProofFirst, TokensGrow} // a boot that is late makes its node's grant one of the boot before
		}
		all := Check(h)
		if !slices.ContainsFunc(all, func(v Violation) bool { return slices.Contains(want, v.Rule) }) {
			t.Fatalf("%s of %v before %v: found %v\n%v", edit, old, next, all, h)
		}
		if byClock && len(Linearizable(h)) == 0 {
			t.Fatalf("%s of %v before %v: a lock would have given it so\n%v", edit, old, next, h)
		}
	})
}

func isProof(e Event) bool {
	return e.Kind == Stopped || e.Kind == SeenOff || e.Kind == Boot || e.Kind == Word
}
