package config

import (
	"fmt"
	"time"
)

// doubt finds what is legal in a valid file, but probably not what was wanted.
func (r *reader) doubt(d *draft) {
	r.doubtVoters(d)
	r.doubtLinks(d)
	if d.Cluster.DetectionTime < time.Second {
		r.warn(d.cluster, d.cluster.at("detection_time"), "detection_time",
			fmt.Sprintf("a healthy node that pauses for %v gets fenced; loaded hosts and virtual machines do pause that long", d.Cluster.DetectionTime),
			`write "1s" or more, unless the hosts are known to be faster`)
	}
}

// doubtVoters says what the number of voters means.
func (r *reader) doubtVoters(d *draft) {
	voters := len(d.Voters())
	last := d.nodes[voters-1]
	switch {
	case voters == 1:
		r.warn(last, last.line, "", "one node alone: nobody takes over when it fails", "add nodes")
	case voters == 2:
		r.warn(last, last.line, "", "two voters: no failure is tolerated for certain, because the survivor goes on only if it reads the other's power back as off itself, and a node that boots alone waits",
			`add a third node, or a small one with role = "witness"`)
	case voters%2 == 0:
		r.warn(last, last.line, "", fmt.Sprintf("%d voters tolerate the loss of %d, no more than %d voters do", voters, (voters-1)/2, voters-1),
			`add or remove one, for example with role = "witness"`)
	}
}

// doubtLinks looks for members with fewer links than others. It is no error, because
// a link may be added node by node; a witness often has one alone.
func (r *reader) doubtLinks(d *draft) {
	most := 0
	for _, n := range d.Nodes {
		if n.Role == Member {
			most = max(most, len(n.Addresses))
		}
	}
	for i, n := range d.Nodes {
		if n.Role == Member && len(n.Addresses) < most {
			t := d.nodes[i]
			r.warn(t, t.at("addresses"), "addresses", fmt.Sprintf("has %d, where other members have %d: a cut of these links gets the node fenced", len(n.Addresses), most),
				"add the node's address on the other links")
		}
	}
}
