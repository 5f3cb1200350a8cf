package config

import (
	"fmt"
	"slices"
	"strings"
)

// removedNodes refuses to let go of a node that may still hold something: once it is in no configuration, nobody would
// fence it any more.
func (j *judge) removedNodes() {
	for _, p := range pairs(j.old.Nodes, j.new.Nodes, func(n *Node) string { return n.Name }) {
		if p.new != nil {
			continue
		}
		key, f := keyOf(OfNode, p.name, ""), j.facts.Nodes[p.name]
		_, known := j.facts.Nodes[p.name]
		switch held := j.holds(p.name); {
		case !known:
			j.refuse(key, "what it holds is not known", "see hamgr status")
		case f.Op != 0:
			j.refuse(key, fmt.Sprintf("fencing operation %d against it is open", f.Op), "wait for its end: hamgr fence history "+p.name)
		case f.Unclean != "":
			j.refuse(key, fmt.Sprintf("it needs fencing (%s), and is not proven off", f.Unclean), fmt.Sprintf("hamgr fence off %s, or hamgr fence confirm %s", p.name, p.name))
		case len(held) > 0:
			j.refuse(key, fmt.Sprintf("it may hold %s", strings.Join(held, ", ")), "hamgr node standby "+p.name+", and wait until it holds nothing")
		case f.Up && !f.Left && !f.Answers:
			j.refuse(key, "it does not answer, and has neither left nor been proven off", fmt.Sprintf("hamgr fence off %s, or hamgr fence confirm %s", p.name, p.name))
		}
		if other := (&differ{old: j.old, new: j.new}).sameHost(Change{Name: p.name, Kind: Removed}); other != "" {
			j.warn(key, fmt.Sprintf("%s comes at its address: a name cannot change, so that this is the end of one node and the beginning of another", other),
				fmt.Sprintf("then stop hamgr there, remove its data folder, and start it as %s", other))
		}
	}
}

// quorum refuses a change of voters on whose way a majority is missing. Who stays no longer listens to those who go as soon
// as it runs with the new configuration, and strikes them off the log then: until that is done they count, and
// those who stay must be a majority without them.
func (j *judge) quorum() {
	now := j.voters()
	var stay, answering, sure []string
	for _, v := range now {
		_, stays := j.new.Node(v)
		answers := j.votes(v)
		if stays {
			stay = append(stay, v)
		}
		if answers {
			answering = append(answering, v)
		}
		if answers && stays {
			sure = append(sure, v)
		}
	}
	key, need := keyOf(OfCluster, "", ""), majority(len(now))
	figures := fmt.Sprintf("of %s now %s", voters(len(now)), answer(answering))
	if len(answering) < need {
		j.refuse(key, fmt.Sprintf("%s; %d are needed to change anything", figures, need), "bring back the voters that are missing")
		return
	}
	if len(stay) == len(now) || len(sure) >= need {
		return
	}
	msg := fmt.Sprintf("%s; of the %d of them that stay %s, and %d are needed until the others are struck off", figures, len(stay), answer(sure), need)
	if len(sure) < len(stay) {
		j.refuse(key, msg, "bring back a voter that is missing, or let another one stay")
		return
	}
	cure := "remove fewer at once, first those that do not answer"
	if len(now) == 2 {
		cure = "with two_node = true stop hamgr there first (systemctl stop hamgr), so that it takes its leave and has no vote any more"
	}
	j.refuse(key, msg, cure)
}

// votes reports whether a voter's vote can be counted on now.
func (j *judge) votes(v string) bool {
	return j.facts.Nodes[v].Answers && !slices.Contains(j.facts.Silent, v)
}

// majority is how many of n voters are needed.
func majority(n int) int { return n/2 + 1 }

// answer lists who answers.
func answer(names []string) string {
	switch len(names) {
	case 0:
		return "none answers"
	case 1:
		return "1 answers (" + names[0] + ")"
	default:
		return fmt.Sprintf("%d answer (%s)", len(names), strings.Join(names, ", "))
	}
}

// roles refuses to make a witness of a node that may hold something.
func (j *judge) roles() {
	for _, p := range j.staying() {
		if p.old.Role != Member || p.new.Role != Witness {
			continue
		}
		key, f := keyOf(OfNode, p.name, "role"), j.facts.Nodes[p.name]
		switch held := j.holds(p.name); {
		case len(held) > 0:
			j.refuse(key, fmt.Sprintf("member -> witness, but it may hold %s", strings.Join(held, ", ")), "hamgr node standby "+p.name+", and wait until it holds nothing")
		case f.Op != 0:
			j.refuse(key, fmt.Sprintf("member -> witness, but fencing operation %d against it is open", f.Op), "wait for its end: hamgr fence history "+p.name)
		case f.Unclean != "":
			j.refuse(key, fmt.Sprintf("member -> witness, but it needs fencing (%s)", f.Unclean), fmt.Sprintf("hamgr fence off %s, or hamgr fence confirm %s", p.name, p.name))
		}
	}
}

// addresses refuses those by which a node would be lost. One that is away comes back with the old configuration: it finds
// the others, and is found, only at addresses that stay.
func (j *judge) addresses() {
	silent, held := j.silent(), j.held()
	var moved []string
	for _, p := range j.staying() {
		key, f := keyOf(OfNode, p.name, "addresses"), j.facts.Nodes[p.name]
		before, after := canonical(p.old.Addresses), canonical(p.new.Addresses)
		figures := fmt.Sprintf("%s -> %s", quoteList(p.old.Addresses), quoteList(p.new.Addresses))
		kept := slices.DeleteFunc(slices.Clone(after), func(a string) bool { return !slices.Contains(before, a) })
		switch reached := canonical(f.Reached); {
		case slices.Equal(before, after):
		case len(kept) == 0 && !f.Answers:
			j.refuse(key, figures+": it does not answer, and would never learn of addresses of which none stays", "keep one of the old ones until it is back")
		case len(kept) == 0 && len(silent) > 0:
			j.refuse(key, fmt.Sprintf("%s: %s does not answer, and would look for it at addresses of which none stays", figures, strings.Join(silent, ", ")), "keep one of the old ones until all are back")
		case len(kept) == 0 && len(held) > 0 && !j.facts.Maintenance:
			j.refuse(key, fmt.Sprintf("%s: none stays; the nodes begin anew one after the other, meanwhile some look for it at the new ones and some at the old ones, and %s could stop", figures, strings.Join(held, ", ")),
				"add the new ones beside an old one first, see in hamgr status that they work, and remove the old one then; or hamgr maintenance on before, and off after it")
		case len(kept) == 0:
			moved = append(moved, p.name)
			j.warn(key, figures+": none stays; whether the host has the new ones cannot be seen from here", "add the new ones beside an old one first, see in hamgr status that they work, and remove the old one then")
		case f.Answers && f.Reached != nil && !meet(kept, reached):
			j.refuse(key, fmt.Sprintf("%s: it is reached by %s alone, and that does not stay", figures, quoteList(f.Reached)), "repair the link of an address that stays first")
		case len(after) > len(kept):
			j.warn(key, figures+": whether the host has the new ones cannot be seen from here", "give them to the host before")
		}
	}
	j.moved(moved)
}

// moved bounds how many nodes change all of their addresses in one step: the majority must not hang on an address that
// nobody has tried.
func (j *judge) moved(moved []string) {
	sure := 0
	for _, v := range j.voters() {
		if _, stays := j.new.Node(v); stays && j.votes(v) && !slices.Contains(moved, v) {
			sure++
		}
	}
	all := max(len(j.new.Nodes), len(j.voters())) // who goes counts until it is struck off
	need := majority(all)
	for _, name := range moved {
		key := keyOf(OfNode, name, "addresses")
		switch {
		case len(moved) > 1:
			j.refuse(key, fmt.Sprintf("%s change all of their addresses at once", strings.Join(moved, ", ")), "do it node by node")
		case sure < need:
			j.refuse(key, fmt.Sprintf("all of its addresses change, and should the host not have the new ones, %d of %s are left, where %d are needed", sure, voters(all), need), "add the new ones beside an old one first, and remove that later")
		}
	}
}

// port judges the one address that all nodes change at once.
func (j *judge) port() {
	old, new := j.old.Cluster.Port, j.new.Cluster.Port
	if old == new {
		return
	}
	key, figures := keyOf(OfCluster, "", "port"), fmt.Sprintf("%d -> %d", old, new)
	if silent := j.silent(); len(silent) > 0 {
		j.refuse(key, fmt.Sprintf("%s: %s does not answer, and would look for the others at port %d for ever", figures, strings.Join(silent, ", "), old), "wait until all nodes answer, or remove those that do not come back")
	}
	if held := j.held(); len(held) > 0 && !j.facts.Maintenance {
		j.refuse(key, fmt.Sprintf("%s: should a firewall be in the way of the new port, no node has a majority, and %s would stop", figures, strings.Join(held, ", ")), "hamgr maintenance on; apply it; see in hamgr status that all nodes answer; hamgr maintenance off")
	}
	j.warn(key, figures+": all nodes change over at once", "open TCP and UDP of the new port between all nodes before")
}

// paces is how many times the longest pause that was measured a detection time must last.
const paces = 3

// pace refuses a detection time by which a node, as it was of late, would be fenced for nothing.
func (j *judge) pace() {
	old, new := j.old.Cluster.DetectionTime, j.new.Cluster.DetectionTime
	if new >= old {
		return
	}
	key, figures := keyOf(OfCluster, "", "detection_time"), fmt.Sprintf("%s -> %s", short(old), short(new))
	var unmeasured []string
	for _, p := range j.staying() {
		f := j.facts.Nodes[p.name]
		pause, what := f.LongestGap, "it stood still for %s"
		if f.WriteP99 > pause {
			pause, what = f.WriteP99, "one of 100 writes to its log took %s or more"
		}
		switch {
		case pause == 0:
			unmeasured = append(unmeasured, p.name)
		case new < paces*pause:
			j.refuse(keyOf(OfNode, p.name, ""), fmt.Sprintf("detection_time %s: %s; less than %d times that, %s, would get it fenced for nothing", figures, fmt.Sprintf(what, short(pause)), paces, short(paces*pause)),
				fmt.Sprintf("write %q or more, or find what holds %s up", short(paces*pause), p.name))
		}
	}
	if len(unmeasured) > 0 {
		j.warn(key, fmt.Sprintf("%s: how long %s pauses was not measured", figures, strings.Join(unmeasured, ", ")), "")
	}
}

// twoNode lets the rule begin or end only while there are two: one that goes on alone by it must not find it gone.
func (j *judge) twoNode() {
	if j.old.Cluster.TwoNode == j.new.Cluster.TwoNode {
		return
	}
	for _, p := range j.staying() {
		votes := slices.Contains(j.voters(), p.name)
		if key := keyOf(OfCluster, "", "two_node"); !j.facts.Nodes[p.name].Answers {
			j.refuse(key, fmt.Sprintf("%t -> %t, but %s does not answer", j.old.Cluster.TwoNode, j.new.Cluster.TwoNode, p.name), "wait until it does")
		} else if !votes {
			j.refuse(key, fmt.Sprintf("%t -> %t, but %s has not caught up, and does not vote", j.old.Cluster.TwoNode, j.new.Cluster.TwoNode, p.name), "wait until it does")
		}
	}
}
