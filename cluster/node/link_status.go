package node

import (
	"fmt"
	"strings"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/link"
)

// linkStatus shows an error only while nothing was heard on the link after it.
func (n *Node) linkStatus(peer string, l link.LinkHealth) api.LinkStatus {
	st := api.LinkStatus{
		Local: l.Local, Address: l.Address, UDPAgeMS: ageOrNil(l.InAgeMS), TCPAgeMS: ageOrNil(l.StreamAgeMS),
	}
	silent := n.Config.Cluster.DetectionTime.Milliseconds() / 2
	late := func(age int64) bool { return age == link.Never || age >= silent }
	if !late(l.OutWordAgeMS) { // else the peer does not make itself heard, and tells nothing
		st.UDPOutAgeMS = ageOrNil(l.OutAgeMS)
		if late(l.OutAgeMS) {
			st.Fails = append(st.Fails, n.Self+" -> "+peer)
		}
	}
	if late(l.InAgeMS) {
		st.Fails = append(st.Fails, peer+" -> "+n.Self)
	}
	since := func(age int64) bool { return age != link.Never && age <= l.LastErrorAgeMS }
	if !since(l.InAgeMS) && !since(l.StreamAgeMS) {
		st.Error = l.LastError
	}
	var large []string
	if l.OutLargeLost {
		large = append(large, n.Self+" -> "+peer)
	}
	if l.InLargeLost {
		large = append(large, peer+" -> "+n.Self)
	}
	if len(large) > 0 {
		st.Error = fmt.Sprintf("large packets do not come through (%s): the path's MTU is below 1280", strings.Join(large, ", "))
	}
	return st
}

// linkProblems names the links to living nodes that do not work, and the direction.
func linkProblems(nodes []api.NodeStatus, warn func(text, cure string)) {
	for _, node := range nodes {
		if node.State != api.NodeAlive && node.State != api.NodeSuspect {
			continue // that it is silent says it all
		}
		for _, l := range node.Links {
			switch {
			case len(l.Fails) > 0:
				warn(fmt.Sprintf("link %s - %s: nothing comes through from %s", l.Local, l.Address, strings.Join(l.Fails, ", nor from ")),
					"look at its cable, switch and firewall; a node is not fenced while another link works both ways")
			case l.Error != "":
				warn(fmt.Sprintf("link %s - %s: %s", l.Local, l.Address, l.Error), "look at its cable, switch and MTU")
			}
		}
	}
}
