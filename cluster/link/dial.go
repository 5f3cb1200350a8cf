package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// headStart is how long one link has before the next one is tried beside it.
const headStart = 30 * time.Millisecond

// Dial opens a stream to node for protocol p, over the first link that answers: the last
// good one first, the next after 30 ms or as soon as one fails. It obeys ctx at once,
// and no attempt takes longer than the detection time. The conn has the method Peer()
// string. In TLS 1.3 the dialer is done before the other side has judged it: its
// refusal shows at the first Read.
func (l *Link) Dial(ctx context.Context, node string, p Protocol) (net.Conn, error) {
	to, err := l.peer(node)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c, err := l.race(ctx, to, p)
	if err != nil {
		return nil, fmt.Errorf("dial node %s for %s: %w", node, p, err)
	}
	l.tally.dialed.Add(1)
	return c, nil
}

// attempt is the outcome of one path.
type attempt struct {
	conn *conn
	via  *path
	err  error
}

// race tries the paths beside each other; the first conn wins and the others are closed.
func (l *Link) race(ctx context.Context, to *peer, p Protocol) (*conn, error) {
	racing, stop := context.WithTimeout(ctx, l.patience)
	defer stop() // the losers give up
	defer context.AfterFunc(l.ctx, stop)()

	results := make(chan attempt) // unbuffered: who finds nobody closes its conn
	paths := to.order()
	started, running := 0, 0
	next := func() {
		via := paths[started]
		started++
		if l.spawn(func() { l.try(racing, to, via, p, results) }) {
			running++
		}
	}
	next()
	timer := time.NewTimer(headStart)
	defer timer.Stop()
	var errs []error
	for running > 0 {
		select {
		case <-timer.C:
			if started < len(paths) {
				next()
				timer.Reset(headStart)
			}
		case r := <-results:
			running--
			if r.err == nil {
				to.good(r.via)
				return r.conn, nil
			}
			errs = append(errs, fmt.Errorf("by %s: %w", r.via.address, r.err))
			if started < len(paths) {
				next()
				timer.Reset(headStart)
			}
		case <-racing.Done():
			return nil, l.givenUp(ctx, errs)
		}
	}
	if len(errs) == 0 || l.ctx.Err() != nil {
		return nil, ErrStopped
	}
	return nil, errors.Join(errs...)
}

// givenUp is the error of a race that ended before all paths failed.
func (l *Link) givenUp(ctx context.Context, errs []error) error {
	switch {
	case l.ctx.Err() != nil:
		return ErrStopped
	case ctx.Err() != nil:
		return errors.Join(append(errs, context.Cause(ctx))...)
	default:
		return errors.Join(append(errs, fmt.Errorf("no answer within %s: %w", l.patience, context.DeadlineExceeded))...)
	}
}

// try makes one attempt and hands its outcome to the race, if that still runs.
func (l *Link) try(ctx context.Context, to *peer, via *path, p Protocol, results chan<- attempt) {
	c, err := l.connect(ctx, to, via, p)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		to.failed(via, err)
	}
	select {
	case results <- attempt{c, via, err}:
	case <-ctx.Done():
		if c != nil {
			c.Close()
		}
	}
}

// connect dials one path and does the handshake.
func (l *Link) connect(ctx context.Context, to *peer, via *path, p Protocol) (*conn, error) {
	dialed, err := l.network.Dial(ctx, via.local.host(), via.address)
	if err != nil && cannotBind(err) {
		dialed, err = l.network.Dial(ctx, "", via.address)
	}
	if err != nil {
		return nil, err
	}
	raw := &rawConn{Conn: dialed}
	key := l.keys.Load().active
	secure := tls.Client(raw, key.clientConfig(to.name, p))
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	c := &conn{Conn: secure, raw: raw, link: l, key: key.id, name: to.name, peer: to, via: via}
	if !l.keep(c) {
		if l.ctx.Err() != nil {
			return nil, ErrStopped
		}
		return nil, errKeyGone
	}
	return c, nil
}

// errKeyGone ends a dial whose key was dropped meanwhile.
var errKeyGone = errors.New("the cluster key was dropped during the handshake")

// order lists the paths: those that work first, and among them the last good one.
func (p *peer) order() []*path {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	ordered := slices.Clone(p.paths)
	rank := func(via *path) int {
		rank := 4 * via.trouble(p, now)
		if int(via.index) != p.last {
			rank++
		}
		return rank
	}
	slices.SortStableFunc(ordered, func(a, b *path) int { return rank(a) - rank(b) })
	return ordered
}

// good remembers the path that a dial took.
func (p *peer) good(via *path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = int(via.index)
}
