package mutants

// mutant is a build that breaks one rule of the design.
type mutant struct {
	name  string
	rule  string
	edits []edit
}

// edit replaces a piece of text that a file has exactly once. A file of another module is named MODULE@/FILE.
type edit struct{ file, old, new string }

func one(name, rule, file, old, new string) mutant {
	return mutant{name, rule, []edit{{file, old, new}}}
}

// table are the mutants that torture has to catch.
var table = []mutant{
	one("no read-back: after a command, any answer counts as off", "S3", "stonith/drive.go",
		"	if r.State != d.op.goal.want {\n", "	if r.State != d.op.goal.want && p.commands == 0 {\n"),
	one("unknown counts as off", "S3", "stonith/drive.go",
		"	if r.State != d.op.goal.want {\n", "	if r.State != d.op.goal.want && r.State != agents.Unknown {\n"),
	one("fencing that fails often enough counts as done", "S3", "cluster/coordinator/shots.go",
		"	proof, err := c.off(ctx, o)\n	if err != nil {\n",
		"	proof, err := c.off(ctx, o)\n	if err != nil && o.Failures >= 2 {\n		_, err = c.commit(ctx, state.Command{ShotProven: &state.ShotProven{Op: o.ID, Executor: o.Executor, Evidence: []string{\"given up\"}}})\n		return err\n	}\n	if err != nil {\n"),
	one("a device is believed against the node's own voice", "S3", "cluster/coordinator/proof.go",
		"	if !at.After(off) {\n", "	if at.After(off) || true {\n"),
	one("an operator's word is taken without asking anybody", "S3", "cluster/coordinator/confirm.go",
		"	if len(signs) > 0 && !word.Force {\n", "	if len(signs) > 0 && !word.Force && word.By == \"\" {\n"),
	one("a daemon's restart counts as a new boot", "S3", "cluster/state/nodes.go",
		"	if n.Boot != c.Boot {\n		t.endBoot(", "	if n.Boot != c.Boot || n.Session != c.Session {\n		t.endBoot("),
	{"a watchdog that was never tested counts", "S3", []edit{
		{"cluster/state/watchdog.go", "!c.Armed || !c.Tested ||", "!c.Armed ||"},
		{"stonith/watchdog/claim.go", "	case !c.Claim.Tested:\n", "	case !c.Claim.Tested && !c.Claim.Armed:\n"},
	}},
	one("a stop that failed counts as a stop", "S3", "cluster/node/runner.go",
		"		if err == nil {\n			i--\n", "		if err == nil || p.used {\n			i--\n"),
	one("a stop that failed is forgotten", "S6", "cluster/state/groups.go",
		"	return t.needFencing(c.Node, fmt.Sprintf(\"stop of group %s failed: %s: %s\", c.Group, Kept(c.Resource), Kept(c.Error)))\n", "	return nil\n"),
	one("the need for fencing is forgotten when failures are cleared", "S6", "cluster/state/groups.go",
		"	g.Halted, g.Missed = \"\", nil\n", "	g.Halted, g.Missed = \"\", nil\n	for name := range t.Nodes {\n		if n, err := t.node(name); err == nil {\n			n.Unclean = \"\"\n		}\n	}\n"),
	one("committed as soon as the coordinator's own disk has it", "S2", "github.com/hashicorp/raft@/commitment.go",
		"	quorumMatchIndex := matched[(len(matched)-1)/2]\n", "	quorumMatchIndex := matched[len(matched)-1]\n"),
	{"the token comes from a counter in memory", "S2", []edit{
		{"cluster/state/groups.go", "	t.LastToken++\n", "	t.LastToken = tokens.Add(1)\n"},
		{"cluster/state/groups.go", "	\"strings\"\n)\n", "	\"strings\"\n	\"sync/atomic\"\n)\n\nvar tokens atomic.Uint64\n"},
	}},
	one("a voter that lost its disk votes on under its old identity", "S2", "cluster/consensus/identity.go",
		"	return hex.EncodeToString(b[:])\n", "	return hex.EncodeToString(make([]byte, len(b)))\n"),
	one("of two nodes, one that booted alone goes on alone", "S4", "cluster/node/two_node.go",
		"led || !n.wasQuorate() {\n", "led {\n"),
	{"of two nodes, one goes on alone without having read the other's power", "S4", []edit{
		{"cluster/node/two_node.go", "		proof, err := n.fencer.Off(ctx, v.order(s, other, from))\n", "		proof, err := stonith.Proof{}, error(nil)\n"},
		{"cluster/node/two_node.go", "contact.Heard && contact.Contact.After(p.OffSince())", "contact.Heard && len(p.Plugs) > 0"},
	}},
	one("gossip alone has a node shot", "S4", "cluster/coordinator/watch.go",
		"	return s.Gossip != \"alive\" && time.Since(s.Contact) >= w.cfg.DetectionTime\n", "	return s.Gossip == \"dead\" || s.Gossip != \"alive\" && time.Since(s.Contact) >= w.cfg.DetectionTime\n"),
	one("a node that hears no coordinator goes on", "S5", "cluster/node/groups.go",
		"	case gs.n.isolation.nobodyElse():\n", "	case gs.n.isolation.nobodyElse() || silent > 0:\n"),
	{"an order against an old boot shoots the new one", "S8", []edit{
		{"cluster/state/fencing.go", "func (t *step) closeByNewBoot(n *Node) {\n	if n.Op == 0 {\n", "func (t *step) closeByNewBoot(n *Node) {\n	if n.Op == 0 || n.Boot != \"\" {\n"},
		{"cluster/coordinator/shots.go", "	case o.Phase == state.Shooting && s.Nodes[o.Node].Boot != o.Boot:\n", "	case o.Phase == state.Shooting && s.Nodes[o.Node].Boot == \"\":\n"},
		{"cluster/scheduler/scheduler.go", "newer || live.Reachable && live.Boot != o.Boot {\n", "newer && live.Reachable && live.Boot == o.Boot {\n"},
	}},
	{"two groups may write to one disk", "S1", []edit{
		{"cluster/config/exclusive.go", "			case first.group != g.Name:\n", "			case first.group != g.Name && first.group == \"\":\n"},
		{"cluster/config/exclusive.go", "	return what != \"\" && key == other && what == same\n", "	return what != \"\" && key == other && what == same && a.Name == \"\"\n"},
	}},
}
