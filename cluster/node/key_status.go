package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// keyPatience is how long two steps of a rotation may be apart before the status asks for the next one.
const keyPatience = 5 * time.Minute

// Keys tells with which cluster keys every node works, by its own word.
func (b backend) Keys(ctx context.Context) (api.Keys, error) {
	n := b.n
	k := api.Keys{Schema: api.Schema, Node: n.Self, File: n.keys.file}
	said := n.accounts(ctx)
	with := map[string]string{}
	for _, h := range n.link.Health() {
		with[h.Node] = h.Key
	}
	names := append(n.Config.NodeNames(), n.replica.State().NodeNames()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		t, asked := said[name]
		if !asked {
			t.silent = "is not in the configuration that " + n.Self + " runs with"
		}
		told := api.NodeKeys{Name: name, Accepts: t.Keys.Accepts, HeardWith: with[name], Trouble: t.Keys.Trouble, Silent: t.silent}
		if told.Silent == "" && len(told.Accepts) == 0 {
			told.Silent = "does not tell of its keys: its hamgr is older"
		}
		if told.Accepts == nil {
			told.Accepts = []string{}
		}
		k.Nodes = append(k.Nodes, told)
	}
	return k, nil
}

// ReloadKeys has this host's file read now. That it cannot be used is in the answer, not an error.
func (b backend) ReloadKeys(ctx context.Context) (api.Keys, error) {
	if err := b.n.keys.reload(ctx, true); err != nil {
		return api.Keys{}, fmt.Errorf("read the cluster key again: %w", err)
	}
	return b.Keys(ctx)
}

// keyProblems tells of files that cannot be used, of nodes that do not know each other's keys, of a rotation that is not
// at its end, and of nodes that were removed and know the key.
func (n *Node) keyProblems(quorate bool, said map[string]testimony, alarm, warn, notice func(text, cure string)) {
	told := map[string]keyAccount{}
	for name, t := range said {
		if len(t.Keys.Accepts) > 0 {
			told[name] = t.Keys
		}
	}
	for _, name := range n.Config.NodeNames() {
		if why := told[name].Trouble; why != "" {
			alarm(fmt.Sprintf("%s cannot use the file of its cluster key, and goes by the keys before: %s", name, why),
				"mend it before hamgr is restarted there: copy the file from another node, mode 0600")
		}
	}
	n.foreignKeys(quorate, alarm, warn)
	rotation(told, warn, notice)
	ring, _, _ := n.keys.now()
	for _, r := range n.removed {
		if _, back := n.Config.Node(r.Node); back {
			continue
		}
		if keys := r.knows(ring); len(keys) > 0 {
			notice(fmt.Sprintf("%s was removed from the cluster and still has its key %s", r.Node, strings.Join(keys, ", ")),
				"replace the key, or see that nobody can read it there: docs/keys.md")
		}
	}
}

// foreignKeys tells of silent nodes that seem to have another key. Who sent such a packet is not proven.
func (n *Node) foreignKeys(quorate bool, alarm, warn func(text, cure string)) {
	fresh := n.Config.Cluster.DetectionTime.Milliseconds()
	for _, h := range n.link.Health() {
		heard := h.ContactAgeMS >= 0 && h.ContactAgeMS < fresh
		if heard || h.ForeignKey == "" || h.ForeignKeyAgeMS > fresh {
			continue
		}
		tell, text := warn, fmt.Sprintf("packets in the name of %s are sealed with the cluster key %s, which is not accepted here", h.Node, h.ForeignKey)
		if !quorate {
			tell, text = alarm, text+": this node may have missed a rotation of the key"
		}
		tell(text, "copy the file of the key from a node that has quorum to the one that has not: docs/keys.md")
	}
}

// rotation tells where the nodes go by different keys, or by more than one.
func rotation(told map[string]keyAccount, warn, notice func(text, cure string)) {
	groups := map[string][]string{} // nodes by what they accept and use
	accepted, used := map[string]bool{}, map[string]bool{}
	since := time.Duration(1<<63 - 1)
	for name, a := range told {
		words := "use " + a.Accepts[0]
		if len(a.Accepts) > 1 {
			words += " and accept " + strings.Join(a.Accepts[1:], ", ")
		}
		groups[words] = append(groups[words], name)
		accepted[strings.Join(slices.Sorted(slices.Values(a.Accepts)), " ")] = true
		used[a.Accepts[0]] = true
		since = min(since, time.Duration(a.ForMS)*time.Millisecond)
	}
	var lines []string
	several := false
	for words, names := range groups {
		slices.Sort(names)
		lines = append(lines, strings.Join(names, ", ")+" "+words)
		several = several || strings.Contains(words, " and accept ")
	}
	slices.Sort(lines)
	text := "a rotation of the cluster key is under way: " + strings.Join(lines, "; ")
	cure := "hamgr key list shows what comes next: docs/keys.md"
	switch {
	case len(accepted) > 1, len(used) > 1 && since > keyPatience:
		warn(text, cure)
	case len(used) > 1, several && since > keyPatience:
		notice(text, cure)
	}
}
