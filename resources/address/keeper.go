package address

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

const (
	announcePause = time.Second
	// A claim by another host is answered at once, the next ones after growing pauses. RFC 5227 section 2.4
	// wants 10 s between two answers; a client whose table was taken over should not wait so long for the first.
	firstDefencePause = 100 * time.Millisecond
	maxDefencePause   = 10 * time.Second
	// conflictShown is how long a conflict stays in the detail of Probe, and how long there must have been none
	// until the pauses start anew.
	conflictShown = time.Minute
)

// conflict is what was seen of other hosts that claim the address while it is here.
type conflict struct {
	mac   net.HardwareAddr
	count int
	last  time.Time
}

func (c *conflict) Error() string {
	return fmt.Sprintf("CONFLICT: the host with MAC %s says that it has it too (seen %d times, last %s ago)",
		c.mac, c.count, time.Since(c.last).Round(time.Second))
}

// keeper stays with the address from Start to Stop.
type keeper struct {
	a      *address
	link   link
	events *os.File
	wire   *wire // nil where the link has no neighbours

	cancel  context.CancelFunc
	running sync.WaitGroup
	once    sync.Once
	ended   chan struct{}
	reason  error // why it ended; to be read when ended is closed
}

// close closes what the keeper listens with.
func (k *keeper) close() {
	if k.events != nil {
		k.events.Close()
	}
	if k.wire != nil {
		k.wire.Close()
	}
}

func (k *keeper) announce() error {
	if k.wire == nil || !k.link.carrier() {
		return nil
	}
	if err := k.wire.send(k.a.discovery.announcement(k.link, k.a.ip)...); err != nil {
		return sendFault(k.link, err)
	}
	return nil
}

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel, k.ended = cancel, make(chan struct{})
	changed, claims := make(chan link, 1), make(chan claim, 1)
	at := k.link // k.link itself is speak's from here on
	k.running.Go(func() { k.end(k.a.watch(ctx, k.events, at, changed)) })
	k.running.Go(func() { k.speak(ctx, changed, claims) })
	if k.wire != nil {
		k.running.Go(func() { k.listen(ctx, at.mac, claims) })
	}
}

// end ends the keeper, for a reason of which the first one counts. It does not wait.
func (k *keeper) end(reason error) {
	k.once.Do(func() {
		k.reason = reason
		close(k.ended)
		k.cancel()
		k.close()
	})
}

// endKeeper ends the keeper and waits until it is gone.
func (a *address) endKeeper(reason error) {
	a.mu.Lock()
	k := a.keeper
	a.keeper = nil
	a.mu.Unlock()
	if k != nil {
		k.end(reason)
		k.running.Wait()
	}
}

// Died implements resources.Watcher.
func (a *address) Died(ctx context.Context) error {
	a.mu.Lock()
	k := a.keeper
	a.mu.Unlock()
	if k != nil {
		select {
		case <-k.ended:
			return fmt.Errorf("address %s: %w", a, k.reason)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	events, err := a.kernel.events()
	if err != nil { // nothing is known to have died; the monitors go on
		a.env.Log.Warn("the address is not watched between monitors", "err", err)
		<-ctx.Done()
		return ctx.Err()
	}
	defer context.AfterFunc(ctx, func() { events.Close() })()
	defer events.Close()
	err = a.watch(ctx, events, link{}, nil)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("address %s: %w", a, err)
}

// watch blocks until the address is no longer active here, and tells why; or until its socket is closed. What
// changes at the link without that goes to a channel.
func (a *address) watch(ctx context.Context, events *os.File, at link, changed chan link) error {
	buffer := make([]byte, 16<<10)
	for {
		v, err := bounded(ctx, a.look)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			// Unknown is not gone. The next monitor asks again.
			a.env.Log.Warn("the kernel does not tell about the address", "err", err)
		default:
			if err := a.lost(v); err != nil {
				return err
			}
			if v.link.changes != at.changes || !bytes.Equal(v.link.mac, at.mac) || v.link.carrier() != at.carrier() {
				at = v.link
				replace(changed, v.link)
			}
		}
		for concerned := false; !concerned; {
			n, err := events.Read(buffer)
			switch {
			case errors.Is(err, os.ErrClosed):
				return err
			case err != nil: // most likely more came than the socket holds (ENOBUFS): look, and go on
				concerned = true
				if !errors.Is(err, unix.ENOBUFS) && pause(ctx, announcePause) != nil {
					return ctx.Err()
				}
			default:
				concerned = concerns(buffer[:n], a.ip, at.index)
			}
		}
	}
}

// replace puts the newest state of a link into a channel of one, which may be nil; the one before is out of date.
func replace(changed chan link, l link) {
	if changed == nil {
		return
	}
	select {
	case <-changed:
	default:
	}
	changed <- l // nobody else sends
}

// lost says why a started address is not active.
func (a *address) lost(v view) error {
	state, detail := a.judge(v)
	switch {
	case state == resources.Active:
		return nil
	case state == resources.Inactive:
		return errors.New("it was taken away from this host, not by hamgr")
	case v.found[0].flags&unix.IFA_F_DADFAILED != 0:
		return fmt.Errorf("%w: %s", resources.ErrElsewhere, detail)
	case v.err == nil && a.linkFault(v.link) != "":
		return fmt.Errorf("%w: %s", resources.ErrNode, detail)
	}
	return errors.New(detail)
}

// concerns reports whether messages of the kernel may be about the address or its link. Without a link, all are.
func concerns(b []byte, ip netip.Addr, index int) bool {
	for m := range messages(b) {
		switch m.typ {
		case unix.RTM_NEWADDR, unix.RTM_DELADDR:
			if e, ok := parseEntry(m.data); !ok || e.ip == ip {
				return true
			}
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if l, ok := parseLink(m.data); !ok || l.index == index || index == 0 {
				return true
			}
		}
	}
	return false
}

// listen hands on what other hosts say of the address. What comes faster than it is dealt with is dropped.
func (k *keeper) listen(ctx context.Context, mac net.HardwareAddr, claims chan<- claim) {
	buffer := make([]byte, frameLength)
	for {
		got, err := k.wire.receive(ctx, buffer, time.Time{})
		if ctx.Err() != nil || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) && pause(ctx, announcePause) != nil {
				return
			}
			continue
		}
		c, ok := k.a.discovery.read(got, k.a.ip)
		if !ok || c.asking || bytes.Equal(c.mac, mac) { // who only asks is answered by the kernel
			continue
		}
		select {
		case claims <- c:
		default:
		}
	}
}

// speak repeats the announcements, also after the link has come back, and answers claims.
func (k *keeper) speak(ctx context.Context, changed <-chan link, claims <-chan claim) {
	until := time.Now().Add(k.a.opts.Announce)
	again := time.NewTimer(announcePause)
	defer again.Stop()
	defence := time.NewTimer(0)
	defer defence.Stop()
	<-defence.C
	var d defences
	for {
		select {
		case <-ctx.Done():
			return
		case k.link = <-changed:
			if !k.link.carrier() {
				continue
			}
			if err := k.askAgain(ctx); errors.Is(err, resources.ErrElsewhere) {
				k.end(err)
				return
			}
			until = time.Now().Add(k.a.opts.Announce)
			again.Reset(announcePause)
		case <-again.C:
			if time.Now().After(until) {
				continue
			}
			again.Reset(announcePause)
		case c := <-claims:
			if own, err := k.a.ownLink(ctx, c.mac); err == nil && own == "" {
				k.record(c)
				if wait, ok := d.wait(time.Now()); ok {
					defence.Reset(wait)
				}
			}
			continue
		case <-defence.C:
			d.done(time.Now())
			k.a.env.Log.Warn("the address "+k.a.ip.String()+" is announced again", "err", k.a.conflict.Load())
		}
		if err := k.announce(); err != nil && ctx.Err() == nil {
			k.a.env.Log.Debug("the address could not be announced", "err", err)
		}
	}
}

// askAgain looks for another owner after the link was away: one may have come meanwhile.
func (k *keeper) askAgain(ctx context.Context) error {
	if k.wire == nil {
		return nil
	}
	w, err := k.a.openWire(ctx, k.link)
	if err != nil {
		return err
	}
	defer w.Close()
	return k.a.findOwner(ctx, w, k.link, true)
}

func (k *keeper) record(c claim) {
	next := conflict{mac: c.mac, count: 1, last: time.Now()}
	if before := k.a.conflict.Load(); before != nil {
		next.count += before.count
	}
	k.a.conflict.Store(&next)
}

// defences spaces the answers to claims.
type defences struct {
	last    time.Time     // of the last answer
	pause   time.Duration // to the next one
	pending bool
}

// wait says how long the answer to a claim has to wait; false if one is due already.
func (d *defences) wait(now time.Time) (time.Duration, bool) {
	if d.pending {
		return 0, false
	}
	d.pending = true
	if d.last.IsZero() || now.Sub(d.last) > conflictShown {
		d.pause = 0
		return 0, true
	}
	return max(0, d.pause-now.Sub(d.last)), true
}

func (d *defences) done(now time.Time) {
	d.last, d.pending = now, false
	d.pause = min(max(firstDefencePause, 2*d.pause), maxDefencePause)
}
