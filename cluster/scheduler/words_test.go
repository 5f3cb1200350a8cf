package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// do carries out one line: a change of the view, or a command.
func (sc *scenario) do(w []string) error {
	arg := func(i int) string {
		if i < len(w) {
			return w[i]
		}
		return ""
	}
	switch w[0] {
	case "live": // NODE BOOT
		sc.v.Nodes[arg(1)] = Liveness{Reachable: true, Boot: arg(2)}
	case "mute": // NODE: silent, but not yet failed
		sc.v.Nodes[arg(1)] = Liveness{Boot: sc.v.Nodes[arg(1)].Boot}
	case "gone": // NODE WHY
		sc.v.Nodes[arg(1)] = Liveness{Gone: strings.Join(w[2:], " ")}
	case "unarmed":
		sc.v.Unarmed = true
	case "self":
		sc.v.Self = arg(1)
	case "starting":
		sc.v.Settled = false
	case "settled":
		sc.v.Settled = true
	case "action":
		sc.v.FenceAction = state.FenceAction(arg(1))
	case "policy": // storm SECONDS | quarantine AFTER WINDOW TIME, in seconds
		return sc.policy(arg(1), w[2:])
	case "later": // SECONDS
		n, err := strconv.ParseInt(arg(1), 10, 64)
		sc.v.Since += n * 1000
		return err
	case "executors": // TARGET NODE..., or nothing
		if sc.v.Executors = nil; arg(1) == "" {
			return nil
		}
		sc.v.Executors = map[string][]string{arg(1): w[2:]}
	case "fenced": // NODE BOOT: joins, is lost with what it holds, and is proven off
		return sc.fenced(arg(1), arg(2))
	case "busy":
		sc.v.Busy[sc.op(arg(1))] = true
	case "free":
		delete(sc.v.Busy, sc.op(arg(1)))
	case "daytime": // HH:MM, or unknown
		if sc.v.Minute = -1; arg(1) != "unknown" {
			var h, m int
			_, err := fmt.Sscanf(arg(1), "%d:%d", &h, &m)
			sc.v.Minute = 60*h + m
			return err
		}
	case "commit": // everything that is planned and committable
		return sc.commitPlan()
	case "settle": // and the nodes do what they are told, until nothing is left to do
		return sc.settle()
	default:
		c, err := sc.command(w[0], w[1:])
		if err != nil {
			return err
		}
		return sc.commit(c)
	}
	return nil
}

func (sc *scenario) commitPlan() error {
	for _, a := range Plan(sc.s, sc.v) {
		if a.Commit != nil {
			if err := sc.commit(*a.Commit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (sc *scenario) settle() error {
	var trail strings.Builder
	for round := range 64 {
		before := sc.index
		if round > 54 {
			fmt.Fprintf(&trail, "%s%s\n", sc.where(), sc.plan())
		}
		if err := sc.commitPlan(); err != nil {
			return err
		}
		for _, name := range sc.s.GroupNames() {
			g := sc.s.Groups[name]
			if g == nil || g.Grant == nil || g.Grant.Phase == state.Started || !sc.v.Nodes[g.Grant.Node].Reachable {
				continue
			}
			c := state.Command{Started: sc.report(name)}
			if g.Grant.Phase == state.Stopping {
				c = state.Command{Stopped: sc.report(name)}
			}
			if err := sc.commit(c); err != nil {
				return err
			}
		}
		if sc.index == before {
			return nil
		}
	}
	return fmt.Errorf("it does not settle:\n%s", &trail)
}

// command makes a command of a line.
func (sc *scenario) command(word string, w []string) (state.Command, error) {
	for len(w) < 4 {
		w = append(w, "")
	}
	var c state.Command
	switch word {
	case "configure": // NODE... (! marks a witness), then groups as GROUP:PREFER,PREFER
		sc.conf = state.Configure{Cluster: "test", Digest: "x"}
		for _, f := range w {
			name, prefer, isGroup := strings.Cut(f, ":")
			switch {
			case f == "":
			case isGroup:
				sc.conf.Groups = append(sc.conf.Groups, state.ConfigGroup{Name: name, Rules: state.Rules{Weight: 1, Prefer: list(prefer)}})
			case strings.HasPrefix(f, "!"):
				sc.conf.Nodes = append(sc.conf.Nodes, state.ConfigNode{Name: f[1:], Role: state.Witness})
			default:
				sc.conf.Nodes = append(sc.conf.Nodes, state.ConfigNode{Name: f, Role: state.Member})
			}
		}
		c.Configure = sc.configure()
	case "group": // NAME [RULE=...]...: is configured so from now on
		g := state.ConfigGroup{Name: w[0]}
		var err error
		if g.Rules, err = rules(w[1:]); err != nil {
			return c, err
		}
		sc.conf.Groups = append(slices.DeleteFunc(sc.conf.Groups, func(o state.ConfigGroup) bool { return o.Name == w[0] }), g)
		c.Configure = sc.configure()
	case "drop": // GROUP is configured no longer
		sc.conf.Groups = slices.DeleteFunc(sc.conf.Groups, func(o state.ConfigGroup) bool { return o.Name == w[0] })
		c.Configure = sc.configure()
	case "capacity": // NODE CAPACITY
		n, err := strconv.Atoi(w[1])
		if err != nil {
			return c, err
		}
		for i, node := range sc.conf.Nodes {
			if node.Name == w[0] {
				sc.conf.Nodes[i].Capacity = n
			}
		}
		c.Configure = sc.configure()
	case "started":
		c.Started = sc.report(w[0])
	case "stopped":
		c.Stopped = sc.report(w[0])
	case "failed": // GROUP [halt|fence]
		c.Failed = sc.report(w[0])
		c.Failed.Verdict = state.Verdict(w[1])
	case "stopfailed":
		c.StopFailed = sc.report(w[0])
	case "expire": // GROUP NODE
		c.Expire = &state.Expire{Group: w[0], Node: w[1], Count: sc.s.Groups[w[0]].Failures[w[1]].Count}
	default:
		if ok := sc.word(&c, word, w) || sc.fencing(&c, word, w); !ok {
			return c, fmt.Errorf("unknown word %q", word)
		}
	}
	return c, nil
}

// word makes a command of an operator's word on nodes and groups.
func (sc *scenario) word(c *state.Command, word string, w []string) bool {
	switch word {
	case "standby": // NODE on|off
		c.Standby = &state.Standby{Node: w[0], On: w[1] == "on", By: "root"}
	case "clear": // GROUP [NODE]
		c.Clear = &state.Clear{Group: w[0], Node: w[1]}
	case "enable", "disable": // GROUP
		c.Enable = &state.Enable{Group: w[0], On: word == "enable", By: "root"}
	case "maintain": // node NODE on|off, group GROUP on|off, cluster on|off
		c.Maintain = &state.Maintain{By: "root"}
		switch w[0] {
		case "node":
			c.Maintain.Node, c.Maintain.On = w[1], w[2] == "on"
		case "group":
			c.Maintain.Group, c.Maintain.On = w[1], w[2] == "on"
		default:
			c.Maintain.On = w[1] == "on"
		}
	case "move", "away": // GROUP NODE [SECONDS]
		seconds, _ := strconv.ParseInt(w[2], 10, 64)
		c.Move = &state.MoveGroup{Group: w[0], To: w[1], For: seconds * 1000, By: "root"}
		if word == "away" {
			c.Move.To, c.Move.From = "", w[1]
		}
	case "restart": // GROUP [TOKEN]
		c.Restart = &state.RestartGroup{Group: w[0], By: "root"}
		if g := sc.s.Groups[w[0]]; g != nil && g.Grant != nil {
			c.Restart.Token = g.Grant.Token
		}
		if w[1] != "" {
			c.Restart.Token, _ = strconv.ParseUint(w[1], 10, 64)
		}
	default:
		return false
	}
	return true
}

// fencing makes a command of what is said of nodes, and done to them.
func (sc *scenario) fencing(c *state.Command, word string, w []string) bool {
	switch word {
	case "join": // NODE BOOT [GROUP WHAT]
		c.Join = &state.Join{Node: w[0], Boot: w[1]}
		if w[2] != "" {
			c.Join.Found = map[string]string{w[2]: w[3]}
		}
		sc.v.Nodes[w[0]] = Liveness{Reachable: true, Boot: w[1]}
	case "leave":
		c.Leave = &state.Leave{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot}
	case "fence": // NODE ACTION by an operator
		c.Order = &state.Order{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Action: state.FenceAction(w[1]), Reason: "by hand", By: "root"}
	case "order": // NODE, by the cluster
		c.Order = &state.Order{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Action: sc.v.FenceAction, Reason: "silent", By: state.ByCluster}
	case "rehearse": // NODE
		c.Order = &state.Order{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Action: state.FenceRehearse, Reason: "monthly", By: "root", Level: 1}
	case "confirm": // NODE
		c.Confirm = &state.Confirm{Node: w[0], Boot: sc.s.Nodes[w[0]].Boot, Reason: "pulled its plug", By: "root"}
	case "shot": // NODE EXECUTOR
		c.Shoot = &state.Shoot{Op: sc.op(w[0]), Executor: w[1]}
	case "missed":
		c.ShotFailed = &state.ShotFailed{Op: sc.op(w[0]), Executor: sc.s.Operations[sc.op(w[0])].Executor, Error: "no answer"}
	case "proven":
		c.ShotProven = &state.ShotProven{Op: sc.op(w[0]), Executor: sc.s.Operations[sc.op(w[0])].Executor, Evidence: []string{"read off twice"}}
	case "on":
		c.PoweredOn = &state.PoweredOn{Op: sc.op(w[0])}
	default:
		return false
	}
	return true
}

// configure gives the configuration as it is now.
func (sc *scenario) configure() *state.Configure {
	c := sc.conf
	c.Nodes, c.Groups = slices.Clone(c.Nodes), slices.Clone(c.Groups)
	return &c
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// rules reads the rules of a group: after=a,b with= apart= prefer= allow= weight=3 failback=always|22:00-05:30 expiry=60
func rules(w []string) (state.Rules, error) {
	r := state.Rules{Weight: 1}
	for _, f := range w {
		key, value, _ := strings.Cut(f, "=")
		var err error
		switch key {
		case "":
		case "after":
			r.After = list(value)
		case "with":
			r.With = list(value)
		case "apart":
			r.Apart = list(value)
		case "prefer":
			r.Prefer = list(value)
		case "allow":
			r.Allow = list(value)
		case "weight":
			r.Weight, err = strconv.Atoi(value)
		case "expiry":
			r.FailureExpiry, err = strconv.ParseInt(value+"000", 10, 64)
		case "failback":
			if r.Failback.Always = value == "always"; !r.Failback.Always {
				var h1, m1, h2, m2 int
				_, err = fmt.Sscanf(value, "%d:%d-%d:%d", &h1, &m1, &h2, &m2)
				r.Failback.From, r.Failback.To = 60*h1+m1, 60*h2+m2
			}
		default:
			err = fmt.Errorf("unknown rule %q", f)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func (sc *scenario) commit(c state.Command) error {
	sc.index++
	c.Elapsed, sc.v.Since = sc.v.Since, 0
	next, res := state.Apply(sc.s, sc.index, c)
	if res.Err != nil {
		return res.Err
	}
	if err := state.CheckStep(sc.s, next); err != nil {
		return err
	}
	sc.s = next
	return state.Check(next)
}

func (sc *scenario) policy(rule string, args []string) error {
	var n []int64
	for _, a := range args {
		i, err := strconv.ParseInt(a, 10, 64)
		if err != nil {
			return err
		}
		n = append(n, i)
	}
	p := &sc.v.Policy
	switch {
	case rule == "storm" && len(n) == 1:
		p.StormWindow = n[0] * 1000
	case rule == "quarantine" && len(n) == 3:
		p.QuarantineAfter, p.QuarantineWindow, p.QuarantineTime = int(n[0]), n[1]*1000, n[2]*1000
	default:
		return fmt.Errorf("policy %s %v", rule, n)
	}
	return nil
}

func (sc *scenario) fenced(node, boot string) error {
	for _, line := range []string{"join NODE BOOT", "order NODE", "shot NODE gamma", "proven NODE"} {
		line = strings.NewReplacer("NODE", node, "BOOT", boot).Replace(line)
		if err := sc.do(strings.Fields(line)); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	sc.v.Nodes[node] = Liveness{Gone: "silent"}
	return nil
}

// op is the number of the open operation against a node.
func (sc *scenario) op(node string) uint64 {
	if n := sc.s.Nodes[node]; n != nil {
		return n.Op
	}
	return 0
}

func (sc *scenario) report(group string) *state.Report {
	gr := sc.s.Groups[group].Grant
	return &state.Report{Group: group, Token: gr.Token, Node: gr.Node, Boot: gr.Boot, Resource: "app", Error: "exit status 1"}
}
