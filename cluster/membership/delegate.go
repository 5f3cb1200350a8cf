package membership

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Flags in the first byte of the meta that memberlist carries.
const (
	metaPresent byte = 0
	metaLeaving byte = 1
)

// delegate is what memberlist calls. It keeps the view and feeds the events. memberlist
// calls it with its own lock held: nothing here may block or call back.
type delegate struct {
	self      string
	addresses addressBook
	feed      *feed
	joined    chan struct{} // a node has joined this one, or this one another

	mu      sync.Mutex // guards what follows
	meta    []byte
	leaving bool
	closed  bool
	members map[string]Member
}

func newDelegate(cfg Config, addresses addressBook, f *feed) *delegate {
	d := &delegate{self: cfg.Self, addresses: addresses, feed: f, joined: make(chan struct{}, 1), meta: bytes.Clone(cfg.Meta), members: make(map[string]Member)}
	for _, node := range cfg.Nodes {
		d.members[node] = Member{Node: node}
	}
	return d
}

// NodeMeta implements memberlist.Delegate.
func (d *delegate) NodeMeta(int) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	flag := metaPresent
	if d.leaving {
		flag = metaLeaving
	}
	return append([]byte{flag}, d.meta...)
}

func (d *delegate) setLeaving() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = true
}

// close makes the callbacks do nothing: memberlist's timers outlive its Shutdown.
func (d *delegate) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// NotifyAlive refuses strangers, and nodes at an address that is not theirs.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	ip, known := d.addresses.ips[n.Name]
	if !known {
		return fmt.Errorf("%q is not a configured node", n.Name)
	}
	if !ip.Equal(n.Addr) || n.Port != gossipPort {
		return fmt.Errorf("%q advertises %s, its address is %s", n.Name, n.Address(), d.addresses.address(n.Name))
	}
	return nil
}

// NotifyMerge lets everybody in, NotifyAlive judges each. It is called for a join alone.
func (d *delegate) NotifyMerge([]*memberlist.Node) error {
	select {
	case d.joined <- struct{}{}:
	default:
	}
	return nil
}

// NotifyJoin implements memberlist.EventDelegate.
func (d *delegate) NotifyJoin(n *memberlist.Node) { d.update(n, Alive) }

// NotifyUpdate implements memberlist.EventDelegate: the meta changed.
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.update(n, Alive) }

// NotifyLeave implements memberlist.EventDelegate. memberlist does not say whether the
// node left or died; the flag that a leaving node gossips beforehand does.
func (d *delegate) NotifyLeave(n *memberlist.Node) {
	if len(n.Meta) > 0 && n.Meta[0] == metaLeaving {
		d.update(n, Left)
		return
	}
	d.update(n, Dead)
}

func (d *delegate) update(n *memberlist.Node, s State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, known := d.members[n.Name]
	if d.closed || !known {
		return
	}
	var meta []byte
	if len(n.Meta) > 1 {
		meta = bytes.Clone(n.Meta[1:])
	}
	if old.State == s && bytes.Equal(old.Meta, meta) {
		return // only the leave flag came
	}
	since := old.Since
	if old.State != s {
		since = time.Now()
	}
	d.members[n.Name] = Member{Node: n.Name, State: s, Since: since, Meta: meta}
	if n.Name != d.self {
		d.feed.put(Event{Node: n.Name, State: s, Meta: meta})
	}
}

// NotifyMsg implements memberlist.Delegate: this cluster gossips no messages of its own.
func (d *delegate) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (d *delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (d *delegate) MergeRemoteState([]byte, bool) {}
