package sim

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hamgr/hamgr/agents"
	bmc "github.com/hamgr/hamgr/agents/fake"
)

// sighted is the fake agent as one host's network lets it through: the management network may be cut
// for one host and not for another.
type sighted struct {
	*bmc.Options
	c    *Cluster
	host string
}

func (c *Cluster) agents(host string) agents.Registry {
	kind := bmc.Kind(c.BMC)
	fresh := kind.Options
	kind.Options = func() agents.Options {
		return &sighted{Options: fresh().(*bmc.Options), c: c, host: host}
	}
	return agents.NewRegistry(kind)
}

// Open makes a handle that reaches the device as long as the host does.
func (o *sighted) Open(log *slog.Logger) (agents.Agent, error) {
	if err := o.blind(); err != nil {
		return unreachable{err}, nil
	}
	a, err := o.Options.Open(log)
	if err != nil {
		return nil, err
	}
	return awake{a, o.c.hosts[o.host], o.Device}, nil
}

// awake is an agent on a host that may stand still: then its calls wait until that moves again.
type awake struct {
	agents.Agent
	host   *Host
	device string
}

func (a awake) wait(ctx context.Context) error {
	for a.host.still() {
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return a.host.c.hasPower(a.device)
}

func (a awake) Status(ctx context.Context, plug string) (agents.Reading, error) {
	if err := a.wait(ctx); err != nil {
		return agents.Reading{}, err
	}
	return a.Agent.Status(ctx, plug)
}

func (a awake) Off(ctx context.Context, plug string) error {
	if err := a.wait(ctx); err != nil {
		return err
	}
	a.host.c.judgeShot(a.host.name, a.device)
	return a.Agent.Off(ctx, plug)
}

func (a awake) On(ctx context.Context, plug string) error {
	if err := a.wait(ctx); err != nil {
		return err
	}
	return a.Agent.On(ctx, plug)
}

func (a awake) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	if err := a.wait(ctx); err != nil {
		return agents.Identity{}, err
	}
	return a.Agent.(agents.Identifier).Identity(ctx, plug)
}

func (a awake) Check(ctx context.Context, plug string) error {
	if err := a.wait(ctx); err != nil {
		return err
	}
	return a.Agent.(agents.Checker).Check(ctx, plug)
}

func (o *sighted) blind() error {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	if o.c.blind[o.host+" "+o.Device] {
		return fmt.Errorf("%s does not reach %s: %w", o.host, o.Device, agents.ErrUnreachable)
	}
	return nil
}

// hasPower returns an error if a device is a BMC that lost its power with its host.
func (c *Cluster) hasPower(device string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dark[device] {
		return fmt.Errorf("%s has no power: %w", device, agents.ErrUnreachable)
	}
	return nil
}

// Blind cuts a host off from a node's device, or lets it through again.
func (c *Cluster) Blind(host, node string, blind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blind[host+" "+node] = blind
}

type unreachable struct{ err error }

func (u unreachable) Status(context.Context, string) (agents.Reading, error) {
	return agents.Reading{}, u.err
}
func (u unreachable) Off(context.Context, string) error { return u.err }
func (u unreachable) On(context.Context, string) error  { return u.err }
func (u unreachable) Close(context.Context) error       { return nil }
