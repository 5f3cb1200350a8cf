// Package membership tells which nodes of the cluster are alive, as far as gossip can
// tell: SWIM (hashicorp/memberlist) over the cluster's link.
//
// What it says is a hint. A node that returns from a cut declares healthy nodes dead, and
// third nodes believe it; whoever holds the cluster key can have any node called dead for as long
// as he says so. Nothing may be fenced on the word of this package alone: the caller compares
// it with its own authenticated contact.
//
// The configured node list is authoritative. Strangers are refused, and every configured
// node that is missing is asked to join again, for ever: memberlist by itself never
// reconnects two sides that declared each other dead (hashicorp/memberlist#222).
//
// memberlist's encryption is off, because link seals every packet and stream with the
// cluster key already. Its compression is off in both directions, because a small message
// can unpack to a huge one (hashicorp/memberlist#362).
package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/hamgr/hamgr/cluster/link"
)

// Errors that callers may test for.
var (
	// ErrConfig is wrapped by every refusal of a Config.
	ErrConfig = errors.New("invalid membership configuration")
	// ErrStopped means that Stop was called.
	ErrStopped = errors.New("membership is stopped")
)

// MaxMeta is the largest Meta, in bytes: memberlist's limit less our flag byte.
const MaxMeta = memberlist.MetaMaxSize - 1

// Link is what membership needs of cluster/link: packets and gossip streams by node name.
type Link interface {
	Dial(ctx context.Context, node string, p link.Protocol) (net.Conn, error)
	Listener(p link.Protocol) net.Listener
	Send(node string, payload []byte) error
	Packets() <-chan link.Packet
}

// Config says who takes part. DetectionTime sets every interval, see DeriveTiming.
type Config struct {
	Self          string        // this node's name, one of Nodes
	Nodes         []string      // every configured node, Self included
	Link          Link          // how to reach them
	DetectionTime time.Duration // the longest pause of a healthy node that must not look like death
	Meta          []byte        // announced to all, at most MaxMeta bytes: the boot ID
	Log           *slog.Logger  // nil: discard
}

func (c Config) validate() error {
	switch {
	case c.Link == nil:
		return fmt.Errorf("%w: no link", ErrConfig)
	case c.DetectionTime <= 0:
		return fmt.Errorf("%w: detection time %s is not positive", ErrConfig, c.DetectionTime)
	case len(c.Meta) > MaxMeta:
		return fmt.Errorf("%w: meta of %d bytes, at most %d", ErrConfig, len(c.Meta), MaxMeta)
	case !slices.Contains(c.Nodes, c.Self):
		return fmt.Errorf("%w: %q is not among the nodes %s", ErrConfig, c.Self, strings.Join(c.Nodes, ", "))
	}
	return nil
}

// State is the verdict on a node. Suspicion is not shown: it is either refuted or ends
// in Dead within the detection time.
type State int

const (
	Unknown State = iota // configured, never seen since this daemon started
	Alive                // answers, or was answered for, within the detection time
	Dead                 // went silent without a word
	Left                 // announced that it leaves, and went
)

// String names the state in lower case.
func (s State) String() string {
	switch s {
	case Unknown:
		return "unknown"
	case Alive:
		return "alive"
	case Dead:
		return "dead"
	case Left:
		return "left"
	default:
		return fmt.Sprintf("state %d", int(s))
	}
}

// Event is a change of a node other than Self: its new state, or its new meta.
type Event struct {
	Node  string
	State State
	Meta  []byte
}

// Member is what is known of one configured node. Since is when State was entered, zero
// for Unknown.
type Member struct {
	Node  string
	State State
	Since time.Time
	Meta  []byte
}

// Membership is a running SWIM member. Its methods may be called from any goroutine.
type Membership struct {
	cfg       Config
	log       *slog.Logger
	timing    Timing
	list      *memberlist.Memberlist
	transport *transport
	delegate  *delegate
	feed      *feed
	addresses addressBook

	stop      context.CancelFunc // ends everything
	stopJoins context.CancelFunc
	stopOnce  sync.Once
	wg        sync.WaitGroup
	leave     chan struct{} // held by UpdateNode, Leave or Shutdown: memberlist does not bear that they meet. Waiting for a channel lets virtual time go on
}

// Start joins the gossip of the configured nodes and keeps trying to, until Stop. It does
// not wait for anybody: a node that starts alone is simply alone.
func Start(cfg Config) (*Membership, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	addresses, err := newAddressBook(cfg.Nodes)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	joins, stopJoins := context.WithCancel(ctx)
	m := &Membership{
		cfg: cfg, log: cfg.Log, timing: DeriveTiming(cfg.DetectionTime, len(cfg.Nodes)),
		addresses: addresses, feed: newFeed(), stop: stop, stopJoins: stopJoins, leave: make(chan struct{}, 1),
	}
	m.delegate = newDelegate(cfg, addresses, m.feed)
	m.transport = newTransport(cfg.Self, cfg.Link, addresses)
	m.list, err = memberlist.Create(m.timing.config(cfg.Self, m.transport, m.delegate, cfg.Log))
	if err != nil {
		stop()
		_ = m.transport.Shutdown()
		return nil, fmt.Errorf("start gossip of %s: %w", cfg.Self, err)
	}
	m.wg.Go(func() { m.feed.run(ctx) })
	m.wg.Go(func() { m.announce(joins) })
	for _, node := range cfg.Nodes {
		if node != cfg.Self {
			m.wg.Go(func() { m.rejoin(joins, node) })
		}
	}
	return m, nil
}

// Events delivers the changes, in order for each node. A slow reader never holds up the
// gossip and never misses the newest state of a node: what it did not fetch in time
// is replaced by what came after. The channel is closed by Stop.
func (m *Membership) Events() <-chan Event { return m.feed.out }

// View returns every configured node, Self included.
func (m *Membership) View() map[string]Member {
	m.delegate.mu.Lock()
	defer m.delegate.mu.Unlock()
	return maps.Clone(m.delegate.members)
}

// Leave announces a clean leave, so that the others see Left and not Dead, and returns
// when the announcement went out or ctx ended. It is best effort: where the announcement
// is lost, this node looks Dead later; whether it holds anything is for the log to say.
func (m *Membership) Leave(ctx context.Context) error {
	m.stopJoins() // they would bring us back
	done := make(chan error, 1)
	m.wg.Go(func() { done <- m.announceLeave(ctx) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("announce the leave of %s: %w", m.cfg.Self, ctx.Err())
	}
}

// announceLeave first gossips our meta with the leave flag: memberlist tells its
// delegate that a node went, but not whether it left or died, so the flag must be there
// before.
func (m *Membership) announceLeave(ctx context.Context) error {
	m.leave <- struct{}{}
	defer func() { <-m.leave }()
	if m.transport.ctx.Err() != nil {
		return ErrStopped
	}
	limit := func() time.Duration {
		if deadline, ok := ctx.Deadline(); ok {
			return max(min(m.cfg.DetectionTime, time.Until(deadline)), time.Millisecond)
		}
		return m.cfg.DetectionTime
	}
	m.delegate.setLeaving()
	if err := m.list.UpdateNode(limit()); err != nil {
		m.log.Debug("leave flag not confirmed", "node", m.cfg.Self, "err", err)
	}
	if err := m.list.Leave(limit()); err != nil {
		return fmt.Errorf("announce the leave of %s: %w", m.cfg.Self, err)
	}
	return nil
}

// Stop ends the gossip without a word (see Leave) and waits for the goroutines of this
// package. memberlist does not wait for its own: probes in flight end within one probe
// interval, and suspicion timers fire up to the detection time later and find nothing to do.
func (m *Membership) Stop() {
	m.stopOnce.Do(func() {
		m.stop()
		m.delegate.close()
		_ = m.transport.Shutdown() // first, so that a join or a leave in progress ends now
		m.leave <- struct{}{}
		_ = m.list.Shutdown()
		<-m.leave
		m.wg.Wait()
		m.feed.close()
	})
}
