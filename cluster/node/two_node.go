package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hamgr/hamgr/cluster/config"
	"github.com/hamgr/hamgr/cluster/consensus"
	"github.com/hamgr/hamgr/cluster/state"
	"github.com/hamgr/hamgr/stonith"
)

// survivor is the two-node rule: of two nodes without a witness, one that lost the other may go on alone, if
//
//   - it was part of a quorum in this boot. One that boots alone waits, whatever its log says: the other may have gone on;
//   - it has itself read the other's power off, at every feed. A watchdog's time is not enough, and no other proof is
//     to be had without a quorum.
//
// Then it makes itself the only voter, durably, and begins anew: from there on it is a cluster like any other, which
// fences the other node by a committed order (finding it off), and grants what that held.
//
// Who shoots first is fixed, so that the two do not shoot each other: see turn.
type survivor struct {
	n *Node

	mu     sync.Mutex
	doing  string // in words, for status; empty if there is nothing to do
	failed string // how the last attempt ended

	caught atomic.Bool // this daemon has applied what was committed before it started
	past   *state.State
	upTo   uint64 // the entry of the log up to which past was made
}

// The pauses between two attempts to prove the other node off.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// run looks for the loss of the other node until ctx ends, or this node has become the only voter.
func (v *survivor) run(ctx context.Context) {
	d := v.n.Config.Cluster.DetectionTime
	retry := firstRetry
	for sleep(ctx, d/8) {
		other, why := v.lost()
		v.say(why, "")
		if why == "" {
			retry = firstRetry
			continue
		}
		proof, err := v.prove(ctx, other)
		if err == nil {
			err = v.goOn(ctx, other, proof)
		}
		if err == nil {
			return
		}
		v.say(why, err.Error())
		v.n.Log.Error("the other node is not proven off, so this one cannot go on alone", "node", other.Name, "boot", other.Boot, "err", err)
		if !sleep(ctx, retry) {
			return
		}
		retry = min(2*retry, lastRetry)
	}
}

func (v *survivor) say(doing, failed string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.doing = doing
	if failed != "" || doing == "" {
		v.failed = failed
	}
}

// words tells an operator what is going on; both empty if nothing is.
func (v *survivor) words() (doing, failed string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.doing, v.failed
}

// lost gives the other node, and why it counts as lost; empty if it does not, or if this node may not act on it.
func (v *survivor) lost() (*state.Node, string) {
	n := v.n
	if _, led := n.replicated.Coordinator(); led || !n.wasQuorate() {
		return nil, ""
	}
	s := n.known()
	if !s.TwoNode || len(s.Nodes) != 2 || s.Nodes[n.Self] == nil {
		return nil, ""
	}
	other := s.Nodes[otherOf(s, n.Self)]
	if s.Maintained(other.Name) != "" {
		return nil, ""
	}
	sight, d := n.look()[other.Name], n.Config.Cluster.DetectionTime
	silent := time.Since(sight.Contact)
	if sight.Gossip == "alive" || silent < d || !n.bothVote(other.Name) {
		return nil, ""
	}
	if hasLeft(other) {
		return other, fmt.Sprintf("%s has left, and there is no quorum without its vote", other.Name)
	}
	return other, fmt.Sprintf("%s is silent on every link for %s, and there is no quorum", other.Name, silent.Round(time.Millisecond))
}

// known is the newest state that this node knows of, without a quorum. What its log has and it has not applied may be
// committed, by an answer of this node that only the other one knew; the leave of the other one is such a thing. And it will
// be, should this node go on alone.
func (n *Node) known() *state.State {
	if n.survivor.caught.Load() && n.replicated.Status().Applied >= n.replicated.LastIndex() {
		return n.replica.State()
	}
	return n.survivor.replayed()
}

// settled is the newest state that is known to be committed; of a daemon that started while there is no quorum, and so
// has applied nothing but a snapshot, what its log says.
func (n *Node) settled() *state.State {
	if n.survivor.caught.Load() {
		return n.replica.State()
	}
	return n.survivor.replayed()
}

func (v *survivor) replayed() *state.State {
	n := v.n
	newest := n.replicated.LastIndex()
	v.mu.Lock()
	past, upTo := v.past, v.upTo
	v.mu.Unlock()
	if past != nil && upTo == newest {
		return past
	}
	all := newReplica(n.Speaks, nil, func(error) {}) // not with mu held: the disk may hang, and the status asks for words
	if err := n.replicated.Replay(all); err != nil || all.unknown.Load() {
		n.Log.Error("what the log says is not known", "node", n.Self, "err", err)
		return n.replica.State()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.past == nil || v.upTo <= newest {
		v.past, v.upTo = all.State(), newest
	}
	return all.State()
}

// bothVote reports whether this node's vote and the other one's are those that the log counts. One that has no vote, or not
// yet, can never go on alone, and so must not shoot for it.
func (n *Node) bothVote(other string) bool {
	votes := n.voting()
	return n.replicated.Status().Formed && len(votes) == 2 && slices.Contains(votes, n.Self) && slices.Contains(votes, other)
}

// hasLeft reports whether a node took its leave: it holds nothing, and its host may well run on.
func hasLeft(n *state.Node) bool { return n.Left && !n.Up }

// parked gives the other one of two nodes, if it took its leave: then this one goes on by a vote of its own.
func (n *Node) parked() []string {
	s := n.replica.State()
	if !s.TwoNode || len(s.Nodes) != 2 || s.Nodes[n.Self] == nil {
		return nil
	}
	if other := otherOf(s, n.Self); hasLeft(s.Nodes[other]) {
		return []string{other}
	}
	return nil
}

func otherOf(s *state.State, self string) string {
	for name := range s.Nodes {
		if name != self {
			return name
		}
	}
	return ""
}

// shootsFirst reports whether this node is the one that shoots at once: the one that holds groups, and the first by name
// where both or none do. Both nodes have every committed entry, so both come to the same.
func shootsFirst(s *state.State, self string) bool {
	other := otherOf(s, self)
	mine, theirs := len(s.Holds(self)) > 0, len(s.Holds(other)) > 0
	if mine != theirs {
		return mine
	}
	return self < other
}

// SecondShotDelay is for how long the one that does not shoot first holds back: as long as the other one may take to
// see this node's silence and to shoot it.
func SecondShotDelay(c *config.Config, self string) time.Duration {
	budget := stonith.Budget(levels(c, self, discard))
	return 2*c.Cluster.DetectionTime + min(budget, mostDelay)
}

// mostDelay bounds it: a device that is slower than that is not waited for. Two that shoot each other lose the service,
// not the data.
const mostDelay = 15 * time.Second

// errHeld: this node may read, but not shoot yet.
var errHeld = errors.New("the other node may shoot first")

// prove reads the other node off, and switches it off before where it is this node's turn to. One that has left is
// never switched off.
func (v *survivor) prove(ctx context.Context, other *state.Node) (stonith.Proof, error) {
	n, s := v.n, v.n.known()
	from := time.Now()
	if !shootsFirst(s, n.Self) {
		from = from.Add(SecondShotDelay(n.Config, n.Self))
	}
	for {
		if outdated(n.settled(), n.text) {
			return stonith.Proof{}, errors.New("this node does not run with the cluster's newest configuration, by which its fence devices may be others")
		}
		proof, err := n.fencer.Off(ctx, v.order(s, other, from))
		if !errors.Is(err, errHeld) {
			return proof, err
		}
		if hasLeft(other) {
			return proof, fmt.Errorf("%s has left, and its host has power: start hamgr there, or switch it off", other.Name)
		}
		v.say(fmt.Sprintf("%s has power, and may shoot first; this node does in %s", other.Name, time.Until(from).Round(time.Second)), "")
		if !sleep(ctx, min(time.Second, max(time.Until(from), time.Millisecond))) {
			return proof, ctx.Err()
		}
		if _, why := v.lost(); why == "" {
			return proof, fmt.Errorf("%s was heard again", other.Name)
		}
	}
}

func (v *survivor) order(s *state.State, other *state.Node, from time.Time) stonith.Order {
	n := v.n
	return stonith.Order{
		Target: stonith.Target{Node: other.Name, Boot: other.Boot, Machine: stonith.Machine(other.Machine), Levels: levels(n.Config, other.Name, n.Log)},
		Op:     s.Applied + 1,
		Gate: func(context.Context) error {
			if time.Now().Before(from) || hasLeft(other) {
				return errHeld
			}
			if _, why := v.lost(); why == "" {
				return fmt.Errorf("%s is not lost any more", other.Name)
			}
			if err := n.keepShot(other); err != nil {
				return err
			}
			n.Log.Warn("fencing without a quorum, by the two-node rule", "node", other.Name, "boot", other.Boot)
			return nil
		},
	}
}

// goOn makes this node the only voter. That is decided here, durably; what a crash interrupts goes on with the next start.
func (v *survivor) goOn(ctx context.Context, other *state.Node, p stonith.Proof) error {
	n := v.n
	if contact := n.look()[other.Name]; contact.Heard && contact.Contact.After(p.OffSince()) {
		return fmt.Errorf("%s was heard after its devices said that it is off: conflict", other.Name)
	}
	if _, why := v.lost(); why == "" {
		return fmt.Errorf("%s is not lost any more", other.Name)
	}
	reason := fmt.Sprintf("%s (boot %s) was read off by %s: %s", other.Name, other.Boot, n.Self, strings.Join(readOff(p), "; "))
	n.Log.Warn("going on alone, by the two-node rule", "node", n.Self, "reason", reason)
	if err := n.replicated.Alone(ctx, consensus.Alone{Reason: reason}); err != nil {
		return err
	}
	n.again(Next{Reason: reason})
	return nil
}

func readOff(p stonith.Proof) []string {
	var lines []string
	for _, plug := range p.Plugs {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s: %s", plug.Device, plug.Plug, plug.Detail)))
	}
	return lines
}

// quorateFile, in the run directory of this boot, says that this node was part of a quorum in it.
const quorateFile = "quorate"

// noteQuorate is called when a committed entry stood behind an answer to this node.
func (n *Node) noteQuorate() {
	n.survivor.caught.Store(true)
	path := filepath.Join(n.RunDir, quorateFile)
	if _, err := os.Stat(path); err == nil {
		return
	}
	if err := noteInBoot(path, nil); err != nil {
		n.Log.Error("that this boot was part of a quorum is not noted", "node", n.Self, "err", err)
	}
}

func (n *Node) wasQuorate() bool {
	_, err := os.Stat(filepath.Join(n.RunDir, quorateFile))
	return err == nil
}

// waiveQuorum gives up the right that the note is: once this node has left, the other one goes on without it, and what it
// grants then is not in this node's log.
func (n *Node) waiveQuorum() error {
	err := os.Remove(filepath.Join(n.RunDir, quorateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
