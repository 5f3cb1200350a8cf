package address

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// rounds is how often the address is removed anew that something keeps adding.
const rounds = 3

// Stop implements resources.Resource. It removes the address from every interface of this host, whoever put it
// there: wherever it is, the host answers for it.
func (a *address) Stop(ctx context.Context) error {
	a.endKeeper(errors.New("stopped"))
	if err := a.stop(ctx); err != nil {
		return fmt.Errorf("remove address %s: %w", a, err)
	}
	return nil
}

func (a *address) stop(ctx context.Context) error {
	// Waits for a request that was given up before; it may have added the address.
	if err := a.change(ctx, func() error { return nil }, nil); err != nil {
		return err
	}
	// First the connections, while their far ends can still be told; after the removal those that came meanwhile.
	if err := a.endConnections(ctx); err != nil {
		return err
	}
	for range rounds {
		v, err := bounded(ctx, a.look)
		if err != nil {
			return err
		}
		if len(v.found) == 0 {
			return a.endConnections(ctx)
		}
		if err := a.change(ctx, func() error { return a.removeAll(v) }, nil); err != nil {
			return err
		}
	}
	return errors.New("it comes back each time: something else on this host puts it there")
}

func (a *address) removeAll(v view) error {
	for _, e := range v.found {
		if err := a.keepFollowers(e); err != nil {
			return fmt.Errorf("keep the other addresses of %s on %s: %w", e.prefix(), a.nameOf(e.index), err)
		}
		if err := a.kernel.remove(e); err != nil {
			return fmt.Errorf("from %s: %w", a.nameOf(e.index), err)
		}
	}
	return nil
}

// keepFollowers sees to it that the IPv4 addresses that the kernel made secondary to one do not go with it.
func (a *address) keepFollowers(e entry) error {
	if e.ip.Is6() || e.flags&unix.IFA_F_SECONDARY != 0 {
		return nil
	}
	followers, err := a.kernel.entries(unix.AF_INET, func(other entry) bool {
		return other.index == e.index && other.prefix() == e.prefix() && other.flags&unix.IFA_F_SECONDARY != 0
	})
	if err != nil || len(followers) == 0 {
		return err
	}
	return a.kernel.promote(e.index)
}

// endConnections ends the TCP connections of the address. Where the kernel cannot (it is built without
// CONFIG_INET_DIAG_DESTROY), they end when their far ends hear from the next owner that it knows nothing of them.
func (a *address) endConnections(ctx context.Context) error {
	_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, a.kernel.endConnections(ctx, a.ip) })
	if errors.Is(err, errCannotEnd) {
		a.env.Log.Info("connections are left alone", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("end its connections: %w", err)
	}
	return nil
}
