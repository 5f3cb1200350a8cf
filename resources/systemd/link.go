package systemd

import (
	"context"
	"sync"
)

// shared is the connection on which all resources of the daemon look at their units.
var shared = &link{dial: connect}

// link shares one connection among all who need one at the time. It is there while anybody does: a resource that is
// followed for its death keeps it for the looks of all others.
type link struct {
	dial func(context.Context) (manager, error)

	mu      sync.Mutex
	current *sharedConn
}

type sharedConn struct {
	manager
	users int // guarded by link.mu
}

// acquire gives the connection. Whoever finds it dead or without an answer says so to release, and the
// next one gets a new one; others may still get their answers on the old one.
func (l *link) acquire(ctx context.Context) (m manager, release func(healthy bool), err error) {
	c := l.join()
	if c == nil {
		m, err := l.dial(ctx)
		if err != nil {
			return nil, nil, err
		}
		if c = l.offer(m); c.manager != m {
			m.Close() // another one was quicker
		}
	}
	return c, func(healthy bool) { l.leave(c, healthy) }, nil
}

func (l *link) join() *sharedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.current
	if c == nil {
		return nil
	}
	select {
	case <-c.Lost():
		l.current = nil
		return nil
	default:
	}
	c.users++
	return c
}

func (l *link) offer(m manager) *sharedConn {
	if c := l.join(); c != nil {
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil { // offered since
		l.current.users++
		return l.current
	}
	l.current = &sharedConn{manager: m, users: 1}
	return l.current
}

func (l *link) leave(c *sharedConn, healthy bool) {
	l.mu.Lock()
	c.users--
	last := c.users == 0
	if l.current == c && (last || !healthy) {
		l.current = nil
	}
	l.mu.Unlock()
	if last {
		c.Close()
	}
}
