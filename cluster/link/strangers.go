package link

import (
	"sync"
	"time"
)

// A node that was removed from the configuration knows the cluster key, and nobody told it that
// it was removed. It may ask, by the protocol Join, and for nothing else; what it says is
// no contact and no packet. So few visits are let in that they cost nothing.
const (
	maxVisitors = 4                      // at once
	visitEvery  = 250 * time.Millisecond // on average
	visitBurst  = 8
)

// visitors bounds the conns of strangers.
type visitors struct {
	mu     sync.Mutex
	inside int
	spent  time.Duration // of visitBurst*visitEvery, at the time of the last visit
	last   time.Time
	told   time.Time // when one was last logged
}

// enter takes a place; leave gives it back.
func (v *visitors) enter(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.last.IsZero() {
		v.spent = max(v.spent-now.Sub(v.last), 0)
	}
	v.last = now
	if v.inside >= maxVisitors || v.spent+visitEvery > visitBurst*visitEvery {
		return false
	}
	v.inside++
	v.spent += visitEvery
	return true
}

// tell reports whether a visit is to be logged: one that is removed and runs on asks several times a second.
func (v *visitors) tell(now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.told.IsZero() && now.Sub(v.told) < reportPause {
		return false
	}
	v.told = now
	return true
}

func (v *visitors) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.inside--
}

// admitStranger lets a conn of no configured node in, for as long as a dial may take.
func (l *Link) admitStranger(c *conn) bool {
	if !l.visitors.enter(time.Now()) {
		return false
	}
	c.left = sync.OnceFunc(l.visitors.leave)
	time.AfterFunc(l.patience, c.abort)
	if l.visitors.tell(time.Now()) {
		l.log.Warn("a node that is not configured asks to join", "node", c.name, "address", c.raw.RemoteAddr().String())
	}
	return true
}
