package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/link"
	"github.com/hamgr/hamgr/cluster/link/linktest"
)

// errSlow: this machine did not let the voters do in time what they would have done. A longer detection time helps.
var errSlow = errors.New("not in time")

// voters is a cluster of voters, each with a link and a log of its own, on memory and on a network in memory.
type voters struct {
	detection time.Duration
	network   *linktest.Network
	all       []*voter
}

// voter is one of them.
type voter struct {
	name string
	link *link.Link
	log  *consensus.Log
	journal
}

var voterNames = []string{"alpha", "beta", "gamma", "delta", "epsilon"}

// startVoters starts n of them. The caller stops them, also after an error.
func startVoters(ctx context.Context, n int, detection time.Duration) (*voters, error) {
	c := &voters{detection: detection, network: linktest.New(1)}
	key, err := link.GenerateKey()
	if err != nil {
		return c, err
	}
	var nodes []link.Node
	for i, name := range voterNames[:n] {
		nodes = append(nodes, link.Node{Name: name, Addresses: []string{fmt.Sprintf("10.0.0.%d:7846", i+1)}})
	}
	for _, node := range nodes {
		v := &voter{name: node.Name}
		if v.link, err = link.Start(link.Config{
			Cluster: "lab", Self: v.name, Nodes: nodes, Keys: link.KeyRing{key}, DetectionTime: detection,
			Network: c.network.Host(v.name, node.Addresses...),
		}); err != nil {
			return c, err
		}
		c.all = append(c.all, v)
		if v.log, err = consensus.Start(ctx, consensus.Config{
			Self: v.name, Voters: voterNames[:n], Link: v.link, FSM: &v.journal, DetectionTime: detection, Stores: consensus.MemoryStores(),
		}); errors.Is(err, consensus.ErrStoreHung) {
			return c, fmt.Errorf("%w: %w", err, errSlow) // memory does not hang
		} else if err != nil {
			return c, err
		}
	}
	return c, nil
}

// stop ends all at once.
func (c *voters) stop() {
	c.network.HealAll()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, v := range c.all {
		wg.Go(func() {
			if v.log != nil {
				_ = v.log.Stop(ctx)
			}
			v.link.Stop()
		})
	}
	wg.Wait()
}

// cut separates two sides, in both directions.
func (c *voters) cut(a, b []*voter) {
	for _, x := range a {
		for _, y := range b {
			c.network.Cut(x.name, y.name)
			c.network.Cut(y.name, x.name)
		}
	}
}

// await waits until something holds, for five detection times at most.
func (c *voters) await(ctx context.Context, what string, holds func() bool) error {
	until := time.Now().Add(5 * c.detection)
	for !holds() {
		if time.Now().After(until) {
			return fmt.Errorf("%s: %w", what, errSlow)
		}
		if err := pause(ctx, c.detection/100); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// commit has the coordinator of a side commit a command, whoever that is, as soon as there is one.
func (c *voters) commit(ctx context.Context, side []*voter, command string) error {
	return c.await(ctx, "commit "+command, func() bool {
		for _, v := range side {
			if !v.log.IsCoordinator() {
				continue
			}
			limit, cancel := context.WithTimeout(ctx, c.detection)
			_, _, err := v.log.Propose(limit, []byte(command))
			cancel()
			if err == nil {
				return true
			}
		}
		return false
	})
}

// applied waits until all of a side have applied exactly these commands.
func (c *voters) applied(ctx context.Context, side []*voter, commands ...string) error {
	return c.await(ctx, fmt.Sprintf("apply %v", commands), func() bool {
		return !slices.ContainsFunc(side, func(v *voter) bool { return !slices.Equal(v.commands(), commands) })
	})
}

// complete waits until everyone knows that all of them vote. On a slow machine a cluster may form with one fewer, which joins a
// moment later: until then a majority is another number.
func (c *voters) complete(ctx context.Context) error {
	return c.await(ctx, "all vote", func() bool {
		return !slices.ContainsFunc(c.all, func(v *voter) bool {
			listed := v.log.Status().Voters
			return len(listed) != len(c.all) || slices.ContainsFunc(listed, func(l consensus.Voter) bool { return !l.Votes || l.Absent })
		})
	})
}

// elected lists who of a side coordinates.
func elected(side []*voter) []*voter {
	return slices.DeleteFunc(slices.Clone(side), func(v *voter) bool { return !v.log.IsCoordinator() })
}

// journal is what a voter applied. A command that is committed twice, because the first answer was lost, counts once.
type journal struct {
	mu  sync.Mutex
	all []string
}

func (j *journal) commands() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

// Apply implements consensus.FSM.
func (j *journal) Apply(_ uint64, command []byte) any {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Contains(j.all, string(command)) {
		j.all = append(j.all, string(command))
	}
	return nil
}

// Snapshot implements consensus.FSM; the story ends long before the log is cut.
func (j *journal) Snapshot() ([]byte, error) { return nil, errors.ErrUnsupported }

// Restore implements consensus.FSM.
func (j *journal) Restore([]byte) error { return errors.ErrUnsupported }
