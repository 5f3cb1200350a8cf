package watchdog

import (
	"fmt"
	"time"
)

// Claim is what a node tells of its watchdog with each question to the coordinator. The coordinator commits it when it
// has changed, before it answers, so that each later coordinator goes by the one that was answered last.
type Claim struct {
	Boot string `json:"boot"`
	// Armed says that the node's silence can be counted on: it holds something under an armed watchdog that works, as
	// far as it knows, and that it will not feed for longer than Expiry allows.
	Armed bool `json:"armed"`
	// Tested is whether a test on this very device reset the host.
	Tested bool `json:"tested"`
	// Why tells what is missing from Armed or Tested.
	Why string `json:"why,omitempty"`
	// Expiry is how long after the last contact the watchdog must have fired.
	Expiry time.Duration `json:"expiry_ns"`
}

// Mark stands for a question to the coordinator: when it was asked, and what it claimed.
type Mark struct {
	at    time.Duration
	turns int
}

// excuse is why a node that hears no coordinator is fed all the same.
type excuse struct {
	why string
	// known: a coordinator has answered a question that did not claim Armed any more. Only then does it hold.
	known bool
	turns int // counts the changes
}

func (e excuse) holds() bool { return e.why != "" && e.known }

// Ask is called before each question to the coordinator, and gives what goes with it.
func (g *Guard) Ask() (Claim, Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.claim(), Mark{g.Now(), g.excuse.turns}
}

// Heard is called with the mark of a question that was answered by a coordinator that led after it came.
func (g *Guard) Heard(m Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = max(g.heard, m.at)
	g.agreed = true // each question of this daemon spoke of its terms
	if m.turns == g.excuse.turns && g.excuse.why != "" {
		g.excuse.known = true
	}
}

// Undisputed is called with the mark of a question after which no coordinator can have been elsewhere: whoever leads
// later begins to measure this node's silence after it.
func (g *Guard) Undisputed(m Mark) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.heard = max(g.heard, m.at)
}

// Excuse has the watchdog fed although no coordinator is heard, as what is in maintenance is not stopped; with an empty
// text, no longer. It begins to hold once a coordinator knows it: before that, others count on the silence of this node.
func (g *Guard) Excuse(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if why != g.excuse.why {
		known := g.excuse.known && why != "" // only the words change
		g.excuse = excuse{why: why, known: known, turns: g.excuse.turns + 1}
	}
}

// claim needs the lock.
func (g *Guard) claim() Claim {
	v, t := g.visible, g.tested
	c := Claim{Boot: g.Boot, Tested: t.Passed(), Expiry: expiry(g.Timing, v.info.Pretimeout)}
	if v.terms != (terms{}) { // of the two, as long as they differ, the later one
		c.Expiry = max(c.Expiry, expiry(v.terms.Timing, v.info.Pretimeout))
	}
	switch {
	case g.Path == Off:
		c.Why = "the node has none"
	case g.Path == Fake:
		c.Why = "it is a fake"
	case v.trouble != nil:
		c.Why = v.trouble.Error()
	case !v.armed || v.holds == 0:
		c.Why = "it is not armed: the node holds nothing"
	case !g.LetsGo || !v.terms.LetsGo:
		c.Why = `a node without coordinator keeps what it holds (on_quorum_loss = "freeze")`
	case g.excuse.why != "":
		c.Why = g.excuse.why
	case v.excused != "":
		c.Why = v.excused // a daemon that starts now would still go by it
	case !v.info.Hardware():
		c.Why = v.info.Name + " is part of the kernel, and hangs with it"
	case !t.Passed():
		c.Armed, c.Why = true, t.Why
	case t.Identity != v.info.Name:
		c.Armed, c.Tested, c.Why = true, false, fmt.Sprintf("the test was of %q, this is %q", t.Identity, v.info.Name)
	default:
		c.Armed = true
	}
	return c
}

// Report is what an operator is shown.
type Report struct {
	Path     string
	Identity string // as the driver says once it is open
	Armed    bool
	Timeout  time.Duration // as the driver made it; 0 if it is not armed
	Fed      time.Duration // how long ago; 0 if it is not armed
	// Trouble is why it guards nothing although it should; Starved, why it is not fed, and resets the host.
	Trouble string
	Starved string
	Test    Test
	Claim   Claim
	// LastBoot is what the driver says of the last boot (WDIOF_*).
	LastBoot uint32
}

// Report never waits for the device.
func (g *Guard) Report() Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.visible
	r := Report{Path: g.Path, Identity: v.info.Name, Armed: v.armed, Test: g.tested, Claim: g.claim(), LastBoot: g.lastBoot}
	if v.armed {
		r.Timeout, r.Fed = v.timeout, g.Now()-v.fed
	}
	if v.trouble != nil {
		r.Trouble = v.trouble.Error()
	}
	if v.starved != nil {
		r.Starved = v.starved.Error()
	} else if v.armed && r.Fed > v.timeout/2 {
		r.Starved = fmt.Sprintf("it was not fed for %s: the driver hangs, or this process stood still", r.Fed.Round(time.Millisecond))
	}
	return r
}

// Verdict is what an armed watchdog proves of a silent node.
type Verdict struct {
	Proven bool
	// Wait is how much longer the silence has to last, if nothing is heard meanwhile.
	Wait time.Duration
	// Never is why waiting proves nothing; empty if it does.
	Never string
	// Why tells it in words.
	Why string
}

// Case is a silent node as its judge sees it.
type Case struct {
	Boot string // the boot that is to be proven over
	// Claim is the last one that was committed for the node; nil if there is none.
	Claim *Claim
	// Silent is for how long the judge has heard nothing from the node, on any link, by its own monotonic clock. Time
	// in which the judge did not run, was stopped itself, or did not lead yet is none of it.
	Silent time.Duration
	// Expiry is what the judge's own configuration says of that node.
	Expiry time.Duration
}

// Decide says whether the node must have been reset (proof (e)).
func Decide(c Case) Verdict {
	never := func(format string, args ...any) Verdict {
		v := Verdict{Never: fmt.Sprintf(format, args...)}
		v.Why = "the watchdog proves nothing: " + v.Never
		return v
	}
	switch {
	case c.Boot == "":
		return never("it is not known in which boot the node was")
	case c.Claim == nil:
		return never("the node told of no watchdog")
	case c.Claim.Boot != c.Boot:
		return never("the node told of its watchdog in another boot")
	case !c.Claim.Armed:
		return never("it was not armed when the node was last heard: %s", c.Claim.Why)
	case !c.Claim.Tested:
		return never("it was never seen to work: %s", c.Claim.Why)
	case c.Claim.Expiry <= 0 || c.Expiry <= 0:
		return never("it is not known when it fires")
	}
	needed := max(c.Claim.Expiry, c.Expiry)
	if wait := needed - c.Silent; wait > 0 {
		return Verdict{Wait: wait, Why: fmt.Sprintf("silent for %s; its watchdog has fired for certain after %s", c.Silent.Round(time.Millisecond), needed)}
	}
	return Verdict{Proven: true, Why: fmt.Sprintf("its armed and tested watchdog has fired: silent for %s, and %s are enough", c.Silent.Round(time.Millisecond), needed)}
}
