package node

import (
	"context"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// isolation asks, while no coordinator is heard, whether there can be one elsewhere. Where so many voters say that they
// have none either that the rest is no majority, nobody can take over what runs here, and to stop it would help nobody.
type isolation struct {
	n *Node

	mu    sync.Mutex
	asked time.Time // when those that the verdict is of were asked
	none  bool      // no majority can be elsewhere
}

func (i *isolation) run(ctx context.Context) {
	d := i.n.Config.Cluster.DetectionTime
	for sleep(ctx, d/8) {
		if i.n.trust.silence() < d {
			continue
		}
		_, mark := i.n.dog.Ask()
		asked := time.Now()
		none := nobodyElsewhere(i.n.replicated.Status().Voters, i.n.Self, i.n.replicated.Voices(ctx))
		i.mu.Lock()
		i.asked, i.none = asked, none
		i.mu.Unlock()
		if none {
			i.n.dog.Undisputed(mark)
		}
	}
}

// nobodyElse reports whether it is known to be so now.
func (i *isolation) nobodyElse() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.none && time.Since(i.asked) < i.n.Config.Cluster.DetectionTime
}

// nobodyElsewhere reports whether the voters that do not say that they have no coordinator cannot be a majority.
//
// That goes by the voters that this node knows of. Those elsewhere may have added one since, or removed one, by a majority of
// whom they have now, and this node did not hear of it. Of an even number of voters, half of them may be a majority then: three
// of five, or two of three.
func nobodyElsewhere(voters []consensus.Voter, self string, voices map[string]consensus.Voice) bool {
	all, elsewhere := 0, 0
	for _, v := range voters {
		if !v.Votes {
			continue
		}
		all++
		said := voices[v.Node]
		if v.Node != self && (!said.Answers || !said.Voter || said.Coordinator != "") {
			elsewhere++
		}
	}
	return 2*elsewhere < all
}
