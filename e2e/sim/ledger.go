package sim

import (
	"fmt"
	"time"
)

// ledger is what the groups' writers leave on the shared storage: each active one stamps its token, over and over. It
// judges by the order of the writes alone, and knows nothing of grants.
type ledger struct {
	c      *Cluster
	ended  chan struct{}
	last   map[string]stamp // by group and resource
	Writes int
	Turns  int // how often another token than the last wrote
}

type stamp struct {
	at    time.Time
	host  string
	token uint64
}

// stampEvery is how often each writer writes.
const stampEvery = 5 * time.Millisecond

// keepLedger has every group's writer write from now on, until stop is called.
func (c *Cluster) keepLedger() (l *ledger, stop func()) {
	l = &ledger{c: c, ended: make(chan struct{}), last: map[string]stamp{}}
	done := make(chan struct{})
	c.wg.Go(func() {
		defer close(l.ended)
		ticker := time.NewTicker(stampEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				l.write()
			}
		}
	})
	return l, func() { close(done); <-l.ended }
}

// write lets every writer that can write do so once. One on a host that stands still writes when it moves again.
func (l *ledger) write() {
	for _, w := range l.c.Storage.Active() {
		if l.c.Site == nil && w.Resource != "app" || l.c.hosts[w.Host].still() {
			continue
		}
		key := w.Group + "/" + w.Resource
		now := stamp{time.Now(), w.Host, w.Token}
		before, wrote := l.last[key]
		switch {
		case !wrote:
		case now.token < before.token:
			l.broken(w.Group, "a lower token after a higher one", before, now)
		case now.host != before.host && now.token == before.token:
			l.broken(w.Group, "one token on two hosts", before, now)
		case now.host != before.host && now.at.Equal(before.at):
			l.broken(w.Group, "two writers at once", before, now)
		}
		if now.token != before.token {
			l.Turns++
		}
		l.last[key] = now
		l.Writes++
	}
}

func (l *ledger) broken(group, how string, before, now stamp) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.errs = append(l.c.errs, fmt.Errorf("ledger of %s at %s: %s: %s with token %d at %s, before that %s with token %d",
		group, now.at.Format("04:05.000"), how, now.host, now.token, now.at.Format("04:05.000"), before.host, before.token))
}
