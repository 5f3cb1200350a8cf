package node

import (
	"fmt"
	"os"

	"github.com/hamgr/hamgr/cluster/state"
)

// configProblems tells where this node does not run with what the cluster goes by.
func (n *Node) configProblems(s *state.State, alarm, warn, notice func(text, cure string)) {
	switch why := n.configs.why(s.Text); {
	case s.Digest == "":
		return
	case s.Nodes[n.Self] == nil:
		alarm(fmt.Sprintf("%s was removed from the cluster by configuration %d", n.Self, s.Configured.Index),
			"stop and disable hamgr here; to let it return, empty its data folder and add it again on a node of the cluster: hamgr config apply")
	case why != "":
		alarm(fmt.Sprintf("%s cannot run with configuration %d and keeps the one before: %s", n.Self, s.Configured.Index, why), "mend that: it is tried again within ten minutes, and at once by systemctl restart hamgr")
	case s.Digest != n.digest && s.Text == "":
		warn("this node's configuration file differs from what the cluster goes by (nodes, groups or preferences), and the cluster keeps no text in its log yet", "install the same file on every node and restart hamgr there")
	case s.Text != "" && textDigest(s.Text) != n.text && n.Again != nil:
		notice(fmt.Sprintf("%s is about to begin anew with configuration %d", n.Self, s.Configured.Index), "")
	}
	if n.File == "" || n.Text == "" || s.Text == "" {
		return
	}
	if b, err := os.ReadFile(n.File); err == nil && string(b) != s.Text {
		notice(fmt.Sprintf("%s is not what the cluster goes by (configuration %d)", n.File, s.Configured.Index), "hamgr config diff shows how it differs, hamgr config apply has the cluster take it over")
	}
}
