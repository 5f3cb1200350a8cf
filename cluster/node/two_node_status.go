package node

import (
	"fmt"
	"slices"
)

// twoNodeProblems tells what one of two nodes waits for that has no quorum.
func (n *Node) twoNodeProblems(quorate bool, alarm func(text, cure string)) {
	names := n.Config.NodeNames()
	if quorate || !n.Config.Cluster.TwoNode || len(names) != 2 {
		return
	}
	other := names[1-slices.Index(names, n.Self)]
	doing, failed := n.survivor.words()
	switch {
	case failed != "":
		alarm(fmt.Sprintf("%s; %s does not go on alone: %s", doing, n.Self, failed),
			fmt.Sprintf("bring %s back; or take its power away and have its fence devices answer: once %s reads it off, it goes on", other, n.Self))
	case doing != "":
		alarm(doing, "")
	case !n.wasQuorate():
		alarm(fmt.Sprintf("%s has not been part of a quorum since it booted, so it waits for %s, which may have gone on alone: it neither fences nor starts anything", n.Self, other),
			fmt.Sprintf("bring %s back; if it is gone for good, and switched off: hamgr quorum force", other))
	}
}
