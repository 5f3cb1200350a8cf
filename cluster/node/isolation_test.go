package node

import (
	"fmt"
	"testing"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// TestNobodyElsewhere: what half of the voters may do by a change of the voters that this node did not hear of does not stop its
// groups, but is no reason to feed the watchdog.
func TestNobodyElsewhere(t *testing.T) {
	for _, c := range []struct {
		voters, here  int // here: this node, and those who say that they have no coordinator
		none, certain bool
	}{
		{0, 0, false, false},
		{1, 1, true, true},
		{2, 1, true, false}, // the other one, and one that was added
		{2, 2, true, true},
		{3, 1, false, false},
		{3, 2, true, true},
		{4, 1, false, false},
		{4, 2, true, false}, // two, and one that was added; or two of three, one of those here being removed
		{4, 3, true, true},
		{5, 2, false, false},
		{5, 3, true, true},
		{6, 3, true, false},
	} {
		var voters []consensus.Voter
		voices := map[string]consensus.Voice{}
		for i := range c.voters {
			name := fmt.Sprint("n", i)
			voters = append(voters, consensus.Voter{Node: name, Votes: true})
			voices[name] = consensus.Voice{Answers: i < c.here, Voter: true}
		}
		voters = append(voters, consensus.Voter{Node: "new"}) // not a voter yet
		if none, certain := nobodyElsewhere(voters, "n0", voices); none != c.none || certain != c.certain {
			t.Errorf("%d of %d here: none elsewhere %t, certain %t; want %t, %t", c.here, c.voters, none, certain, c.none, c.certain)
		}
	}
}
