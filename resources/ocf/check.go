package ocf

import (
	"context"
	"fmt"

	"github.com/hamgr/hamgr/resources/internal/process"
)

// Check implements resources.Checker: the agent is there, its parameters fit, and it finds nothing wrong with them
// itself (validate-all).
func (o *ocf) Check(ctx context.Context) error {
	err := process.Beside(ctx, func() error { return o.validate(ctx) })
	if err != nil {
		return fmt.Errorf("check by %s: %w", o.name, err)
	}
	return nil
}

func (o *ocf) validate(ctx context.Context) error {
	m, err := o.fit(ctx)
	if err != nil || !m.can("validate-all") {
		return err
	}
	held, err := lock(ctx, o.env.Dir)
	if err != nil {
		return err
	}
	defer held.Close()
	r, err := o.run(ctx, call{action: "validate-all"})
	if err != nil {
		return err
	}
	switch r.status {
	case success, unimplemented:
		return nil
	}
	return r.err()
}
