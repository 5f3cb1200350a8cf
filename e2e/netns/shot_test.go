package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/cluster/api"
)

// moment is a point inside a shot.
type moment struct {
	// A call at the device: the nth one of that action, before or after it did something.
	action string
	nth    int
	after  bool
	// Or what the coordinator has logged, and a time after it.
	msg   string
	delay time.Duration
}

func (m moment) String() string {
	switch {
	case m.msg != "" && m.delay == 0:
		return m.msg
	case m.msg != "":
		return fmt.Sprintf("%v after %s", m.delay, m.msg)
	case m.after:
		return fmt.Sprintf("after %s %d", m.action, m.nth)
	}
	return fmt.Sprintf("before %s %d", m.action, m.nth)
}

// The points: before, between and after each read and command, and times that nothing marks.
var moments = []moment{
	{action: "status", nth: 1}, {action: "status", nth: 1, after: true},
	{action: "off", nth: 1}, {action: "off", nth: 1, after: true},
	{action: "status", nth: 2}, {action: "status", nth: 2, after: true},
	{action: "status", nth: 3}, {action: "status", nth: 3, after: true},
	{action: "on", nth: 1}, {action: "on", nth: 1, after: true},
	{msg: "fencing ordered"}, {msg: "fencing started"}, {msg: "node proven off"}, {msg: "group granted"}, {msg: "node powered on"},
	{msg: "fencing ordered", delay: 25 * time.Millisecond}, {msg: "fencing ordered", delay: 50 * time.Millisecond},
	{msg: "fencing ordered", delay: 100 * time.Millisecond}, {msg: "fencing ordered", delay: 200 * time.Millisecond},
	{msg: "fencing ordered", delay: 400 * time.Millisecond},
}

// TestB25Coordinator: the coordinator is killed at twenty points inside a shot. The next one finishes it: one takeover,
// with a higher token, and never two opposite commands at once.
func TestB25Coordinator(t *testing.T) {
	// Some clusters, so that it does not take all day.
	const clusters = 3
	for n := range clusters {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			l := newCluster(t, shape{members: 3})
			for i := n; i < len(moments); i += clusters {
				l.killInside(moments[i])
				if t.Failed() {
					t.Fatalf("killed %v", moments[i])
				}
			}
			l.judge()
		})
	}
}

// killInside has the holder of the group fail, and kills the coordinator, which is another node, at that moment.
func (l *lab) killInside(m moment) {
	l.t.Helper()
	s := l.coordinatedApart()
	holder, token := groupOf(s, theGroup).Node, groupOf(s, theGroup).Token
	l.writes(theGroup)
	shots, grants := len(l.shots()), len(l.said("group granted"))

	// Whoever says it coordinates; it may be another one by then, on a busy machine.
	killed := make(chan *host, 1)
	var once sync.Once
	kill := func(coordinator *host) {
		once.Do(func() {
			if err := coordinator.kill(); err != nil {
				l.t.Errorf("kill %v: %v", m, err)
			}
			killed <- coordinator
		})
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	if m.msg != "" {
		for _, h := range l.hosts {
			log := h.logFromHere()
			watch.Go(func() {
				if h.await(ctx, log, m.msg) == nil {
					time.Sleep(m.delay)
					kill(h)
				}
			})
		}
	} else {
		before, after := countdown(m, holder, func() { kill(l.hosts[s.Coordinator]) })
		l.device.hook(before, after)
		defer l.device.hook(nil, nil)
	}
	if err := l.hosts[holder].freeze(ctx); err != nil {
		l.t.Fatal(err)
	}
	var coordinator *host
	select {
	case <-ctx.Done():
		l.t.Fatalf("%v never came", m)
	case coordinator = <-killed:
	}
	// At once: without it there is no majority, and it must not be missed itself.
	if err := coordinator.restart(); err != nil {
		l.t.Fatal(err)
	}
	l.until(patience, fmt.Sprintf("taken over, with the coordinator killed %v", m), func(context.Context) error {
		if e := l.last(theGroup); e.Token <= token || e.Node == holder {
			return fmt.Errorf("the last write is %v", e)
		}
		return nil
	})
	l.settled("whole again", l.names...)
	l.t.Logf("%v: %s was shot, %s killed, %s writes", m, holder, coordinator.name, l.last(theGroup).Node)
	var of []event
	for _, e := range l.shots()[shots:] {
		if e.Node == holder {
			of = append(of, e)
		}
	}
	if len(of) != 1 || len(l.shots()) != shots+1 {
		l.t.Errorf("shots: %v", l.shots()[shots:])
	}
	// The killed one may not have come to say it; and where it had granted the group to itself, its start was cut short, it
	// stops what it finds half started, and another one takes it.
	granted := l.said("group granted")[grants:]
	if n := len(granted); n > 1 && !(n == 2 && granted[0].Node == coordinator.name) {
		l.t.Errorf("%d grants: %v", n, granted)
	}
}

// coordinatedApart has a node coordinate that does not hold the group.
func (l *lab) coordinatedApart() api.Status {
	l.t.Helper()
	s := l.settled("ready for the next one", l.names...)
	if to := l.others(s.Coordinator)[0]; s.Coordinator == groupOf(s, theGroup).Node {
		if out, status := l.hamgr(to, "group", "move", theGroup, to, "--wait"); status != 0 {
			l.t.Fatalf("move: status %d: %s", status, out)
		}
		l.until(patience, "moved", func(context.Context) error {
			s = l.settled("moved", l.names...)
			if s.Coordinator == groupOf(s, theGroup).Node {
				return errors.New("not yet")
			}
			return nil
		})
	}
	return s
}

// countdown gives the hooks that kill at the moment. They run before the device answers.
func countdown(m moment, node string, kill func()) (before, after func(call)) {
	var mu sync.Mutex
	seen := map[bool]int{}
	count := func(isAfter bool) func(call) {
		return func(c call) {
			if c.action != m.action || c.node != node {
				return
			}
			mu.Lock()
			seen[isAfter]++
			hit := isAfter == m.after && seen[isAfter] == m.nth
			mu.Unlock()
			if hit {
				kill()
			}
		}
	}
	return count(false), count(true)
}

// logFromHere opens the daemon's log behind what is in it.
func (h *host) logFromHere() *os.File {
	h.l.t.Helper()
	log, err := os.Open(h.l.file(h.name + ".log"))
	if err == nil {
		_, err = log.Seek(0, io.SeekEnd)
	}
	if err != nil {
		h.l.t.Fatal(err)
	}
	return log
}

// await reads a log, and closes it, until the daemon has logged a message.
func (h *host) await(ctx context.Context, log *os.File, msg string) error {
	defer log.Close()
	var text []byte
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		more, err := io.ReadAll(log)
		if err != nil {
			return err
		}
		text = append(text, more...)
		for {
			line, rest, whole := bytes.Cut(text, []byte("\n"))
			if !whole {
				break
			}
			text = rest
			var e event
			if json.Unmarshal(line, &e) == nil && e.Msg == msg {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s never logged %q: %w", h.name, msg, ctx.Err())
		case <-tick.C:
		}
	}
}
