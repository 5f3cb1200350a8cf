package systemd

import (
	"context"
	"fmt"

	"github.com/hamgr/hamgr/resources"
	"github.com/hamgr/hamgr/resources/internal/bus"
)

// manager is what the kind asks of systemd: methods of *bus.Conn.
type manager interface {
	Unit(ctx context.Context, name string) (bus.Properties, error)
	Service(ctx context.Context, name string) (bus.Properties, error)
	Processes(ctx context.Context, name string) ([]string, error)
	Enqueue(ctx context.Context, verb, name string) (job uint32, result <-chan string, err error)
	Cancel(ctx context.Context, job uint32) error
	ResetFailed(ctx context.Context, name string) error
	Reload(ctx context.Context) error
	Watch(name string) (wake <-chan struct{}, end func())
	Lost() <-chan struct{}
	Close()
}

func connect(ctx context.Context) (manager, error) {
	c, err := bus.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", resources.ErrNode, err)
	}
	return c, nil
}
