package sim

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/state"
)

// coverage counts what clusters went through under which fault.
type coverage struct {
	mu      sync.Mutex
	under   map[string]time.Time // faults: until when they count as under way
	lead    string
	quorate bool
	hasty   []string // orders that gossip alone brought about

	Faults  int                       `json:"faults"`
	Entries int                       `json:"entries"`
	Counts  map[string]map[string]int `json:"counts"` // by transition, then by fault
}

// transitions are the rows of the table: the life of a failover, and of the cluster around it.
var transitions = []string{
	"suspected", "ordered", "called off", "shot", "attempt failed",
	"proof: power_off", "proof: new_boot", "proof: clean_stop", "proof: watchdog", "proof: operator_word",
	"released", "granted", "started", "stopping", "moved", "powered on",
	"coordinator changed", "quorum lost", "quorum regained", "joined", "left", "configuration changed", "format raised",
}

func newCoverage() *coverage {
	return &coverage{under: map[string]time.Time{}, quorate: true, Counts: map[string]map[string]int{}}
}

// begin notes that a fault begins, and for how long it counts.
func (v *coverage) begin(fault string, long time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Faults++
	if until := time.Now().Add(long); until.After(v.under[fault]) {
		v.under[fault] = until
	}
}

// saw is called with mu held.
func (v *coverage) saw(transition string) {
	row := v.Counts[transition]
	if row == nil {
		row = map[string]int{}
		v.Counts[transition] = row
	}
	for fault, until := range v.under {
		if time.Now().Before(until) {
			row[fault]++
		}
	}
}

// entry implements witness.
func (v *coverage) entry(before, after *state.State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Entries++
	for name, is := range after.Groups {
		was := before.Groups[name]
		if was == nil {
			was = &state.Group{}
		}
		v.group(was, is)
	}
	for id, is := range after.Operations {
		was := before.Operations[id]
		if was == nil {
			v.saw("ordered")
			v.judgeOrder(is)
			was = &state.Operation{}
		}
		v.operation(was, is)
	}
	for name, is := range after.Nodes {
		was := before.Nodes[name]
		if was == nil {
			was = &state.Node{}
		}
		if is.Up && (!was.Up || is.Boot != was.Boot) {
			v.saw("joined")
		}
		if is.Left && !was.Left {
			v.saw("left")
		}
	}
	if before.Configured.Index > 0 && after.Configured.Index != before.Configured.Index {
		v.saw("configuration changed")
	}
	if after.Format() > before.Format() {
		v.saw("format raised")
	}
}

// shortest is the shortest detection time that any story has.
const shortest = time.Second

var silence = regexp.MustCompile(`^silent on every link for ([^,]+),`)

// judgeOrder holds an order of the cluster to the coordinator's own silence: gossip is a hint (S4).
func (v *coverage) judgeOrder(o *state.Operation) {
	if said := silence.FindStringSubmatch(o.Reason); said != nil && o.By == state.ByCluster {
		if long, err := time.ParseDuration(said[1]); err != nil || long < shortest {
			v.hasty = append(v.hasty, fmt.Sprintf("S4: operation %d against %s: %s", o.ID, o.Node, o.Reason))
		}
	}
}

// orders are those that should not have been.
func (v *coverage) orders() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.hasty
}

func (v *coverage) group(was, is *state.Group) {
	if is.Released != nil && (was.Released == nil || was.Released.Token != is.Released.Token) {
		v.saw("released")
		v.saw("proof: " + string(is.Released.Proof.Kind))
	}
	if is.Grant == nil {
		return
	}
	if was.Grant == nil || was.Grant.Token != is.Grant.Token {
		v.saw("granted")
		if is.Released != nil && is.Released.Proof.Node != is.Grant.Node {
			v.saw("moved")
		}
		return
	}
	if was.Grant.Phase != is.Grant.Phase {
		v.saw(string(is.Grant.Phase))
	}
}

func (v *coverage) operation(was, is *state.Operation) {
	if is.Phase != was.Phase {
		switch is.Phase {
		case state.Shooting:
			v.saw("shot")
		case state.CalledOff:
			v.saw("called off")
		case state.Done:
			if was.PowersOn() && was.ID != 0 {
				v.saw("powered on")
			}
		}
	}
	if is.Failures > was.Failures {
		v.saw("attempt failed")
	}
	if is.Proof != nil && was.Proof == nil {
		v.saw("proof: " + string(is.Proof.Kind))
	}
}

// line implements witness.
func (v *coverage) line(log []byte) {
	if bytes.Contains(log, []byte(`msg="node suspected"`)) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.saw("suspected")
	}
}

// follow watches who coordinates, until stop is called.
func (v *coverage) follow(c *Cluster) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			lead := c.Coordinator()
			v.mu.Lock()
			switch {
			case lead == "" && v.quorate:
				v.saw("quorum lost")
			case lead != "" && !v.quorate:
				v.saw("quorum regained")
			}
			if v.quorate = lead != ""; v.quorate {
				if v.lead != "" && lead != v.lead {
					v.saw("coordinator changed")
				}
				v.lead = lead
			}
			v.mu.Unlock()
		}
	}()
	return func() { close(done); <-ended }
}

// add adds what another one counted.
func (v *coverage) add(o *coverage) {
	v.Faults += o.Faults
	v.Entries += o.Entries
	for transition, row := range o.Counts {
		if v.Counts[transition] == nil {
			v.Counts[transition] = map[string]int{}
		}
		for fault, n := range row {
			v.Counts[transition][fault] += n
		}
	}
}

// impossible are the cells that cannot be filled, and why.
var impossible = map[[2]string]string{}

// empty lists the cells that nothing was seen in, of those that can be filled.
func (v *coverage) empty() (cells []string) {
	for _, transition := range transitions {
		for _, f := range tortures() {
			if v.Counts[transition][f.name] == 0 && impossible[[2]string{transition, f.name}] == "" {
				cells = append(cells, fmt.Sprintf("%s under %q", transition, f.name))
			}
		}
	}
	return cells
}

// table is all of it in Markdown: a row a fault.
func (v *coverage) table() string {
	var b strings.Builder
	b.WriteString("| fault |")
	for _, transition := range transitions {
		fmt.Fprintf(&b, " %s |", transition)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(transitions)) + "\n")
	var names []string
	for _, f := range tortures() {
		names = append(names, f.name)
	}
	for _, name := range names {
		fmt.Fprintf(&b, "| %s |", name)
		for _, transition := range transitions {
			n := fmt.Sprint(v.Counts[transition][name])
			if n == "0" && impossible[[2]string{transition, name}] != "" {
				n = "-"
			}
			fmt.Fprintf(&b, " %s |", n)
		}
		b.WriteString("\n")
	}
	for _, cell := range slices.SortedFunc(maps.Keys(impossible), func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) }) {
		fmt.Fprintf(&b, "\n- %s under %q cannot be: %s", cell[0], cell[1], impossible[cell])
	}
	return b.String()
}
