package netns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// two have no witness, and the survivor may go on alone. The group prefers n1.
var two = shape{members: 2, twoNode: true, prefer: map[string][]string{theGroup: {"n1"}}}

// twoNodes makes them, with the group on n1.
func twoNodes(t *testing.T) *lab {
	t.Helper()
	l := newCluster(t, two)
	if s := l.settled("steady", l.names...); groupOf(s, theGroup).Node != "n1" {
		t.Fatalf("%+v", groupOf(s, theGroup))
	}
	return l
}

const alone = "going on alone, by the two-node rule"

// survives waits until a node has gone on alone once more than it was said, and runs the group.
func (l *lab) survives(name string, since int) {
	l.t.Helper()
	l.until(patience, name+" goes on alone", func(ctx context.Context) error {
		s, err := l.status(ctx, name)
		if err == nil && len(l.said(alone)) == since {
			return fmt.Errorf("it does not: %+v", s.Problems)
		}
		if g := groupOf(s, theGroup); err == nil && (!s.Quorate || g.State != api.GroupRunning || g.Node != name) {
			err = fmt.Errorf("quorate: %v, %+v, %v", s.Quorate, g, s.Problems)
		}
		return err
	})
}

// onlySurvivor: since it was said so often, this node went on alone, and no other.
func (l *lab) onlySurvivor(name string, since int) {
	l.t.Helper()
	all := l.said(alone)[since:]
	if len(all) == 0 {
		l.t.Errorf("nobody went on alone, not %s", name)
	}
	for _, e := range all {
		if e.on != name {
			l.t.Errorf("%s went on alone, not %s: %v", e.on, name, e)
		}
	}
}

// TestTwoNodesOneDies: whichever host of two dies, the other one runs the group on, after it has read the dead one off
// itself; that one returns as a newcomer, and then the other one may die as well.
func TestTwoNodesOneDies(t *testing.T) {
	for _, first := range []string{"n1", "n2"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			l := twoNodes(t)
			l.says("n2", "tolerates 1 failure (two-node rule")
			for _, dies := range []string{first, l.others(first)[0]} {
				survivor := l.others(dies)[0]
				s := l.settled("before "+dies+" dies", l.names...)
				holder, before, since := groupOf(s, theGroup).Node, l.writes(theGroup), len(l.said(alone))
				if err := l.hosts[dies].off(); err != nil {
					t.Fatal(err)
				}
				l.survives(survivor, since)
				l.onlySurvivor(survivor, since)
				after := l.writes(theGroup)
				if moved := holder == dies; after.Node != survivor || moved != (after.Token > before.Token) || !moved && after.PID != before.PID {
					t.Errorf("held by %s, %s died: %v, then %v", holder, dies, before, after)
				}
				l.powerOn(dies) // if the survivor has not done so
				l.settled(dies+" is back", l.names...)
			}
			l.judge()
		})
	}
}

// TestTwoNodesCut: two nodes that do not hear each other shoot one: the one that holds nothing. It comes on again, hears
// nobody, and waits.
func TestTwoNodesCut(t *testing.T) {
	t.Parallel()
	l := twoNodes(t)
	before := l.writes(theGroup)
	boot := l.hosts["n2"].machine.Boot()
	l.wires.set(func(f frame) fate { return fate{lost: f.between("n1", "n2")} })
	l.survives("n1", 0)
	l.until(patience, "n2 is on again", func(context.Context) error {
		if now := l.hosts["n2"].machine.Boot(); now == boot || now == "" {
			return fmt.Errorf("its boot is %q", now)
		}
		return nil
	})
	l.says("n2", "NO QUORUM")
	l.let(3 * detection)
	if s, err := l.status(t.Context(), "n2"); err != nil || s.Quorate {
		t.Errorf("n2, which booted alone: %v, quorate: %v", err, s.Quorate)
	}
	l.onlySurvivor("n1", 0)
	for _, c := range l.device.commands() {
		if c.node != "n2" || c.by != "n1" {
			t.Errorf("%s %s by %s", c.action, c.node, c.by)
		}
	}
	l.wires.set(nil)
	l.settled("n2 is back", l.names...)
	if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	l.judge()
}

// TestTwoNodesDaemons: daemons that end, one by a word or both at once, while their hosts go on.
func TestTwoNodesDaemons(t *testing.T) {
	t.Parallel()
	l := twoNodes(t)
	before := l.writes(theGroup)
	// One that holds nothing leaves: nobody is shot, and the other one goes on without it.
	if err := l.hosts["n2"].stop(); err != nil {
		t.Fatal(err)
	}
	l.until(patience, "n1 goes on without it", func(ctx context.Context) error {
		s, err := l.status(ctx, "n1")
		if err == nil && (!s.Quorate || nodeOf(s, "n2").State != api.NodeLeft) {
			err = fmt.Errorf("quorate: %v, n2 is %s", s.Quorate, nodeOf(s, "n2").State)
		}
		return err
	})
	l.let(2 * detection)
	if s, err := l.status(t.Context(), "n1"); err != nil || !s.Quorate {
		t.Errorf("%v, quorate: %v: %+v", err, s.Quorate, s.Problems)
	}
	l.noShot()
	if err := l.hosts["n2"].restart(); err != nil {
		t.Fatal(err)
	}
	l.settled("n2 is in again", l.names...)

	// Both are killed, and come back.
	var errs [2]error
	var killed sync.WaitGroup
	for i, name := range l.names {
		killed.Go(func() { errs[i] = l.hosts[name].kill() })
	}
	killed.Wait()
	for i, name := range l.names {
		if err := errors.Join(errs[i], l.hosts[name].restart()); err != nil {
			t.Fatal(err)
		}
	}
	l.settled("both are back", l.names...)
	if after := l.writes(theGroup); after.PID != before.PID || after.Token != before.Token {
		t.Errorf("not the same process writes: %v, then %v", before, after)
	}
	l.noShot()

	// The daemon of the holder ends, and what it runs goes on: the other one has to shoot it before it takes over.
	if err := l.hosts["n1"].stop(); err != nil {
		t.Fatal(err)
	}
	l.survives("n2", 0)
	l.settled("n1 is back", l.names...)
	if after := l.writes(theGroup); after.Token <= before.Token {
		t.Errorf("%v, then %v", before, after)
	}
	l.judge()
}

// survivals are the points at which the survivor is killed: between the other one's silence, and the time when it goes on.
var survivals = []moment{
	{action: "status", nth: 1}, {action: "status", nth: 1, after: true},
	{action: "off", nth: 1}, {action: "off", nth: 1, after: true},
	{action: "status", nth: 2}, {action: "status", nth: 2, after: true},
	{action: "status", nth: 3}, {action: "status", nth: 3, after: true},
	{msg: alone}, {msg: "beginning anew"}, {msg: "became coordinator"}, {msg: "fencing ordered"}, {msg: "node proven off"},
	{msg: alone, delay: 5 * time.Millisecond}, {msg: alone, delay: 10 * time.Millisecond}, {msg: alone, delay: 20 * time.Millisecond},
	{msg: alone, delay: 40 * time.Millisecond}, {msg: alone, delay: 80 * time.Millisecond},
	{msg: "beginning anew", delay: 30 * time.Millisecond}, {msg: "beginning anew", delay: 150 * time.Millisecond},
}

// TestTwoNodesSurvivorKilled: the survivor's daemon is killed at twenty points on its way to being alone. It always ends
// with that one, and nobody else, running the group.
func TestTwoNodesSurvivorKilled(t *testing.T) {
	const clusters = 2
	step := clusters
	if !*long {
		step *= 3
	}
	for n := range clusters {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, two)
			for i := n; i < len(survivals); i += step {
				// In turn it is the holder that stands still, with its power on or off.
				l.killSurvivor(survivals[i], (i/step+n)%2 == 0)
				if t.Failed() {
					t.Fatalf("killed %v", survivals[i])
				}
			}
			l.judge()
		})
	}
}

func (l *lab) killSurvivor(m moment, holds bool) {
	l.t.Helper()
	s := l.settled("ready for the next one", l.names...)
	survivor := groupOf(s, theGroup).Node
	if !holds && m.action != "off" {
		survivor = l.others(survivor)[0] // reads first, and finds the other one off
	}
	dies := l.others(survivor)[0]
	before, since := l.writes(theGroup), len(l.said(alone))
	reached := l.atMoment(m, dies, l.hosts[survivor], func() {
		if err := l.hosts[survivor].kill(); err != nil {
			l.t.Errorf("kill %v: %v", m, err)
		}
	})
	var err error
	if before.Node == dies {
		err = l.hosts[dies].off()
	} else {
		err = l.hosts[dies].freeze(l.t.Context())
	}
	if err != nil {
		l.t.Fatal(err)
	}
	reached()
	if err := l.hosts[survivor].restart(); err != nil {
		l.t.Fatal(err)
	}
	l.survives(survivor, since)
	l.onlySurvivor(survivor, since)
	l.powerOn(dies)
	l.settled("both are back", l.names...)
	after := l.writes(theGroup)
	if moved := before.Node != survivor; after.Node != survivor || moved != (after.Token > before.Token) {
		l.t.Errorf("%v: %v, then %v", m, before, after)
	}
	l.t.Logf("%v: %s survived, which held: %v", m, survivor, before.Node == survivor)
}

// atMoment calls act once, when a shot of a node by a daemon comes to a moment. The result waits until that was.
func (l *lab) atMoment(m moment, target string, by *host, act func()) (wait func()) {
	l.t.Helper()
	done := make(chan struct{})
	var once sync.Once
	hit := func() {
		once.Do(func() {
			act()
			close(done)
		})
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	var watch sync.WaitGroup
	if m.msg == "" {
		l.device.hook(countdown(m, target, hit))
	} else {
		log := by.logFromHere()
		watch.Go(func() {
			if by.await(ctx, log, m.msg) == nil {
				time.Sleep(m.delay)
				hit()
			}
		})
	}
	return func() {
		l.t.Helper()
		defer watch.Wait()
		defer cancel()
		defer l.device.hook(nil, nil)
		select {
		case <-ctx.Done():
			l.t.Fatalf("%v never came", m)
		case <-done:
		}
	}
}
