package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/coordinator"
	"github.com/hamgr/hamgr/cluster/state"
)

// Next is what a daemon begins anew with.
type Next struct {
	Config *config.Config
	Text   string // from which Config was made
	Reason string
}

// configs follows the configuration in the log.
type configs struct {
	wakeup chan struct{}
	behind time.Time // since when the coordinator tells of a configuration that the log here does not have; for offered alone

	mu      sync.Mutex
	refused map[string]refusal // by digest
}

// refusal is why a text cannot be used on this host, and when that is looked at again: a file may have been missing, or a
// port taken, and is not any more.
type refusal struct {
	why   string
	until time.Time
}

// The pauses until a text that could not be used is tried again: to read it costs nothing, but to start with it is
// a restart of the daemon's parts.
const (
	readAgain  = 10 * time.Second
	startAgain = 10 * time.Minute
)

func newConfigs() *configs {
	return &configs{wakeup: make(chan struct{}, 1), refused: map[string]refusal{}}
}

func (c *configs) wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// why says why a text cannot be used here; empty if it can, or was not tried.
func (c *configs) why(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[textDigest(text)].why
}

// wait is how long a text is not to be tried again.
func (c *configs) wait(text string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(time.Until(c.refused[textDigest(text)].until), 0)
}

// MayBlameText reports whether a start that failed may have failed because of its configuration, so that the one before is
// worth a try. After a failure of the disk it is not, and the process has to end: what hung may be written yet, behind the
// back of another start.
func MayBlameText(err error) bool { return !errors.Is(err, consensus.ErrStoreFailed) }

// Refuse notes that the daemon could not start with a text, so that it is shown, and tried again only after a while.
func (n *Node) Refuse(text string, err error) { n.refuse(text, err, startAgain) }

func (n *Node) refuse(text string, err error, pause time.Duration) {
	n.configs.mu.Lock()
	defer n.configs.mu.Unlock()
	known := n.configs.refused[textDigest(text)].why == err.Error()
	n.configs.refused[textDigest(text)] = refusal{err.Error(), time.Now().Add(pause)}
	if !known {
		n.Log.Error("the cluster's configuration cannot be used here; this node keeps the one before", "node", n.Self, "err", err)
	}
}

// offered takes the configuration from the coordinator's answer where the log does not bring it: the coordinator may be a node
// that this one's own configuration does not know, and so has no way to send it its log.
func (n *Node) offered(w coordinator.Welcome) {
	if w.Text == "" || n.replica.State().Configured.Index >= w.Configured || textDigest(w.Text) == n.text {
		n.configs.behind = time.Time{}
		return
	}
	if n.configs.behind.IsZero() {
		n.configs.behind = time.Now()
	}
	if time.Since(n.configs.behind) < n.Config.Cluster.DetectionTime/2 || n.configs.wait(w.Text) > 0 {
		return
	}
	c, err := config.LoadBytes(config.CommittedName(w.Configured), []byte(w.Text), n.Kinds)
	if err != nil {
		n.refuse(w.Text, err, readAgain)
		return
	}
	n.again(Next{Config: c, Text: w.Text, Reason: fmt.Sprintf("configuration %d, which the log does not bring", w.Configured)})
}

// textDigest names a text; that of none is empty.
func textDigest(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// outdated reports whether a daemon that runs with a text, by its digest, does not run with the one that the log has. By the
// former one fence devices may feed other nodes than they do by now: it must not prove anything with them.
func outdated(s *state.State, text string) bool { return s.Text != "" && textDigest(s.Text) != text }

// seed is what this node makes of its file where the cluster has no configuration yet.
func (n *Node) seed() state.Configure {
	s := seed(n.Config)
	s.Text, s.TwoNode = n.Text, n.Config.Cluster.TwoNode
	return s
}

// reconfigure has the daemon begin anew when the log's configuration is another one than it runs with. That is the way of
// every change, the smallest one too: it is a restart of the daemon, which is known to disturb nothing.
// It returns when ctx ends, or after it called Again.
func (n *Node) reconfigure(ctx context.Context) {
	if n.Again == nil {
		return
	}
	var since time.Time // since when the present text is known
	var text string
	for {
		s := n.replica.State()
		if s.Text != text {
			text, since = s.Text, time.Now()
		}
		wait := time.Hour
		if next, ready, again := n.next(s, since); ready {
			n.again(next)
			return
		} else if again > 0 {
			wait = again
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-n.configs.wakeup:
		case <-t.C:
		}
		t.Stop()
	}
}

// aboutToChange reports whether this daemon does not run with the log's configuration, and will soon.
func (n *Node) aboutToChange(s *state.State) bool {
	return n.Again != nil && s.Text != "" && textDigest(s.Text) != n.text && n.configs.wait(s.Text) == 0
}

// turn is how long after the commit this node begins anew: one follower after the other, so that a majority is there
// all the time, and the coordinator, which needs them, when all have done so or had the time to.
func (n *Node) turn(s *state.State) time.Duration {
	step := n.Config.Cluster.DetectionTime / 4
	if n.replicated.IsCoordinator() {
		return time.Duration(len(s.Nodes)+8) * step
	}
	return time.Duration(slices.Index(s.NodeNames(), n.Self)) * step
}

// next is what to begin anew with, once it is this node's turn; again is when to look again.
func (n *Node) next(s *state.State, since time.Time) (next Next, ready bool, again time.Duration) {
	early := n.turn(s) - time.Since(since)
	switch {
	case s.Text == "" || textDigest(s.Text) == n.text:
		return Next{}, false, 0
	case s.Nodes[n.Self] == nil:
		return Next{}, false, 0 // removed: it goes on as it is, to say so
	case n.configs.wait(s.Text) > 0:
		return Next{}, false, n.configs.wait(s.Text)
	case !n.trust.now():
		return Next{}, false, 0 // a log that is being read again names all the former ones first
	case early > 0 && !(n.replicated.IsCoordinator() && n.othersFollowed(s)):
		return Next{}, false, min(early, n.Config.Cluster.DetectionTime/8)
	}
	c, err := config.LoadBytes(config.CommittedName(s.Configured.Index), []byte(s.Text), n.Kinds)
	if err != nil {
		n.refuse(s.Text, err, readAgain)
		return Next{}, false, readAgain
	}
	return Next{Config: c, Text: s.Text, Reason: fmt.Sprintf("configuration %d", s.Configured.Index)}, true, 0
}

// othersFollowed reports whether every other node that is in the cluster runs with the log's configuration.
func (n *Node) othersFollowed(s *state.State) bool {
	runs, want := n.coord.RunWith(), textDigest(s.Text)
	for name, node := range s.Nodes {
		if name != n.Self && node.Up && runs[name] != want {
			return false
		}
	}
	return true
}
