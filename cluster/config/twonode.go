package config

import (
	"fmt"
	"slices"
)

// checkTwoNode checks what two_node promises: that there are two, who both run groups. That each can see for itself
// whether the other is off is checked with the levels of their fencing.
func (r *reader) checkTwoNode(d *draft) {
	if !d.Cluster.TwoNode || d.top.settled["node"] {
		return
	}
	roles := !slices.ContainsFunc(d.nodes, func(t *table) bool { return t.settled["role"] })
	if n := len(d.Nodes); n != 2 {
		r.problem(d.cluster, "two_node", fmt.Sprintf("is for two voters, and here are %d", n), "remove it: a majority of three or more decides by itself")
		return
	}
	if len(d.Members()) != 2 && roles {
		r.problem(d.cluster, "two_node", "is for two members, and one of the two is a witness", "remove it, and add a member")
		return
	}
}

// doubtVoters says what the number of voters means.
func (r *reader) doubtVoters(d *draft) {
	voters := len(d.Voters())
	last := d.nodes[voters-1]
	switch {
	case voters == 1:
		r.warn(last, last.line, "", "one node alone: nobody takes over when it fails", "add nodes")
	case voters == 2 && d.Cluster.TwoNode:
		r.warn(d.cluster, d.cluster.at("two_node"), "two_node", "two voters: no failure is tolerated for certain, because the survivor goes on only if it reads the other's power back as off itself, and a node that boots alone waits",
			`add a third node, or a small one with role = "witness"`)
	case voters == 2:
		cure := `add a third node, or a small one with role = "witness"`
		if len(d.Members()) == 2 {
			cure += "; if there is no place for one: two_node = true"
		}
		r.warn(last, last.line, "", "two voters tolerate no failure: when one is lost, the other has no majority, and takes nothing over", cure)
	case voters%2 == 0:
		r.warn(last, last.line, "", fmt.Sprintf("%d voters tolerate the loss of %d, no more than %d voters do", voters, (voters-1)/2, voters-1),
			`add or remove one, for example with role = "witness"`)
	}
}
