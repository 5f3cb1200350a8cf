package node

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/link"
)

// contacts lists the nodes with which this one is in contact now, both ways on one link.
func (n *Node) contacts() []string {
	fresh := func(age int64) bool { return age != link.Never && age < n.Config.Cluster.DetectionTime.Milliseconds() }
	var names []string
	for _, h := range n.link.Health() {
		if slices.ContainsFunc(h.Links, func(l link.LinkHealth) bool {
			return fresh(l.InAgeMS) && fresh(l.OutWordAgeMS) && fresh(l.OutAgeMS)
		}) {
			names = append(names, h.Node)
		}
	}
	return names
}

// mesh is who is in contact with whom, as far as this node hears of it: by itself, and from those that it hears. Of two
// that were both asked both have to say so; of one that was not, the other's word counts.
func mesh(voters []string, said map[string]testimony) [][]bool {
	says := func(a, b string) (yes, asked bool) {
		t, ok := said[a]
		return slices.Contains(t.Contacts, b) && t.NoVote == "", ok && t.silent == ""
	}
	reach := make([][]bool, len(voters))
	for i, a := range voters {
		reach[i] = make([]bool, len(voters))
		for j, b := range voters {
			there, askedA := says(a, b)
			back, askedB := says(b, a)
			reach[i][j] = a == b || (askedA || askedB) && (there || !askedA) && (back || !askedB)
		}
	}
	return reach
}

// from gives those that are reached from one, through others too.
func from(reach [][]bool, self int) (there []int) {
	if self < 0 {
		return nil
	}
	there = []int{self}
	for i := 0; i < len(there); i++ {
		for j, yes := range reach[there[i]] {
			if yes && !slices.Contains(there, j) {
				there = append(there, j)
			}
		}
	}
	slices.Sort(there)
	return there
}

// mostTorn bounds the search below; beyond it the answer is too low rather than late.
const mostTorn = 16

// spare is the largest number such that, whichever so many of those that are there fail, one of the rest is in contact
// with a majority, itself included: that one can coordinate.
func spare(reach [][]bool, there []int, need int) int {
	most := len(there) - need
	var torn []int // those that do not reach all others
	for _, i := range there {
		if slices.ContainsFunc(there, func(j int) bool { return !reach[i][j] }) {
			torn = append(torn, i)
		}
	}
	whole := len(there) - len(torn)
	if whole > most || most <= 0 {
		return max(0, most) // one of them is always left
	}
	if len(torn) > mostTorn {
		return max(0, whole-1)
	}
	// Only with all of these gone do cuts matter: how many of the torn have to fail with them?
	fewest := len(torn)
	for gone := range 1 << len(torn) {
		if n := bits.OnesCount(uint(gone)); n < fewest && !oneLeads(reach, torn, gone, need) {
			fewest = n
		}
	}
	return max(0, min(most, whole+fewest-1))
}

func oneLeads(reach [][]bool, torn []int, gone, need int) bool {
	for a, i := range torn {
		votes := 0
		for b, j := range torn {
			if gone>>b&1 == 0 && reach[i][j] {
				votes++
			}
		}
		if gone>>a&1 == 0 && votes >= need {
			return true
		}
	}
	return false
}

// tolerance is how many of the voters may fail now before the cluster stands still, and by what so many, in words.
func (n *Node) tolerance(st api.Status, said map[string]testimony) (int, string) {
	if !st.Quorate {
		return 0, "none: no quorum"
	}
	voters := n.voting()
	reach := mesh(voters, said)
	there := from(reach, slices.Index(voters, n.Self))
	twoNode := n.replica.State().TwoNode
	return tolerated(voters, reach, there, twoNode, unreadable(st.Nodes))
}

// tolerated is the pure part of tolerance. Unread names, of two nodes, one whose power the other cannot read; empty if
// there is none.
func tolerated(voters []string, reach [][]bool, there []int, twoNode bool, unread string) (int, string) {
	need := len(voters)/2 + 1
	k := spare(reach, there, need)
	majority := fmt.Sprintf("majority of %d voters", len(voters))
	apart := ""
	if k < len(there)-need {
		apart = torn(voters, reach, there)
	}
	switch {
	case k > 0 && apart != "":
		return k, majority + ", although " + apart
	case k > 0:
		return k, majority
	case len(voters) == 1:
		return 0, "none: one voter"
	case len(voters) == 2 && len(there) == 2 && twoNode && unread != "":
		return 0, "none: the two-node rule needs the power of " + unread + " to be readable"
	case len(voters) == 2 && len(there) == 2 && twoNode:
		return 1, "two-node rule: whoever is left must read the other's power off"
	case len(voters) == 2:
		return 0, "none: two voters without a witness"
	case apart != "":
		return 0, "none: " + apart
	}
	return 0, fmt.Sprintf("none: %d of %d voters are there, and %d are a majority", len(there), len(voters), need)
}

// torn names the pairs that are not in contact.
func torn(voters []string, reach [][]bool, there []int) string {
	var pairs []string
	for a, i := range there {
		for _, j := range there[a+1:] {
			if !reach[i][j] {
				pairs = append(pairs, voters[i]+" and "+voters[j])
			}
		}
	}
	const shown = 3
	if more := len(pairs) - shown; more > 0 {
		pairs = append(pairs[:shown], fmt.Sprintf("%d more pairs", more))
	}
	return strings.Join(pairs, ", ") + " do not reach each other"
}

// unreadable names, of two nodes, one whose power the other cannot read by any level; empty where that is not known.
func unreadable(nodes []api.NodeStatus) string {
	for _, node := range nodes {
		read, bad := map[int]bool{}, map[int]bool{} // levels
		for _, h := range node.Fencing.Health {
			if h.ReadBy != node.Name {
				read[h.Level] = true
				bad[h.Level] = bad[h.Level] || !h.OK
			}
		}
		if len(read) > 0 && !slices.Contains(slices.Collect(maps.Values(bad)), false) {
			return node.Name
		}
	}
	return ""
}

// voteProblems tells of the other nodes whose votes do not count, since their disks refused the log.
func voteProblems(self string, nodes []string, said map[string]testimony) (all []api.Problem) {
	for _, name := range nodes {
		if why := said[name].NoVote; why != "" && name != self {
			all = append(all, api.Problem{Severity: api.SeverityAlarm, Text: fmt.Sprintf("the vote of %s does not count, and it takes no groups: %s", name, why),
				Cure: "mend its disk, then on " + name + ": systemctl restart hamgr"})
		}
	}
	return all
}
