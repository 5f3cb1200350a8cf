package consensus

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hamgr/hamgr/cluster/link"
)

// The join protocol: one question and one answer a connection, each a 32-bit length and
// that many bytes of JSON.

// maxMessage bounds a question or answer: 64 voters with long names need a tenth of it.
const maxMessage = 64 << 10

// question is asked of another voter. With Promise it also asks for its promise to let the
// asker form the cluster.
type question struct {
	Node    string   `json:"node"` // the asker
	ID      string   `json:"id"`
	Voters  []string `json:"voters"` // as the asker is configured, sorted
	Promise bool     `json:"promise,omitempty"`
	Line    string   `json:"line,omitempty"` // the line of history that its log is on, see fork.go
	Run     run      `json:"run"`
}

// answer is what a voter says of itself, and of the asker.
type answer struct {
	Node     string `json:"node"`
	ID       string `json:"id"`
	Formed   bool   `json:"formed"`             // has a log: belongs to a cluster
	Cluster  string `json:"cluster,omitempty"`  // which one; empty until it heard
	Applied  uint64 `json:"applied"`            // last entry handed to its state
	Listed   bool   `json:"listed"`             // the asker's identity is in its configuration
	Gone     bool   `json:"gone,omitempty"`     // the asker's identity is not in the newest committed one
	Promised string `json:"promised,omitempty"` // to whom
	Refused  string `json:"refused,omitempty"`  // why no promise was given, empty when it was

	Last        Last   `json:"last,omitzero"`      // entry of its log
	Starting    bool   `json:"starting,omitempty"` // not at work yet: what is not said is not known
	Coordinator string `json:"coordinator,omitempty"`
	Line        string `json:"line,omitempty"`
	Fork        *fork  `json:"fork,omitempty"` // by which the asker was dismissed
	Known       begun  `json:"known"`          // the newest run of the asker's identity that it heard of before
}

var errMessage = errors.New("not a message of the join protocol")

func writeMessage(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("%w: %d bytes", errMessage, len(body))
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func readMessage(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxMessage {
		return fmt.Errorf("%w: %d bytes", errMessage, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}

// ask asks one voter.
func (l *Log) ask(ctx context.Context, node string, promise bool) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timing.Ask)
	defer cancel()
	var a answer
	conn, err := l.cfg.Link.Dial(ctx, node, link.Join)
	if err != nil {
		return a, fmt.Errorf("ask %s: %w", node, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	q := question{Node: l.id.Node, ID: l.id.ID, Voters: l.cfg.Voters, Promise: promise, Line: l.fsm.line(), Run: l.run}
	if err := l.failed(); err != nil {
		return a, err // nothing leaves this node any more
	}
	if err := writeMessage(conn, q); err != nil {
		return a, fmt.Errorf("ask %s: %w", node, err)
	}
	if err := readMessage(conn, &a); err != nil {
		return a, fmt.Errorf("ask %s: %w", node, err)
	}
	if a.Node != node || !validName(a.ID) {
		return a, fmt.Errorf("ask %s: %w: it calls itself %q", node, errMessage, a.Node+"/"+a.ID)
	}
	l.mu.Lock()
	l.unheard[node] = a.Starting
	l.mu.Unlock()
	if l.runs() {
		_ = l.hear(a) // it ends the log
	}
	return a, nil
}

// askAll asks every other voter at once, and returns the answers of those that gave one.
func (l *Log) askAll(ctx context.Context, nodes []string, promise bool) map[string]answer {
	answers, errs := l.askEach(ctx, nodes, promise)
	for node, err := range errs {
		l.log.Debug("voter does not answer", "node", node, "err", err)
	}
	return answers
}

// askEach asks every other voter at once: each has an answer or an error.
func (l *Log) askEach(ctx context.Context, nodes []string, promise bool) (answers map[string]answer, errs map[string]error) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	answers, errs = make(map[string]answer), make(map[string]error)
	for _, node := range nodes {
		if node == l.cfg.Self {
			continue
		}
		wg.Go(func() {
			a, err := l.ask(ctx, node, promise)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[node] = err
				return
			}
			answers[node] = a
		})
	}
	wg.Wait()
	return answers, errs
}

// maxAskers bounds the questions that are answered at the same time.
const maxAskers = 32

// answerJoins serves the join protocol until the log stops.
func (l *Log) answerJoins() {
	slots := make(chan struct{}, maxAskers)
	for {
		conn, err := l.join.Accept()
		if err != nil {
			return // closed: by Stop, or because link stopped
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		l.wg.Go(func() {
			defer func() { <-slots }()
			if err := l.answerOne(conn); err != nil {
				l.log.Debug("question not answered", "err", err)
			}
		})
	}
}

func (l *Log) answerOne(conn net.Conn) error {
	defer conn.Close()
	defer context.AfterFunc(l.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_ = conn.SetDeadline(time.Now().Add(l.timing.Patience))
	var q question
	if err := readMessage(conn, &q); err != nil {
		return err
	}
	peer, ok := conn.(interface{ Peer() string })
	if !ok || peer.Peer() != q.Node || !validName(q.ID) {
		return fmt.Errorf("%w: asker calls itself %q", errMessage, q.Node)
	}
	if l.failed() != nil {
		return l.failed()
	}
	known, err := l.hearRun(identity{q.Node, q.ID}, q.Run)
	if err != nil {
		return err
	}
	a := answer{Node: l.id.Node, ID: l.id.ID, Formed: l.formed(), Line: l.fsm.line(), Starting: true, Refused: l.cfg.Self + " is starting"}
	if l.runs() {
		a = l.answer(q)
	}
	a.Known = known
	if err := l.failed(); err != nil {
		return err
	}
	return writeMessage(conn, a)
}

// answer requires that raft runs.
func (l *Log) answer(q question) answer {
	asker := identity{q.Node, q.ID}
	refused := ""
	if q.Promise {
		refused = l.promise(asker, q.Voters)
	}
	_, cluster := l.fsm.position()
	a := answer{
		Node: l.id.Node, ID: l.id.ID, Formed: l.formed(), Cluster: cluster,
		Applied: l.raft.AppliedIndex(), Listed: l.listed(asker), Gone: l.gone(asker), Refused: refused,
		Last: l.Last(), Line: l.fsm.line(), Fork: dismissal(l.fsm.history(), q.Line, asker),
	}
	a.Coordinator, _ = l.Coordinator()
	l.promising.Lock()
	defer l.promising.Unlock()
	if l.promised != nil {
		a.Promised = l.promised.To.String()
	}
	return a
}

// gone tells whether the newest committed configuration lacks an identity. False where this node
// does not know which one is committed.
func (l *Log) gone(id identity) bool {
	c := l.fsm.committed()
	if c == nil {
		latest := l.raft.GetConfiguration().Configuration()
		if !l.formed() || l.raft.AppliedIndex() < l.raft.LastIndex() {
			return false
		}
		c = &latest
	}
	return !standing{servers: *c}.lists(id)
}

// promise gives this node's promise to one identity, durably and once; it returns why
// not, or "".
func (l *Log) promise(to identity, voters []string) string {
	l.promising.Lock()
	defer l.promising.Unlock()
	switch {
	case !slices.Equal(voters, l.cfg.Voters):
		return fmt.Sprintf("%s is configured with other voters", l.cfg.Self)
	case l.formed():
		return fmt.Sprintf("%s belongs to a cluster", l.cfg.Self)
	case l.knowsCluster():
		return fmt.Sprintf("%s has heard of a cluster", l.cfg.Self)
	case l.promised != nil && l.promised.To != to:
		return fmt.Sprintf("%s has given its promise to %s", l.cfg.Self, l.promised.To)
	case l.promised != nil:
		return ""
	}
	p := &promise{To: to}
	b, err := json.Marshal(p)
	if err == nil {
		err = l.guard.do("store a promise", func() error { return l.stores.records.save(promiseRecord, b) })
	}
	if err != nil {
		return fmt.Sprintf("%s cannot store its promise", l.cfg.Self)
	}
	l.promised = p
	l.log.Info("promise given", "node", to.Node)
	return ""
}
