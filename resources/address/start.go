package address

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

const (
	// tentativePause is how often the kernel's own duplicate detection is looked after.
	tentativePause = 10 * time.Millisecond
	deliveryPause  = time.Millisecond
	deliveryTime   = 500 * time.Millisecond
)

// Start implements resources.Resource.
func (a *address) Start(ctx context.Context) error {
	a.endKeeper(errors.New("started anew"))
	if err := a.start(ctx); err != nil {
		return fmt.Errorf("take address %s: %w", a, err)
	}
	return nil
}

func (a *address) start(ctx context.Context) error {
	v, err := bounded(ctx, a.look)
	if err == nil {
		err = a.mayStart(v)
	}
	if err != nil {
		return err
	}
	k := &keeper{a: a, link: v.link}
	kept := false
	defer func() {
		if !kept {
			k.close()
		}
	}()
	// The keeper's ears are open before the first look that counts, so that nothing is missed in between.
	if k.events, err = a.kernel.events(); err != nil {
		return err
	}
	if !v.link.silent() {
		if k.wire, err = a.openWire(ctx, v.link); err != nil {
			return err
		}
	}
	if k.wire != nil && v.link.carrier() {
		if err := a.findOwner(ctx, k.wire, v.link, len(v.found) > 0); err != nil {
			return err
		}
	}
	if len(v.found) == 0 {
		if err := a.add(ctx, v.link); err != nil {
			return err
		}
	}
	if k.link, err = a.verify(ctx, v.link); err != nil {
		return err
	}
	a.conflict.Store(nil)
	if err := k.announce(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keeper = k
	kept = true
	k.start()
	return nil
}

// mayStart refuses where the address could not be reached, or is in the wrong place.
func (a *address) mayStart(v view) error {
	if err := a.misplaced(v); err != nil {
		return err
	}
	if v.err != nil {
		return v.err
	}
	return a.mayHold(v.link)
}

// add puts the address on the link, unless the link was away while the network was asked: then silence said nothing.
func (a *address) add(ctx context.Context, before link) error {
	return a.change(ctx, func() error {
		now, err := a.kernel.linkNumbered(before.index)
		if errors.Is(err, errNoLink) {
			return fmt.Errorf("%w: %s: %w", resources.ErrNode, before.name, err)
		}
		if err != nil {
			return err
		}
		if now.changes != before.changes || now.up() != before.up() {
			return fmt.Errorf("%w: the link of %s went down or came up while other hosts were asked for the address", resources.ErrNode, before.name)
		}
		err = a.kernel.add(now.index, a.ip, a.bits)
		switch {
		case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN):
			err = fmt.Errorf("%w: %w", resources.ErrNode, err)
		case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
			err = fmt.Errorf("%w: %w (IPv6 switched off on the interface, or the daemon lacks CAP_NET_ADMIN)", resources.ErrSetup, err)
		}
		if err != nil {
			return fmt.Errorf("add it to %s: %w", now.name, err)
		}
		return nil
	}, func() error { return a.kernel.remove(entry{index: before.index, ip: a.ip, bits: a.bits}) })
}

// change runs a request that changes the kernel's addresses, and undoes what was done if nobody waits for it any
// more. There is one at a time: one that was given up may still be under way, and nothing is known for sure
// before it has come back.
func (a *address) change(ctx context.Context, call, undo func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case a.changing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("an earlier request to the kernel has not come back: %w", ctx.Err())
	}
	_, err := beside(ctx, func() (struct{}, error) { return struct{}{}, call() }, func(_ struct{}, err error, taken bool) {
		if !taken && err == nil && undo != nil {
			if err := undo(); err != nil {
				a.env.Log.Warn("what nobody waits for any more could not be undone", "err", err)
			}
		}
		<-a.changing
	})
	return err
}

// verify reads back that the address is here and can be used. It waits for the kernel's own duplicate detection,
// which runs where something else added the address.
func (a *address) verify(ctx context.Context, l link) (link, error) {
	for {
		v, err := bounded(ctx, a.look)
		if err != nil {
			return link{}, err
		}
		if len(v.found) == 0 {
			return link{}, fmt.Errorf("it was put on %s, and the kernel does not show it", l.name)
		}
		if err := a.mayStart(v); err != nil {
			return link{}, err
		}
		flags := v.found[0].flags
		if flags&unix.IFA_F_DADFAILED != 0 {
			err := fmt.Errorf("%w: another host on the network of %s has it, by the kernel's duplicate address detection", resources.ErrElsewhere, v.link.name)
			return link{}, errors.Join(err, a.change(ctx, func() error { return a.kernel.remove(v.found[0]) }, nil))
		}
		if flags&unix.IFA_F_TENTATIVE == 0 {
			return v.link, a.awaitDelivery(ctx, v.link)
		}
		if err := pause(ctx, tentativePause); err != nil {
			return link{}, fmt.Errorf("the kernel's duplicate address detection on %s has not ended: %w", v.link.name, err)
		}
	}
}

// awaitDelivery waits until the kernel takes what is sent to the address: who hears of it before would lose packets.
// Unusual routing may hide that for good, so it is no condition.
func (a *address) awaitDelivery(ctx context.Context, l link) error {
	for end := time.Now().Add(deliveryTime); time.Now().Before(end); {
		ok, err := bounded(ctx, func() (bool, error) { return a.kernel.delivers(l.index, a.ip) })
		if ok || ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("route of the address on %s: %w", l.name, err)
		}
		if err := pause(ctx, deliveryPause); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
