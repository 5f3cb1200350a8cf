package sim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	storage "github.com/hamgr/hamgr/resources/fake"
)

var pauses = flag.Int("pauses", 2000, "how many pauses and cuts shorter than the detection time healthy nodes have to survive")

// TestNoHealthyNodeIsShot: clusters of two to nine nodes live through pauses and cuts, each of them shorter than 0.8
// detection times. Nobody may be ordered shot, and no group may stop or move: not even for a moment, for the judges count what
// was done and not what is.
//
// In half of the clusters the faults come as they come, also with no time between them. Where that leaves no coordinator
// to be heard for twice the detection time, a node lets go of its groups, as it must (S5); that alone is allowed.
func TestNoHealthyNodeIsShot(t *testing.T) {
	seed := beginSeed()
	const most = 125 // of one cluster
	for i, left := 0, *pauses; left > 0; i++ {
		s, n, faults := seed+uint64(i), 2+i%8, min(left, most)
		d, packed := []time.Duration{time.Second, 3 * time.Second}[i/8%2], (i+i/8+i/16)%2 == 0
		t.Run(fmt.Sprintf("%d nodes/%s/packed %v/%d", n, d, packed, s), func(t *testing.T) { brief(t, s, n, d, packed, faults) })
		if t.Failed() {
			return // one report is long enough
		}
		left -= faults
	}
}

var nineNodes = []string{"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"}

// brief is one cluster's life under that many short faults.
func brief(t *testing.T, seed uint64, nodes int, detection time.Duration, packed bool, faults int) {
	o := Options{Nodes: nineNodes[:nodes], Groups: []string{"db", "web", "mail"}, Detection: detection, Seed: seed}
	run(t, o, func(t *testing.T, c *Cluster) {
		b := &blinks{c: c, packed: packed, rng: rand.New(rand.NewPCG(seed, 2))}
		events, tokens := len(c.Storage.Events()), c.State().LastToken
		judge := func() {
			t.Helper()
			s, touched := c.State(), c.touched(events)
			if len(s.Operations) > 0 || c.Problems() != nil || (s.LastToken != tokens || len(touched) > 0) && !(packed && c.onlyLonely()) {
				t.Fatalf("%d orders to fence, last token %d after %d, %v\n%s", len(s.Operations), s.LastToken, tokens, touched, c.Report())
			}
		}
		for range faults {
			b.fault()
			b.breathe()
			judge()
		}
		c.Net.Loss(0)
		c.WaitRunning(10 * detection)
		time.Sleep(5 * detection)
		judge()
	})
}

// onlyLonely reports whether groups were stopped for want of a coordinator, and for nothing else.
func (c *Cluster) onlyLonely() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	stops := 0
	for line := range strings.Lines(c.logs.String()) {
		if strings.Contains(line, `msg="stopping group"`) {
			stops++
			if !strings.Contains(line, "no coordinator heard for") {
				return false
			}
		}
	}
	return stops > 0
}

// touched is what happened to the groups after so many events.
func (c *Cluster) touched(after int) []storage.Event {
	return slices.DeleteFunc(c.Storage.Events()[after:], func(e storage.Event) bool { return e.Group == "" })
}

// blinks draws short faults.
type blinks struct {
	c      *Cluster
	rng    *rand.Rand
	packed bool
	hit    []string // by the last fault
	spent  []string // the same, if no time has passed since it
}

// length of a fault: up to 0.8 detection times, and rather long. Where it leaves no majority an election comes after it, and
// both together must not take so long that the nodes let go, unless that is allowed.
func (b *blinks) length(hit int) time.Duration {
	most, x := 0.8, b.rng.Float64()
	if !b.packed && 2*(len(b.c.Nodes)-hit) <= len(b.c.Nodes) {
		most = 0.5
	}
	return time.Duration(most * (1 - x*x) * float64(b.c.Detection))
}

// breathe lets some time pass. Where the faults are packed it may be none: then the next one has other victims, since for
// the same ones it would be one long fault.
func (b *blinks) breathe() {
	d := float64(b.c.Detection)
	b.spent = nil
	switch {
	case !b.packed:
		time.Sleep(time.Duration((0.2 + b.rng.Float64()) * d))
		b.c.WaitFor(2*b.c.Detection, "somebody coordinates", func() bool { return b.c.Coordinator() != "" })
		time.Sleep(time.Duration(0.3 * d))
	case b.rng.IntN(3) > 0 || len(b.hit) == len(b.c.Nodes):
		time.Sleep(time.Duration((0.1 + b.rng.Float64()) * d))
	default:
		b.spent = b.hit
	}
}

// victims draws one node, several, or all that may be hit now.
func (b *blinks) victims() []string {
	may := slices.DeleteFunc(slices.Clone(b.c.Nodes), func(n string) bool { return slices.Contains(b.spent, n) })
	b.rng.Shuffle(len(may), func(i, j int) { may[i], may[j] = may[j], may[i] })
	if len(b.spent) > 0 {
		return may[:1] // all the others, deaf to those that were just hit, would be one long fault, too
	}
	switch b.rng.IntN(4) {
	case 0:
		return may[:1+b.rng.IntN(len(may))]
	case 1:
		return may
	}
	return may[:1]
}

func (b *blinks) fault() {
	c, hit, kind := b.c, b.victims(), b.rng.IntN(8)
	switch {
	case kind != 5 && kind != 6:
	case len(b.spent) > 0: // it would hit the same ones again
		kind = 0
	default:
		hit = c.Nodes
	}
	took := b.length(len(hit))
	b.hit = hit
	var what string
	begin, end := func(string) {}, func(string) {}
	switch kind {
	case 0, 1:
		what, begin, end = "freeze", c.Freeze, c.Thaw
	case 2:
		what, begin, end = "cut", c.Cut, c.Heal
	case 3:
		what = "one-way cut"
		in := b.rng.IntN(2) == 0
		begin, end = b.eachPeer(in, !in, c.Net.Cut), b.eachPeer(in, !in, c.Net.Heal)
	case 4:
		what = "cut of one link"
		i, in, out := b.rng.IntN(2), b.rng.IntN(3), b.rng.IntN(3)
		begin = b.eachPeer(in > 0, out > 0, func(from, to string) { c.Net.CutLink(i, from, to) })
		end = b.eachPeer(in > 0, out > 0, func(from, to string) { c.Net.HealLink(i, from, to) })
	case 5, 6:
		what = "cuts between pairs"
		b.pairs(took)
		begin, end = nil, nil
	case 7:
		loss := b.rng.Float64() * 0.2
		what = fmt.Sprintf("%.2f lost", loss)
		c.Net.Loss(loss)
	}
	c.note("%s: %s for %s", what, strings.Join(hit, ", "), took)
	if begin == nil {
		return
	}
	for _, n := range hit {
		begin(n)
	}
	time.Sleep(took)
	for _, n := range hit {
		end(n)
	}
}

// eachPeer does something with the ways into a node, out of it, or both.
func (b *blinks) eachPeer(in, out bool, do func(from, to string)) func(node string) {
	return func(node string) {
		for _, peer := range b.c.Nodes {
			if peer != node && in {
				do(peer, node)
			}
			if peer != node && out {
				do(node, peer)
			}
		}
	}
}

// pairs cuts a random set of ways, each for as long as it is drawn and not longer than took.
func (b *blinks) pairs(took time.Duration) {
	share := b.rng.Float64()
	var cut [][2]string
	for _, from := range b.c.Nodes {
		for _, to := range b.c.Nodes {
			if from != to && b.rng.Float64() < share {
				cut = append(cut, [2]string{from, to})
			}
		}
	}
	for _, way := range cut {
		b.c.Net.Cut(way[0], way[1])
	}
	b.rng.Shuffle(len(cut), func(i, j int) { cut[i], cut[j] = cut[j], cut[i] })
	began := time.Now()
	for _, way := range cut {
		if left := took - time.Since(began); left > 0 {
			time.Sleep(time.Duration(b.rng.Int64N(int64(left)/2 + 1)))
		}
		b.c.Net.Heal(way[0], way[1])
	}
}
