package node

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/cluster/api"
)

// accountsOf are those of nodes that are all in contact, but for the pairs in cut ("ac" for a and c). Silent ones were not
// asked.
func accountsOf(voters []string, silent string, cut ...string) map[string]testimony {
	said := map[string]testimony{}
	for _, a := range voters {
		if strings.Contains(silent, a) {
			said[a] = testimony{silent: "is not heard"}
			continue
		}
		var t testimony
		for _, b := range voters {
			isCut := false
			for _, c := range cut {
				isCut = isCut || c == a+b || c == b+a
			}
			if a != b && !isCut {
				t.Contacts = append(t.Contacts, b)
			}
		}
		said[a] = t
	}
	return said
}

func TestTolerated(t *testing.T) {
	dead := func(names ...string) (cut []string) { // nobody is in contact with them
		for _, n := range names {
			for _, other := range "abcdefg" {
				cut = append(cut, n+string(other))
			}
		}
		return cut
	}
	for name, c := range map[string]struct {
		voters, silent, noVote string
		cut                    []string
		twoNode                bool
		unread                 string
		want                   int
		by                     string
	}{
		"one":                           {voters: "a", by: "none: one voter"},
		"two":                           {voters: "ab", by: "none: two voters without a witness"},
		"two, and the rule":             {voters: "ab", twoNode: true, want: 1, by: "two-node rule: whoever is left must read the other's power off"},
		"two, and one cannot be read":   {voters: "ab", twoNode: true, unread: "b", by: "none: the two-node rule needs the power of b to be readable"},
		"three":                         {voters: "abc", want: 1, by: "majority of 3 voters"},
		"three, the rule is not needed": {voters: "abc", twoNode: true, want: 1, by: "majority of 3 voters"},
		"three, one silent":             {voters: "abc", silent: "c", cut: dead("c"), by: "none: 2 of 3 voters are there, and 2 are a majority"},
		"three, one pair cut":           {voters: "abc", cut: []string{"bc"}, by: "none: b and c do not reach each other"},
		"three, one heard by others":    {voters: "abc", silent: "c", cut: []string{"ac"}, by: "none: a and c do not reach each other"},
		"five":                          {voters: "abcde", want: 2, by: "majority of 5 voters"},
		"five, one dead":                {voters: "abcde", silent: "e", cut: dead("e"), want: 1, by: "majority of 5 voters"},
		"five, one pair cut":            {voters: "abcde", cut: []string{"bc"}, want: 2, by: "majority of 5 voters"},
		"five, one pair cut, one dead":  {voters: "abcde", silent: "e", cut: append(dead("e"), "bc"), want: 1, by: "majority of 5 voters"},
		"five, all through two":         {voters: "abcde", cut: []string{"cd", "ce", "de"}, want: 1, by: "majority of 5 voters, although c and d, c and e, d and e do not reach each other"},
		"five, all through one":         {voters: "abcde", cut: []string{"bc", "bd", "be", "cd", "ce", "de"}, by: "none: b and c, b and d, b and e, 3 more pairs do not reach each other"},
		"five, a ring":                  {voters: "abcde", cut: []string{"ac", "ad", "bd", "be", "ce"}, want: 1, by: "majority of 5 voters, although a and c, a and d, b and d, 2 more pairs do not reach each other"},
		"four":                          {voters: "abcd", want: 1, by: "majority of 4 voters"},
		"three, the log of one failed":  {voters: "abc", noVote: "c", by: "none: 2 of 3 voters are there, and 2 are a majority"},
		"seven, two dead, two cut":      {voters: "abcdefg", silent: "fg", cut: append(dead("f", "g"), "bc", "de"), by: "none: b and c, d and e do not reach each other"},
	} {
		t.Run(name, func(t *testing.T) {
			voters := strings.Split(c.voters, "")
			said := accountsOf(voters, c.silent, c.cut...)
			if failed, ok := said[c.noVote]; ok {
				failed.NoVote = "the disk is full"
				said[c.noVote] = failed
			}
			reach := mesh(voters, said)
			got, by := tolerated(voters, reach, from(reach, 0), c.twoNode, c.unread)
			if got != c.want || by != c.by {
				t.Errorf("%d, %q; want %d, %q", got, by, c.want, c.by)
			}
		})
	}
}

// The number holds, and no higher one does, for whatever is cut: every set of failures is tried.
func TestSpareIsExact(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		n := 1 + random.IntN(7)
		reach, density := make([][]bool, n), random.Float64()
		for i := range reach {
			reach[i] = make([]bool, n)
			reach[i][i] = true
			for j := range i {
				reach[i][j] = random.Float64() < density
				reach[j][i] = reach[i][j]
			}
		}
		there, need := from(reach, 0), n/2+1
		want := len(there)
		for gone := range 1 << n {
			leads := false
			for _, i := range there {
				votes := 0
				for _, j := range there {
					if gone>>j&1 == 0 && reach[i][j] {
						votes++
					}
				}
				leads = leads || gone>>i&1 == 0 && votes >= need
			}
			if !leads {
				want = min(want, bits.OnesCount(uint(gone))-1)
			}
		}
		if got := spare(reach, there, need); got != max(0, want) {
			t.Fatalf("%v: %d, want %d", reach, got, max(0, want))
		}
	}
}

// Where very much is cut the answer is quick, and not too high.
func TestSpareOfMany(t *testing.T) {
	const n = 101
	reach, there := make([][]bool, n), make([]int, n)
	for i := range reach {
		reach[i], there[i] = make([]bool, n), i
		for j := range reach[i] {
			reach[i][j] = i == j || i%2 != j%2 || i < 3 || j < 3
		}
	}
	if got := spare(reach, there, n/2+1); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}

func TestUnreadable(t *testing.T) {
	health := func(node string, all ...api.DeviceHealth) api.NodeStatus {
		return api.NodeStatus{Name: node, Fencing: api.FencingStatus{Health: all}}
	}
	for want, b := range map[string]api.NodeStatus{
		"":  health("b", api.DeviceHealth{Level: 1, ReadBy: "a"}, api.DeviceHealth{Level: 2, ReadBy: "a", OK: true}),
		"b": health("b", api.DeviceHealth{Level: 1, ReadBy: "b", OK: true}, api.DeviceHealth{Level: 2, ReadBy: "a", OK: true}, api.DeviceHealth{Level: 2, ReadBy: "a"}),
	} {
		if got := unreadable([]api.NodeStatus{health("a"), b}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
