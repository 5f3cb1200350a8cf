package config

import (
	"strings"
	"testing"
	"time"
)

// silence makes nodes not answer.
func silence(names ...string) func(*Facts) {
	return func(f *Facts) { node(f, func(n *NodeFacts) { n.Answers = false }, names...) }
}

func node(f *Facts, set func(*NodeFacts), names ...string) {
	for _, name := range names {
		n := f.Nodes[name]
		set(&n)
		f.Nodes[name] = n
	}
}

func removeGamma(t testing.TB, base string) (string, string) {
	return base, withoutNode(t, base, "gamma", `, gamma = ["4"]`)
}

func removeAlpha(t testing.TB, base string) (string, string) {
	return base, withoutNode(t, base, "alpha", `alpha = ["1"], `)
}

func removeGroup(name string) func(testing.TB, string) (string, string) {
	return func(t testing.TB, base string) (string, string) { return base, without(t, base, "group", name) }
}

// fiveTo makes a change of a cluster with two witnesses more.
func fiveTo(less func(testing.TB, string) string) func(testing.TB, string) (string, string) {
	return func(t testing.TB, base string) (string, string) {
		return base + moreNodes, less(t, base+moreNodes)
	}
}

func fiveVoters(silent ...string) func(*Facts) {
	return func(f *Facts) {
		f.Nodes["delta"] = NodeFacts{Answers: true, Up: true}
		f.Nodes["epsilon"] = NodeFacts{Answers: true, Up: true}
		f.Voters = append(f.Voters, "delta", "epsilon")
		node(f, func(n *NodeFacts) { n.Answers, n.Up = false, false }, silent...)
	}
}

var (
	addresses    = `["10.0.0.13", "10.1.0.13"]`
	gammaFencing = `fencing = [["gamma-bmc"], ["pdu-a", "pdu-b"]]`
	watchdogToo  = `watchdog = "/dev/watchdog0"
fencing = [["gamma-bmc"], ["pdu-a", "pdu-b"], ["watchdog"]]`
	noWitness = func(t testing.TB, s string) string {
		return without(t, without(t, s, "node", "delta"), "node", "epsilon")
	}
)

var changeCases = []changeCase{
	{name: "nothing", change: func(t testing.TB, base string) (string, string) {
		swapped := without(t, base, "group", "db")
		db := base[strings.Index(base, "[[group]]\nname = \"db\""):strings.Index(base, "# On alpha.\n[[group]]\nname = \"log\"")]
		return base, edit(t, swapped+db, `["pdu-a", "pdu-b"]`, `["pdu-b", "pdu-a"]`, `["2", "3"]`, `["3", "2"]`, "[cluster]", "[cluster]\nport = 7846")
	}},

	// The cluster.
	{name: "refused another cluster", change: to(`name = "web"`, `name = "www"`)},
	{name: "refused data folder", change: to("[cluster]", "[cluster]\ndata_dir = \"/srv/hamgr\"")},
	{name: "key file", change: to("cluster.key", "new.key")},
	{name: "detection time", change: to("[cluster]", "[cluster]\ndetection_time = \"1s\"")},
	{name: "detection time unmeasured", change: to("[cluster]", "[cluster]\ndetection_time = \"1s\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.LongestGap, n.WriteP99 = 0, 0 }, "gamma")
	}},
	{name: "refused detection time below pauses", change: to("[cluster]", "[cluster]\ndetection_time = \"1s\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.LongestGap = 340 * time.Millisecond }, "beta")
		node(f, func(n *NodeFacts) { n.WriteP99 = 800 * time.Millisecond }, "gamma")
	}},
	{name: "longer detection time in spite of pauses", change: to("[cluster]", "[cluster]\ndetection_time = \"4s\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.LongestGap = 2 * time.Second }, "beta")
	}},
	{name: "port in maintenance", change: to("[cluster]", "[cluster]\nport = 7900"), facts: func(f *Facts) { f.Maintenance = true }},
	{name: "refused port while groups run", change: to("[cluster]", "[cluster]\nport = 7900")},
	{name: "refused port while a node is away", change: to("[cluster]", "[cluster]\nport = 7900"), facts: func(f *Facts) {
		f.Maintenance = true
		silence("gamma")(f)
	}},
	{name: "free keys", change: to("[cluster]", "[cluster]\non_quorum_loss = \"freeze\"\nfence_action = \"off\"\nstorm_window = \"2m\"")},
	{name: "refused without a majority", change: to("[cluster]", "[cluster]\nfence_action = \"off\""), facts: silence("beta", "gamma")},
	{name: "refused by a node", change: to("bmc\"\n\n[[fence_device]]\nname = \"beta-bmc\"", "bmc2\"\n\n[[fence_device]]\nname = \"beta-bmc\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Rejects = `"/etc/hamgr/secrets/bmc2" cannot be read: no such file or directory` }, "beta")
	}},
	{name: "refused inline secret", change: to(`password_file = "/etc/hamgr/secrets/bmc"`, `password = "hunter2"`)},
	{name: "refused new inline secret", change: func(t testing.TB, base string) (string, string) {
		return edit(t, base, `password_file = "/etc/hamgr/secrets/bmc"`, `password = "hunter2"`), edit(t, base, `password_file = "/etc/hamgr/secrets/bmc"`, `password = "hunter22"`)
	}},

	// Voters.
	{name: "two more voters", change: func(t testing.TB, base string) (string, string) { return base, base + moreNodes }},
	{name: "a node less", change: removeGamma},
	{name: "a node less that was proven off", change: removeGamma, facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Answers, n.Up = false, false }, "gamma")
	}},
	{name: "a node less that left", change: removeGamma, facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Answers, n.Left = false, true }, "gamma")
	}},
	{name: "refused a silent node less", change: removeGamma, facts: silence("gamma")},
	{name: "refused an unknown node less", change: removeGamma, facts: func(f *Facts) { delete(f.Nodes, "gamma") }},
	{name: "refused an unclean node less", change: removeGamma, facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Answers, n.Up, n.Unclean = false, false, "silent for 3s" }, "gamma")
	}},
	{name: "refused a node less that is being fenced", change: removeGamma, facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Op = 12 }, "gamma")
	}},
	{name: "refused a node less that holds groups", change: removeAlpha},
	{name: "refused a node less while another is away", change: removeGamma, facts: silence("beta")},
	{name: "two silent voters of five less", change: fiveTo(noWitness), facts: fiveVoters("delta", "epsilon")},
	{name: "refused two voters less while one is away", change: fiveTo(func(t testing.TB, s string) string {
		return withoutNode(t, noWitness(t, s), "gamma", `, gamma = ["4"]`)
	}), facts: fiveVoters("delta", "epsilon")},
	{name: "a node renamed", change: to(`name = "gamma"`, `name = "delta"`, `gamma = ["4"]`, `delta = ["4"]`, `gamma = ["4"]`, `delta = ["4"]`)},
	{name: "refused two nodes begins while one is out", change: func(t testing.TB, base string) (string, string) {
		_, two := removeGamma(t, base)
		return two, edit(t, two, "[cluster]", "[cluster]\ntwo_node = true")
	}, facts: func(f *Facts) {
		delete(f.Nodes, "gamma")
		f.Voters = []string{"alpha"}
	}},
	{name: "refused two nodes while one is silent", change: func(t testing.TB, base string) (string, string) {
		_, two := removeGamma(t, base)
		return base, edit(t, two, "[cluster]", "[cluster]\ntwo_node = true")
	}, facts: silence("beta")},
	{name: "two nodes", change: func(t testing.TB, base string) (string, string) {
		_, two := removeGamma(t, base)
		return base, edit(t, two, "[cluster]", "[cluster]\ntwo_node = true")
	}},

	// Nodes.
	{name: "one address more", change: to(addresses, `["10.0.0.13", "10.1.0.13", "10.2.0.13"]`)},
	{name: "one address of a silent node", change: to(addresses, `["10.0.0.13", "10.2.0.13"]`), facts: silence("gamma")},
	{name: "refused all addresses while groups run", change: to(addresses, `["10.2.0.13", "10.3.0.13"]`)},
	{name: "all addresses of one", change: to(addresses, `["10.2.0.13", "10.3.0.13"]`), facts: func(f *Facts) { f.Maintenance = true }},
	{name: "refused all addresses of a silent node", change: to(addresses, `["10.2.0.13", "10.3.0.13"]`), facts: silence("gamma")},
	{name: "refused all addresses while another is silent", change: to(addresses, `["10.2.0.13", "10.3.0.13"]`), facts: silence("beta")},
	{name: "refused all addresses of two", change: to(addresses, `["10.2.0.13", "10.3.0.13"]`, `["10.0.0.12", "10.1.0.12"]`, `["10.2.0.12", "10.3.0.12"]`), facts: func(f *Facts) { f.Maintenance = true }},
	{name: "refused all addresses of one of two", change: func(t testing.TB, base string) (string, string) {
		_, two := removeGamma(t, base)
		return two, edit(t, two, `["10.0.0.12", "10.1.0.12"]`, `["10.2.0.12"]`)
	}, facts: func(f *Facts) { f.Voters, f.Maintenance = f.Voters[:2], true }},
	{name: "refused the address that works", change: to(addresses, `["10.1.0.13"]`), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Reached = []string{"10.0.0.13"} }, "gamma")
	}},
	{name: "an address that does not work", change: to(addresses, `["10.0.0.13"]`), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Reached = []string{"10.0.0.13"} }, "gamma")
	}},
	{name: "witness", change: to("name = \"gamma\"", "role = \"witness\"\nname = \"gamma\"")},
	{name: "refused witness that holds groups", change: to("name = \"beta\"", "role = \"witness\"\nname = \"beta\"", `prefer = ["beta"]`, "")},
	{name: "refused witness that is being fenced", change: to("name = \"gamma\"", "role = \"witness\"\nname = \"gamma\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Op = 12 }, "gamma")
	}},
	{name: "refused witness that is unclean", change: to("name = \"gamma\"", "role = \"witness\"\nname = \"gamma\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Unclean = "silent for 3s" }, "gamma")
	}},
	{name: "refused capacity", change: to("capacity = 10", "capacity = 5")},
	{name: "capacity that suffices", change: to("capacity = 10", "capacity = 6")},
	{name: "refused weight", change: to("weight = 2", "weight = 7")},

	// Fencing.
	{name: "levels the other way round", change: to(`[["alpha-bmc"], ["pdu-a", "pdu-b"]]`, `[["pdu-a", "pdu-b"], ["alpha-bmc"]]`)},
	{name: "a device at another address", change: to("10.9.0.11", "10.9.0.21")},
	{name: "another level", change: to(`[["gamma-bmc"], ["pdu-a", "pdu-b"]]`, `[["gamma-bmc"], ["pdu-a"]]`, `, gamma = ["4"] }

# On`, ` }

# On`)},
	{name: "refused all levels anew", change: func(t testing.TB, base string) (string, string) {
		one := edit(t, base, `[["alpha-bmc"], ["pdu-a", "pdu-b"]]`, `[["alpha-bmc"]]`, `alpha = ["1"], `, "", `alpha = ["1"], `, "")
		return one, strings.ReplaceAll(one, "alpha-bmc", "new-bmc")
	}},
	{name: "refused a feed less while the node is unclean", change: to(`[["alpha-bmc"], ["pdu-a", "pdu-b"]]`, `[["alpha-bmc"], ["pdu-a"]]`, `alpha = ["1"], beta = ["2", "3"], gamma = ["4"] }

# On`, `beta = ["2", "3"], gamma = ["4"] }

# On`), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Answers, n.Unclean = false, "silent for 3s" }, "alpha")
	}},
	{name: "refused a plug less while an operation is open", change: to(`beta = ["2", "3"]`, `beta = ["2"]`), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Op = 12 }, "beta")
	}},
	{name: "another address of a device while an operation is open", change: to("10.9.0.12", "10.9.0.22"), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Answers, n.Unclean, n.Op = false, "silent for 3s", 12 }, "beta")
	}},

	{name: "a watchdog", change: to(gammaFencing, watchdogToo)},
	{name: "refused a watchdog of a silent node", change: to(gammaFencing, watchdogToo), facts: silence("gamma")},
	{name: "a watchdog of a node that was proven off", change: to(gammaFencing, watchdogToo), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Answers, n.Up = false, false }, "gamma")
	}},
	{name: "refused other times of an armed watchdog", change: func(t testing.TB, base string) (string, string) {
		with := edit(t, base, gammaFencing, watchdogToo)
		return with, edit(t, with, "[cluster]", "[cluster]\ndetection_time = \"2s\"")
	}, facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Unclean = "it stalls" }, "gamma")
	}},

	// Groups.
	{name: "a group less", change: removeGroup("batch")},
	{name: "refused a group less that runs", change: removeGroup("web")},
	{name: "refused a group renamed", change: to(`name = "log"`, `name = "logs"`)},
	{name: "resources of a running group", change: to(`run = ["/usr/bin/db"]`, `run = ["/usr/bin/db2"]
stop_timeout = "2m"

[[group.resource]]
name = "more"
kind = "process"
run = ["/bin/more"]`)},
	{name: "the order of resources", change: func(t testing.TB, base string) (string, string) {
		data := "[[group.resource]]\nname = \"data\"\nkind = \"mount\"\ndevice = \"/dev/sda1\"\nmountpoint = \"/srv/db\"\n"
		return base, edit(t, base, data, "", "run = [\"/usr/bin/db\"]\n", "run = [\"/usr/bin/db\"]\n"+data)
	}},
	{name: "environment of a running group", change: to(`{ PORT = "80" }`, `{ PORT = "81", TLS = "1" }`)},
	{name: "refused a resource that runs in another group", change: to("name = \"batch\"\n", "name = \"batch\"\n[[group.resource]]\nname = \"disk\"\nkind = \"mount\"\ndevice = \"/dev/sda1\"\nmountpoint = \"/mnt\"\n",
		"[[group.resource]]\nname = \"data\"\nkind = \"mount\"\ndevice = \"/dev/sda1\"\nmountpoint = \"/srv/db\"\n", "")},
	{name: "refused a resource that still runs in another group", change: to("name = \"batch\"\n", "name = \"batch\"\n[[group.resource]]\nname = \"disk\"\nkind = \"mount\"\ndevice = \"/dev/sdb1\"\nmountpoint = \"/mnt\"\n"),
		facts: func(f *Facts) {
			f.Groups["web"] = GroupFacts{Holders: []string{"beta"}, Running: true, Resources: []Resource{{Name: "disk", Kind: "mount", Options: &mountOptions{Device: "/dev/sdb1"}}}}
		}},
	{name: "refused a resource that may run in a group of one that is silent", change: to("name = \"batch\"\n", "name = \"batch\"\n[[group.resource]]\nname = \"disk\"\nkind = \"mount\"\ndevice = \"/dev/sdb1\"\nmountpoint = \"/mnt\"\n"),
		facts: func(f *Facts) {
			f.Groups["web"] = GroupFacts{Holders: []string{"beta"}, Running: true, Unknown: "beta does not answer"}
		}},
	{name: "allow where it is", change: to(`name = "db"`, "name = \"db\"\nallow = [\"alpha\", \"gamma\"]")},
	{name: "refused allow elsewhere", change: to(`name = "db"`, "name = \"db\"\nallow = [\"beta\", \"gamma\"]")},
	{name: "refused after what does not run", change: to(`name = "db"`, "name = \"db\"\nafter = [\"batch\"]")},
	{name: "after what runs", change: to("prefer = [\"beta\"]", "prefer = [\"beta\"]\nafter = [\"db\"]")},
	{name: "refused with what is elsewhere", change: to(`name = "log"`, "name = \"log\"\nwith = [\"web\"]")},
	{name: "refused with what does not run", change: to(`name = "log"`, "name = \"log\"\nwith = [\"batch\"]")},
	{name: "with what is there", change: to(`name = "log"`, "name = \"log\"\nwith = [\"db\"]")},
	{name: "refused apart from what is there", change: to(`name = "log"`, "name = \"log\"\napart = [\"db\"]")},
	{name: "apart from what is elsewhere", change: to(`name = "log"`, "name = \"log\"\napart = [\"web\"]")},
	{name: "prefer elsewhere", change: to(`name = "db"`, "name = \"db\"\nprefer = [\"beta\", \"alpha\"]")},
	{name: "refused failback at once", change: to(`name = "db"`, "name = \"db\"\nprefer = [\"beta\", \"alpha\"]\nfailback = \"always\"")},
	{name: "failback tonight", change: to(`name = "db"`, "name = \"db\"\nprefer = [\"beta\", \"alpha\"]\nfailback = \"22:00-05:30\"")},
	{name: "refused failback within its part of the day", change: to(`name = "db"`, "name = \"db\"\nprefer = [\"beta\", \"alpha\"]\nfailback = \"22:00-05:30\""), facts: func(f *Facts) { f.Minute = 60 }},
	{name: "failback to a node on standby", change: to(`name = "db"`, "name = \"db\"\nprefer = [\"beta\", \"alpha\"]\nfailback = \"always\""), facts: func(f *Facts) {
		node(f, func(n *NodeFacts) { n.Standby = true }, "beta")
	}},
}
