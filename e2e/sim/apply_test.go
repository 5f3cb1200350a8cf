package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
	storage "github.com/hamgr/hamgr/resources/fake"
)

// threeNodes is a configuration of three nodes, with db on beta and web on gamma; db writes to two disks.
func threeNodes() *site {
	s := &site{detection: time.Second, cluster: quietPolicy, groups: []siteGroup{
		{"db", []string{"sda", "sdb"}, map[string]string{"prefer": `["beta"]`}},
		{"web", []string{"sdc"}, map[string]string{"prefer": `["gamma"]`}},
	}}
	for i, n := range []string{"alpha", "beta", "gamma"} {
		s.nodes = append(s.nodes, siteNode{name: n, number: i + 1, links: []int{0, 1}, devices: 1})
	}
	return s
}

// apply has an operator at a host apply a configuration.
func (c *Cluster) apply(host string, s *site) (api.ApplyResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return c.Operator(host).Apply(ctx, api.ApplyRequest{Text: s.text(), From: c.State().Configured.Index, By: "anna"})
}

// mustApply does, insists that it is accepted, and waits until every node that is up runs with it.
func (c *Cluster) mustApply(s *site) {
	c.t.Helper()
	res, err := c.apply(c.Coordinator(), s)
	if err != nil || !res.Applied {
		c.t.Fatalf("not applied: %v %+v\n%s", err, res.Refused, s.text())
	}
	c.adopt(s)
}

// adopt has the test go by a configuration that was applied, and waits until the cluster does.
func (c *Cluster) adopt(s *site) {
	c.t.Helper()
	c.Site, c.Nodes, c.Detection, c.Groups = s, s.names(), s.detection, nil
	for _, g := range s.groups {
		c.Groups = append(c.Groups, g.name)
	}
	c.WaitFor(time.Duration(len(s.nodes)+20)*max(s.detection, 3*time.Second), "every node that is up runs with the new configuration", func() bool { return c.follow(s.text()) })
}

// follow reports whether every host of the cluster whose daemon runs has the text, and there is a coordinator.
func (c *Cluster) follow(text string) bool {
	if c.State().Text != text || c.Coordinator() == "" {
		return false
	}
	for _, n := range c.Nodes {
		h := c.hosts[n]
		h.mu.Lock()
		behind := h.on && (h.process == nil && c.State().Nodes[n].Up || h.process != nil && h.process.setup.Text != text)
		h.mu.Unlock()
		if behind && !h.mute() {
			return false
		}
	}
	return true
}

// mustRefuse insists that a configuration is refused because of a key, and that nothing changes.
func (c *Cluster) mustRefuse(s *site, because string) {
	c.t.Helper()
	before := c.State().Configured
	res, err := c.apply(c.Coordinator(), s)
	said := ""
	for _, o := range res.Refused {
		said += o.Key + ": " + o.Message + "\n"
	}
	if err != nil || res.Applied || !strings.Contains(said, because) || c.State().Configured != before {
		c.t.Errorf("applied %v, refused %q, %v; want %q", res.Applied, said, err, because)
	}
}

// disturbed is what was done to those groups, after so many events.
func (c *Cluster) disturbed(after int, groups ...string) []storage.Event {
	return slices.DeleteFunc(c.touched(after), func(e storage.Event) bool { return !slices.Contains(groups, e.Group) })
}

// TestDiskGoesFromOneGroupToAnother: a disk is taken out of a group that runs with it, and then given to another one. It goes on
// writing until it is stopped, whatever the configuration says, and until then nobody else gets it.
func TestDiskGoesFromOneGroupToAnother(t *testing.T) {
	s := threeNodes()
	run(t, Options{Site: s}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		both := s.clone()
		both.group("db").disks, both.group("web").disks = []string{"sda"}, []string{"sdc", "sdb"}
		c.mustRefuse(both, "db runs on beta with the same one")
		taken := s.clone()
		taken.group("db").disks = []string{"sda"}
		c.mustApply(taken)
		time.Sleep(5 * time.Second)
		c.mustRefuse(both, "db runs on beta with the same one")
		// The daemon that started it is another one by now, and the coordinator too.
		c.RestartDaemon("beta", time.Second)
		c.RestartDaemon(c.Coordinator(), time.Second)
		time.Sleep(5 * time.Second)
		c.mustRefuse(both, "db runs on beta with the same one")
		// Nobody can tell while it is silent.
		c.Freeze("beta")
		res, err := c.apply(c.Coordinator(), both)
		if res.Applied {
			t.Errorf("applied while the holder is silent: %v", err)
		}
		c.Thaw("beta")
		c.WaitFor(time.Minute, "db runs", func() bool {
			return c.up() == 3 && c.Owner("db") != "" && c.State().Groups["db"].Grant.Phase == "started"
		})
		if c.State().Nodes["beta"].Boot == "beta-boot1" {
			change(t, c, api.ChangeRequest{Verb: api.ChangeRestart, Group: "db"})
		}
		c.WaitFor(time.Minute, "it runs without the disk", func() bool { return c.Runs("db") })
		time.Sleep(2 * time.Second)
		c.mustApply(both)
		change(t, c, api.ChangeRequest{Verb: api.ChangeRestart, Group: "web"})
		c.WaitFor(time.Minute, "web has it", func() bool { return c.Runs("web") })
	})
}

// TestNodesComeAndGo: nodes are added and removed while groups run, until none of the first three is left but one. A node that is
// removed is told, and holds nothing.
func TestNodesComeAndGo(t *testing.T) {
	s := threeNodes()
	run(t, Options{Site: s, Spares: []string{"delta", "epsilon"}}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		events := len(c.Storage.Events())
		for i, name := range []string{"delta", "epsilon"} {
			s = s.clone()
			s.nodes = append(s.nodes, siteNode{name: name, number: 4 + i, links: []int{0, 1}, devices: 1})
			c.mustApply(s)
			c.install(name)
			c.WaitFor(time.Minute, name+" votes", func() bool {
				d := c.hosts[c.Coordinator()].daemon()
				return d != nil && slices.Contains(d.Voting(), name) && c.State().Nodes[name].Up
			})
		}
		without := func(name string) *site {
			s := s.clone()
			s.nodes = slices.DeleteFunc(s.nodes, func(n siteNode) bool { return n.name == name })
			for i := range s.groups {
				delete(s.groups[i].rules, "prefer")
			}
			return s
		}
		c.mustRefuse(without("beta"), "it may hold db")
		s = without("alpha")
		c.mustApply(s)
		c.WaitFor(time.Minute, "alpha does not vote", func() bool {
			d := c.hosts[c.Coordinator()].daemon()
			return d != nil && len(d.Voting()) == 4 && !slices.Contains(d.Voting(), "alpha")
		})
		time.Sleep(10 * time.Second)
		if !c.problem("alpha", "was removed from the cluster by configuration") {
			t.Error("alpha is not told that it was removed")
		}
		if touched := c.disturbed(events, "db", "web"); len(touched) > 0 {
			t.Errorf("touched: %v", touched)
		}
		quiet(t, c)
	})
}

// TestFewerVoters: several voters go by one change, the coordinator among them or not. What is accepted leaves a whole cluster at once.
// Where those that stay would be no majority until the others are struck off, it is refused.
func TestFewerVoters(t *testing.T) {
	names := []string{"alpha", "beta", "gamma", "delta", "epsilon"}
	for _, way := range []struct {
		of, leaving int
		ok          bool
	}{{2, 1, false}, {3, 1, true}, {4, 1, true}, {4, 2, false}, {5, 2, true}, {5, 3, false}} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d of %d, coordinator %v", way.leaving, way.of, first), func(t *testing.T) {
				s := &site{detection: time.Second, cluster: quietPolicy}
				for i, n := range names[:way.of] {
					s.nodes = append(s.nodes, siteNode{name: n, number: i + 1, links: []int{0, 1}, devices: 1})
				}
				run(t, Options{Site: s}, func(t *testing.T, c *Cluster) {
					time.Sleep(time.Minute)
					others := slices.DeleteFunc(s.names(), func(n string) bool { return n == c.Coordinator() })
					leaving := others[:way.leaving]
					if first {
						leaving = append(others[:way.leaving-1:way.leaving-1], c.Coordinator())
					}
					fewer := s.clone()
					fewer.nodes = slices.DeleteFunc(fewer.nodes, func(n siteNode) bool { return slices.Contains(leaving, n.name) })
					if !way.ok {
						c.mustRefuse(fewer, "are needed until the others are struck off")
						return
					}
					c.mustApply(fewer)
					c.whole(10*time.Second, c.Nodes...)
					c.WaitFor(10*time.Second, "nobody else votes", func() bool { return c.votes(c.Nodes...) })
				})
			})
		}
	}
}

// TestFromTwoToOne: with two_node the one that goes takes its leave first, and has no vote any more.
func TestFromTwoToOne(t *testing.T) {
	for _, first := range []bool{true, false} {
		s := &site{detection: time.Second, cluster: quietPolicy + "two_node = true\n"}
		for i, n := range []string{"alpha", "beta"} {
			s.nodes = append(s.nodes, siteNode{name: n, number: i + 1, links: []int{0, 1}, devices: 1})
		}
		run(t, Options{Site: s}, func(t *testing.T, c *Cluster) {
			time.Sleep(time.Minute)
			stays := c.Coordinator()
			if first {
				stays = other(c, stays, stays)
			}
			goes := other(c, stays, stays)
			one := s.clone()
			one.cluster = quietPolicy
			one.nodes = slices.DeleteFunc(one.nodes, func(n siteNode) bool { return n.name == goes })
			c.mustRefuse(one, "are needed until the others are struck off")
			c.StopDaemon(goes)
			c.WaitFor(10*time.Second, stays+" votes alone", func() bool { return c.votes(stays) })
			c.mustApply(one)
			c.whole(10*time.Second, stays)
		})
	}
}

// TestNewcomerHasNoVoteYet: gamma comes with an empty disk. At once an operator tries to remove another node, until it is accepted: when
// gamma's vote can be counted on, and not when only its daemon answers.
func TestNewcomerHasNoVoteYet(t *testing.T) {
	for _, leaving := range []string{"alpha", "beta"} {
		s := threeNodes()
		s.groups = nil
		run(t, Options{Site: s, BootTime: time.Second}, func(t *testing.T, c *Cluster) {
			time.Sleep(time.Minute)
			c.CutPower("gamma")
			c.WipeDisk("gamma")
			time.Sleep(5 * time.Second)
			c.Boot("gamma")
			fewer := s.clone()
			fewer.nodes = slices.DeleteFunc(fewer.nodes, func(n siteNode) bool { return n.name == leaving })
			refusals := 0
			c.WaitFor(time.Minute, "it is accepted", func() bool {
				res, _ := c.apply(c.Coordinator(), fewer)
				if !res.Applied {
					refusals++
				}
				return res.Applied
			})
			if refusals == 0 {
				t.Error("accepted at once, while gamma boots")
			}
			c.adopt(fewer)
			c.whole(10*time.Second, c.Nodes...)
		})
	}
}

// votes reports whether these are all whose votes count, as the coordinator sees it.
func (c *Cluster) votes(names ...string) bool {
	led := c.Coordinator()
	return led != "" && slices.Equal(slices.Sorted(slices.Values(c.hosts[led].daemon().Voting())), slices.Sorted(slices.Values(names)))
}

// install gives a host an empty disk and the cluster's present file, and starts its daemon.
func (c *Cluster) install(name string) {
	text := c.Site.text()
	c.Edit(name, func(string) string { return text })
	if p := c.hosts[name].take(); p != nil {
		_ = p.end(p.Halt)
	}
	c.WipeDisk(name)
	h := c.hosts[name]
	h.mu.Lock()
	on := h.on
	h.mu.Unlock()
	if on {
		h.start()
	} else {
		c.Boot(name)
	}
}

// TestRemovedWhileAway (B17): a node is cut off, proven off, and removed; then the coordinator changes. The others elect one, and the
// removed one, when it is back, says what it is.
func TestRemovedWhileAway(t *testing.T) {
	s := threeNodes()
	s.groups = s.groups[:1]
	run(t, Options{Site: s}, func(t *testing.T, c *Cluster) {
		time.Sleep(3 * time.Second)
		without := s.clone()
		without.nodes = without.nodes[:2]
		c.Cut("gamma")
		time.Sleep(3 * time.Second)
		c.mustRefuse(without, "it does not answer, and has neither left nor been proven off")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := c.Operator(c.Coordinator()).Fence(ctx, api.FenceRequest{Node: "gamma", Action: api.ActionOff, By: "anna"}, func(api.FenceEvent) {}); err != nil {
			t.Fatal(err)
		}
		events := len(c.Storage.Events())
		c.mustApply(without)
		c.WaitFor(time.Minute, "two vote", func() bool { d := c.hosts[c.Coordinator()].daemon(); return d != nil && len(d.Voting()) == 2 })
		c.RestartDaemon(c.Coordinator(), time.Second)
		c.WaitFor(10*time.Second, "somebody leads", func() bool { return c.Coordinator() != "" })
		c.Heal("gamma")
		c.Boot("gamma")
		time.Sleep(20 * time.Second)
		if !c.problem("gamma", "removed") {
			st, err := c.Operator("gamma").Status(ctx)
			t.Errorf("gamma does not know that it was removed: %+v %v\n%s", st.Problems, err, c.Report())
		}
		if touched := c.touched(events); len(touched) > 0 || !c.Runs("db") {
			t.Errorf("touched: %v", touched)
		}
	})
}

// TestDetectionTimeIsHeldAgainstTheDisks: no detection time is accepted by which a disk, as it is, would end its node.
func TestDetectionTimeIsHeldAgainstTheDisks(t *testing.T) {
	s := threeNodes()
	s.detection = 3 * time.Second
	run(t, Options{Site: s}, func(t *testing.T, c *Cluster) {
		c.SlowDisk("gamma", 400*time.Millisecond)
		time.Sleep(time.Minute)
		s := s.clone()
		s.groups[0].rules["weight"] = "2" // something for gamma to write
		c.mustApply(s)
		s = s.clone()
		s.detection = time.Second
		why, known := refused(c.apply(c.Coordinator(), s))
		if c.SlowDisk("gamma", 10*time.Millisecond); !known || !strings.Contains(why, "one of 100 writes to its log took") {
			t.Errorf("refused %v: %q", known, why)
		}
		s.detection = 2 * time.Second
		c.mustApply(s)
	})
}

// TestAwayFromAChange: a node that was away while the configuration changed takes it over when it returns, also with addresses of which
// only one is left; so does one whose daemon alone was away.
func TestAwayFromAChange(t *testing.T) {
	for _, way := range []string{"host", "daemon"} {
		s := threeNodes()
		run(t, Options{Site: s}, func(t *testing.T, c *Cluster) {
			time.Sleep(3 * time.Second)
			events := len(c.Storage.Events())
			if way == "host" {
				c.CutPower("alpha")
			} else {
				c.StopDaemon("alpha")
			}
			time.Sleep(5 * time.Second)
			s := s.clone()
			s.nodes[1].links, s.nodes[2].links = []int{1, 2}, []int{0, 2}
			s.group("web").rules["prefer"] = `["gamma", "alpha"]`
			s.detection = 1500 * time.Millisecond
			c.mustApply(s)
			time.Sleep(time.Minute)
			if way == "host" {
				c.Boot("alpha")
			} else {
				c.hosts["alpha"].start()
			}
			c.WaitFor(time.Minute, "alpha runs with it", func() bool { return c.follow(s.text()) && c.up() == 3 })
			c.whole(10*time.Second, c.Nodes...)
			if touched := c.touched(events); len(touched) > 0 {
				t.Errorf("%s: touched: %v", way, touched)
			}
		})
	}
}

// refused gives what was said against a change; ok is false where it is not known whether it was made.
func refused(res api.ApplyResult, err error) (why string, ok bool) {
	var e *api.Error
	switch {
	case errors.As(err, &e) && (e.Code == api.ErrUnsafe || e.Code == api.ErrInvalid || e.Code == api.ErrNoCoordinator):
		return e.Message, true
	case err != nil:
		return err.Error(), false
	}
	for _, o := range res.Refused {
		why += o.Key + ": " + o.Message + "; "
	}
	return why, true
}
