package node

import (
	"fmt"
	"testing"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// TestNobodyElsewhere: half of the voters may be a majority by a change of the voters that this node did not hear of.
func TestNobodyElsewhere(t *testing.T) {
	for _, c := range []struct {
		voters, here int // here: this node, and those who say that they have no coordinator
		none         bool
	}{
		{0, 0, false},
		{1, 1, true},
		{2, 1, false}, // the other one, and one that was added
		{2, 2, true},
		{3, 1, false},
		{3, 2, true},
		{4, 1, false},
		{4, 2, false}, // two, and one that was added; or two of three, one of those here being removed
		{4, 3, true},
		{5, 2, false},
		{5, 3, true},
		{6, 3, false},
	} {
		var voters []consensus.Voter
		voices := map[string]consensus.Voice{}
		for i := range c.voters {
			name := fmt.Sprint("n", i)
			voters = append(voters, consensus.Voter{Node: name, Votes: true})
			voices[name] = consensus.Voice{Answers: i < c.here, Voter: true}
		}
		voters = append(voters, consensus.Voter{Node: "new"}) // not a voter yet
		if none := nobodyElsewhere(voters, "n0", voices); none != c.none {
			t.Errorf("%d of %d here: none elsewhere %t, want %t", c.here, c.voters, none, c.none)
		}
	}
}
