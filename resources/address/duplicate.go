package address

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// questions is how often the network is asked before the address is taken (PROBE_NUM of RFC 5227).
const questions = 3

// findOwner asks the network whether another host has the address, or is about to take it. Its pace is ours: that of
// RFC 5227 (4 to 7 s) and of RFC 4862 (1 to 2 s) is meant for hosts that choose an address, not for one that
// takes over where clients wait.
func (a *address) findOwner(ctx context.Context, w *wire, l link, present bool) error {
	defer w.interrupt(ctx)()
	buffer := make([]byte, frameLength)
	for range questions {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.send(a.discovery.question(l, a.ip)); err != nil {
			return sendFault(l, err)
		}
		until := time.Now().Add(a.opts.DuplicateTimeout / questions) // from when it was sent, whatever held us up before
		for {
			got, err := w.receive(ctx, buffer, until)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return fmt.Errorf("listen on %s: %w", l.name, err)
			}
			c, ok := a.discovery.read(got, a.ip)
			if !ok || bytes.Equal(c.mac, l.mac) { // our own question, thrown back
				continue
			}
			if err := a.judgeClaim(ctx, c, l, present); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeClaim tells what the word of somebody means who seems to have the address.
func (a *address) judgeClaim(ctx context.Context, c claim, l link, present bool) error {
	own, err := a.ownLink(ctx, c.mac)
	switch {
	case err != nil:
		return fmt.Errorf("%s answers for it, and whether that is this host cannot be told: %w", c.mac, err)
	case own != "" && present: // a host answers for its addresses on all interfaces, unless told otherwise
		return nil
	case own != "":
		return fmt.Errorf("%w: %s (%s) of this host answers for it on the network of %s", errHere, own, c.mac, l.name)
	case c.asking:
		return fmt.Errorf("%w: the host with MAC %s, on the network of %s, is about to take it too", resources.ErrElsewhere, c.mac, l.name)
	}
	return fmt.Errorf("%w: the host with MAC %s answers for it on the network of %s", resources.ErrElsewhere, c.mac, l.name)
}

// ownLink names the interface of this host that has a MAC; empty if none has.
func (a *address) ownLink(ctx context.Context, mac net.HardwareAddr) (string, error) {
	links, err := bounded(ctx, a.kernel.links)
	if err != nil {
		return "", fmt.Errorf("interfaces of this host: %w", err)
	}
	i := slices.IndexFunc(links, func(l link) bool { return bytes.Equal(l.mac, mac) || bytes.Equal(l.permanent, mac) })
	if i < 0 {
		return "", nil
	}
	return links[i].name, nil
}

// sendFault says whose fault it is that a frame could not be sent.
func sendFault(l link, err error) error {
	if errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		err = fmt.Errorf("%w: %w", resources.ErrNode, err)
	}
	return fmt.Errorf("send on %s: %w", l.name, err)
}
