package link_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

const beat = detection / 16

// direction is what one node knows of one direction of one link.
func (c *cluster) linkHealth(of, with, i int) link.LinkHealth {
	c.t.Helper()
	for _, h := range c.links[of].Health() {
		if h.Node == c.nodes[with].Name {
			return h.Links[i]
		}
	}
	c.t.Fatalf("no link %d", i)
	return link.LinkHealth{}
}

// wantDirection checks what both ends know of the direction from a to b after it has been
// as it is for a detection time.
func (c *cluster) wantDirection(i, a, b int, works, wordBack bool) {
	c.t.Helper()
	far, near := c.linkHealth(b, a, i), c.linkHealth(a, b, i)
	what := fmt.Sprintf("link %d, %s to %s, works %v", i, c.nodes[a].Name, c.nodes[b].Name, works)
	if in := time.Duration(far.InAgeMS) * time.Millisecond; (in <= 4*beat) != works || !works && in < detection*9/10 {
		c.t.Errorf("%s: the receiver says %s", what, in)
	}
	if !wordBack {
		if said := time.Duration(near.OutWordAgeMS) * time.Millisecond; said < detection*9/10 {
			c.t.Errorf("%s: the sender has word %s ago, but cannot", what, said)
		}
		return
	}
	out := time.Duration(near.OutAgeMS) * time.Millisecond
	if near.OutAgeMS < 0 || (out <= 8*beat) != works {
		c.t.Errorf("%s: the sender says %s", what, out)
	}
}

func TestBubbleDirections(t *testing.T) {
	for _, c := range []struct {
		what string
		cuts [][3]int // link, from, to
	}{
		{"nothing", nil},
		{"one link, one way", [][3]int{{0, 0, 1}}},
		{"one link, the other way", [][3]int{{1, 1, 0}}},
		{"one link, both ways", [][3]int{{1, 1, 0}, {1, 0, 1}}},
		{"one way each", [][3]int{{0, 0, 1}, {1, 1, 0}}},
		{"all links, one way", [][3]int{{0, 0, 1}, {1, 0, 1}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t, "alpha", "beta")
				cl.network.Delay(time.Millisecond, 40*time.Millisecond) // reports overtake each other
				cl.network.Duplicate(0.3)
				time.Sleep(detection)
				cut := map[[3]int]bool{}
				for _, d := range c.cuts {
					cut[d] = true
					cl.network.CutLink(d[0], cl.nodes[d[1]].Name, cl.nodes[d[2]].Name)
				}
				time.Sleep(detection)
				for i := range 2 {
					for a := range 2 {
						b := 1 - a
						back := !cut[[3]int{0, b, a}] || !cut[[3]int{1, b, a}]
						cl.wantDirection(i, a, b, !cut[[3]int{i, a, b}], back)
					}
				}
				cl.network.HealAll()
				time.Sleep(detection)
				for i := range 2 {
					cl.wantDirection(i, 0, 1, true, true)
					cl.wantDirection(i, 1, 0, true, true)
				}
			})
		})
	}
}

// TestBubbleFlapping: of a link that comes and goes, the ages follow.
func TestBubbleFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		time.Sleep(detection)
		for range 5 {
			c.network.CutLink(0, "alpha", "beta")
			time.Sleep(detection)
			c.wantDirection(0, 0, 1, false, true)
			c.wantDirection(1, 0, 1, true, true)
			c.network.HealLink(0, "alpha", "beta")
			time.Sleep(detection / 3)
			c.wantDirection(0, 0, 1, true, true)
		}
	})
}

// TestBubbleLargePackets: a link that loses large packets alone is named at both ends, and at
// no time else.
func TestBubbleLargePackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "alpha", "beta")
		want := func(when string, lost bool) {
			t.Helper()
			for i := range 2 {
				in, out := c.linkHealth(1, 0, i), c.linkHealth(0, 1, i)
				if in.InLargeLost != (lost && i == 1) || out.OutLargeLost != (lost && i == 1) || in.OutLargeLost || out.InLargeLost {
					t.Errorf("%s, link %d: beta %+v, alpha %+v", when, i, in, out)
				}
			}
		}
		for range 10 {
			time.Sleep(detection / 2)
			want("healthy", false)
		}
		c.network.Narrow(1, "alpha", "beta", 1100)
		time.Sleep(9 * detection)
		want("narrow", true)
		c.network.Cut("alpha", "beta")
		time.Sleep(20*detection + detection/5) // the next large one is far
		c.network.HealAll()
		for range 10 {
			time.Sleep(detection / 2)
			want("after a cut", false)
		}
	})
}

// condition is what a link between two nodes does.
type condition struct {
	cut    [2]bool // from the first to the second, and back
	narrow bool
}

func (c condition) works() bool { return !c.cut[0] && !c.cut[1] }

// weather changes the links at random, and never takes the last one that works.
type weather struct {
	*cluster
	random *rand.Rand
	pairs  map[[2]int][]condition
	next   map[[3]int]time.Time // when a link of a pair changes
}

func (w *weather) set(pair [2]int, i int, c condition) {
	for d, cut := range c.cut {
		from, to := w.nodes[pair[d]].Name, w.nodes[pair[1-d]].Name
		if cut {
			w.network.CutLink(i, from, to)
		} else {
			w.network.HealLink(i, from, to)
		}
		size := 1 << 16
		if c.narrow {
			size = 600
		}
		w.network.Narrow(i, from, to, size)
	}
	w.pairs[pair][i] = c
}

// step changes the links whose time has come.
func (w *weather) step(now time.Time) {
	for pair, links := range w.pairs {
		for i, was := range links {
			at := [3]int{pair[0], pair[1], i}
			if now.Before(w.next[at]) {
				continue
			}
			// 0.3 to 3 detection times.
			w.next[at] = now.Add(detection*3/10 + time.Duration(w.random.Int64N(int64(detection*27/10))))
			c := condition{}
			if was.works() {
				c = []condition{{cut: [2]bool{true, true}}, {cut: [2]bool{true, false}}, {cut: [2]bool{false, true}}, {narrow: true}}[w.random.IntN(4)]
			}
			others := false
			for j, other := range links {
				others = others || j != i && other.works()
			}
			if others || c.works() {
				w.set(pair, i, c)
			}
		}
	}
}

// TestBubbleWeather: with 2 to 5 nodes and 2 or 3 links that are lost, one-way, narrow and
// flapping at random, contact stays as long as one link works both ways; and when the
// weather calms, both ends know what works.
func TestBubbleWeather(t *testing.T) {
	began := time.Now()
	var worst time.Duration
	for seed := range uint64(schedules) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			names := []string{"alpha", "beta", "gamma", "delta", "epsilon"}[:2+r.IntN(4)]
			w := &weather{newClusterOf(t, 2+r.IntN(2), names...), r, map[[2]int][]condition{}, map[[3]int]time.Time{}}
			w.network.Delay(100*time.Microsecond, 5*time.Millisecond)
			time.Sleep(detection / 4)
			links := len(w.nodes[0].Addresses)
			for a := range names {
				for b := range a {
					w.pairs[[2]int{a, b}] = make([]condition, links)
				}
			}
			highest := w.watchContact()
			for end := time.Now().Add(5 * detection); time.Now().Before(end); time.Sleep(beat / 2) {
				w.step(time.Now())
			}
			time.Sleep(detection)
			top := highest()
			worst = max(worst, top)
			if top >= detection {
				t.Errorf("seed %d: a contact was %s old", seed, top)
			}
			for pair, links := range w.pairs {
				for i, c := range links {
					w.wantDirection(i, pair[0], pair[1], !c.cut[0], true)
					w.wantDirection(i, pair[1], pair[0], !c.cut[1], true)
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d schedules in %s; the oldest contact was %.2f detection times", schedules, time.Since(began), float64(worst)/float64(detection))
}
