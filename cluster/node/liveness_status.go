package node

import (
	"fmt"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// livenessProblems names those that gossip misses. One that is heard nevertheless is well, and the gossip wrong.
func livenessProblems(nodes []api.NodeStatus, detection time.Duration, alarm, warn func(text, cure string)) {
	for _, node := range nodes {
		heard := node.ContactAgeMS != nil && *node.ContactAgeMS < (detection/2).Milliseconds()
		switch {
		case node.State == api.NodeDead && heard:
			alarm(fmt.Sprintf("gossip says that node %s is dead, but it is heard: it is not fenced for that, and given no work", node.Name),
				"wait: the node refutes it, in a few detection times at most; if it comes again, somebody who has the cluster key spreads it: replace the key, see hamgr key add")
		case node.State == api.NodeDead, node.State == api.NodeUnknown:
			warn(fmt.Sprintf("node %s is %s", node.Name, node.State), "bring it back: at its console, or hamgr fence reboot "+node.Name)
		}
	}
}
