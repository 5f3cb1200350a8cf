package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
)

const (
	// quorumPace is the shortest detection time that the log allows; a machine that is too busy for it gets another try
	// with twice as much, up to slowestPace. Nothing that is printed depends on it.
	quorumPace  = 200 * time.Millisecond
	slowestPace = 4 * time.Second
)

// quorumStory: the voters are cut in two, once as an odd number and once as an even one, both at the same time.
func quorumStory(ctx context.Context, _ bool) ([]Scene, error) {
	play := []func(context.Context, time.Duration) (Scene, error){oddScene, evenScene}
	scenes, errs := make([]Scene, len(play)), make([]error, len(play))
	var wg sync.WaitGroup
	for i, scene := range play {
		wg.Go(func() {
			for pace := quorumPace; ; pace *= 2 {
				scenes[i], errs[i] = scene(ctx, pace)
				if !errors.Is(errs[i], errSlow) || pace >= slowestPace {
					return
				}
			}
		})
	}
	wg.Wait()
	return scenes, errors.Join(errs...)
}

// oddScene: 2 | 3 of 5, and the old coordinator is one of the two.
func oddScene(ctx context.Context, pace time.Duration) (Scene, error) {
	s := Scene{Title: "Five voters; a majority is three. The network is cut: alpha beta | gamma delta epsilon."}
	c, err := s.form(ctx, 5, pace)
	defer c.stop()
	if err != nil {
		return s, err
	}
	minority, majority := c.all[:2], c.all[2:]
	c.cut(minority, majority)
	s.step("network", "cut", "alpha, which coordinates, is on the smaller side")
	if err := c.commit(ctx, majority, "second"); err != nil {
		return s, err
	}
	if err := c.applied(ctx, majority, "first", "second"); err != nil {
		return s, err
	}
	s.step(list(majority), "elect", "one of them: three votes of five")
	s.step("their leader", "commits", "\"second\", on all three")
	if err := s.without(ctx, c, minority, "two votes of five"); err != nil {
		return s, err
	}
	c.network.HealAll()
	if err := c.applied(ctx, c.all, "first", "second"); err != nil {
		return s, err
	}
	s.step("network", "heals", "alpha and beta follow, and have \"second\" too; nothing of theirs has to be undone")
	s.Outcome = "One coordinator at most, wherever the cut is: two majorities of five would share a voter, and it votes once a term. Bully and ring had two leaders here."
	return s, nil
}

// evenScene: 2 | 2 of 4.
func evenScene(ctx context.Context, pace time.Duration) (Scene, error) {
	s := Scene{Title: "Four voters; a majority is three, too. The network is cut: alpha beta | gamma delta."}
	c, err := s.form(ctx, 4, pace)
	defer c.stop()
	if err != nil {
		return s, err
	}
	c.cut(c.all[:2], c.all[2:])
	s.step("network", "cut", "two on each side")
	for _, side := range [][]*voter{c.all[:2], c.all[2:]} {
		if err := s.without(ctx, c, side, "two votes of four: half is no majority"); err != nil {
			return s, err
		}
	}
	c.network.HealAll()
	if err := c.commit(ctx, c.all, "second"); err != nil {
		return s, err
	}
	s.step("network", "heals", "they elect a coordinator, and it commits \"second\"")
	s.Outcome = "Four voters survive the loss of one, as three do: the fourth costs a machine and buys nothing. Use an odd number; a witness is a cheap one."
	return s, nil
}

// form starts a cluster that alpha coordinates: the first by name forms it, and is its first leader.
func (s *Scene) form(ctx context.Context, n int, pace time.Duration) (*voters, error) {
	c, err := startVoters(ctx, n, pace)
	if err != nil {
		return c, err
	}
	if err := c.commit(ctx, c.all, "first"); err != nil {
		return c, err
	}
	if err := c.applied(ctx, c.all, "first"); err != nil {
		return c, err
	}
	if err := c.complete(ctx); err != nil {
		return c, err
	}
	if who := elected(c.all); len(who) != 1 || who[0] != c.all[0] {
		return c, fmt.Errorf("alpha does not coordinate: %w", errSlow) // it was elected first, and could not keep it
	}
	s.step(list(c.all), "elect", "alpha")
	s.step("alpha", "commits", "\"first\", on all %d", n)
	return c, nil
}

// without shows that a side has no coordinator: the old one gives up within the detection time, nobody is elected for as
// long as several elections take, and nobody takes a command. Whatever else is seen is a breach.
func (s *Scene) without(ctx context.Context, c *voters, side []*voter, votes string) error {
	led := side[0] == c.all[0]
	if err := c.await(ctx, "nobody coordinates", func() bool { return len(elected(side)) == 0 }); err != nil {
		if !errors.Is(err, errSlow) {
			return err
		}
		return fmt.Errorf("%s coordinates with %s: %w", list(elected(side)), votes, errSlow) // if it still does at the slowest pace, it is no slowness
	}
	if led {
		s.step(side[0].name, "gives up", "it hears no majority, and so coordinates nothing any more")
	}
	for until := time.Now().Add(c.detection); time.Now().Before(until); {
		if who := elected(side); len(who) > 0 {
			return fmt.Errorf("%s was elected with %s", list(who), votes)
		}
		if err := pause(ctx, c.detection/100); err != nil {
			return err
		}
	}
	s.step(list(side), "elect", "nobody: %s", votes)
	for _, v := range side {
		limit, cancel := context.WithTimeout(ctx, c.detection)
		_, index, err := v.log.Propose(limit, []byte("minority"))
		cancel()
		switch {
		case err == nil:
			return fmt.Errorf("%s committed entry %d with %s", v.name, index, votes)
		case !errors.Is(err, consensus.ErrNotCoordinator):
			return fmt.Errorf("propose at %s: %w (%w)", v.name, err, errSlow) // it did not give up yet
		}
	}
	s.step(list(side), "refuse", "a command: %s", consensus.ErrNotCoordinator)
	return nil
}

func list(side []*voter) string {
	var names []string
	for _, v := range side {
		names = append(names, v.name)
	}
	return strings.Join(names, " ")
}
