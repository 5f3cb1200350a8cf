package lab

// The rules that the stories show. docs/lab.md has all eight.
var (
	ruleTokens = Rule{
		Name: "S2", Title: "Tokens only grow",
		Text: "Each grant carries a number from the replicated log, greater than any before it; storage that compares refuses whoever comes late.",
		Read: []string{"resources/guard/guard.go", "docs/failover.md"},
	}
	ruleProof = Rule{
		Name: "S3", Title: "Proof before takeover",
		Text: "Nothing is granted until every node that might still write is proven unable to; silence is no proof, and neither is an accepted command.",
		Read: []string{"docs/fencing.md", "stonith/DESIGN.md", "stonith/drive.go"},
	}
	ruleQuorum = Rule{
		Name: "S4", Title: "Quorum before action",
		Text: "Whoever acts for the cluster has been elected by a majority, and of majorities there is only one.",
		Read: []string{"cluster/consensus/DESIGN.md", "docs/witness.md", "docs/two-node.md"},
	}
	ruleClocks = Rule{
		Name: "S7", Title: "No safety from clocks",
		Text: "Times decide when to suspect a node, never who may write: who was paused cannot know how late it is.",
		Read: []string{"docs/failover.md", "docs/fencing.md"},
	}
)
