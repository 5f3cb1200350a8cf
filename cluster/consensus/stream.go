package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/hamgr/hamgr/cluster/link"
)

// streams is raft's way to connections. Each begins with the identity that the dialer
// wants to speak with: raft's requests do not say for whom they are, and a wiped node
// would answer, and vote, for the voter that it was before.
//
// It goes on with the line of history that the dialer's log is on. A node takes no requests
// from another line: a leader there would have it cut its log.
type streams struct {
	link     Link
	self     identity
	line     func() (line string, formed bool)
	patience time.Duration // for the first words of a connection
	listener net.Listener
	accepted chan net.Conn

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex // guards open
	open map[*tracked]struct{}
}

var (
	_ raft.StreamLayer = (*streams)(nil)

	errOtherIdentity = errors.New("connection for another identity")
	errOtherLine     = errors.New("connection from another line of the cluster's history")
)

func newStreams(l Link, self identity, line func() (string, bool), patience time.Duration) *streams {
	s := &streams{
		link: l, self: self, line: line, patience: patience, listener: l.Listener(link.Raft),
		accepted: make(chan net.Conn), open: make(map[*tracked]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.listen)
	return s
}

func (s *streams) listen() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed: by Close, or because link stopped
		}
		c := s.track(conn)
		s.wg.Go(func() { s.greet(c) })
	}
}

// greet takes an accepted connection on when it is for us.
func (s *streams) greet(c *tracked) {
	_ = c.SetReadDeadline(time.Now().Add(s.patience))
	line, err := readGreeting(c, s.self)
	if own, formed := s.line(); err == nil && formed && line != own {
		err = errOtherLine
	}
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	select {
	case s.accepted <- c:
	case <-s.ctx.Done():
		_ = c.Close()
	}
}

// A greeting is one byte of length and the identity; then, unless the dialer is on the
// cluster's first line, a slash and its line.
func greeting(to identity, line string) []byte {
	name := to.String()
	if line != "" {
		name += "/" + line
	}
	return append([]byte{byte(len(name))}, name...)
}

func readGreeting(r io.Reader, self identity) (line string, err error) {
	var b [1 + 255]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return "", err
	}
	name := b[1 : 1+int(b[0])]
	if _, err := io.ReadFull(r, name); err != nil {
		return "", err
	}
	rest, ours := strings.CutPrefix(string(name), self.String())
	line, forked := strings.CutPrefix(rest, "/")
	if !ours || rest != "" && (!forked || line == "") {
		return "", errOtherIdentity
	}
	return line, nil
}

// Dial implements raft.StreamLayer. The address is an identity.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	to := parseIdentity(string(address))
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	conn, err := s.link.Dial(ctx, to.Node, link.Raft)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", to.Node, err)
	}
	c := s.track(conn)
	_ = c.SetWriteDeadline(time.Now().Add(timeout))
	line, _ := s.line()
	if _, err := c.Write(greeting(to, line)); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("greet %s: %w", to.Node, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	return c, nil
}

// Accept implements net.Listener.
func (s *streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepted:
		return c, nil
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener: raft takes it for the server address.
func (s *streams) Addr() net.Addr { return identityAddr(s.self) }

// Close ends the listener and every connection.
func (s *streams) Close() error {
	s.cancel()
	err := s.listener.Close()
	for _, c := range s.connections() {
		_ = c.Close()
	}
	s.wg.Wait()
	return err
}

func (s *streams) connections() []*tracked {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*tracked, 0, len(s.open))
	for c := range s.open {
		all = append(all, c)
	}
	return all
}

// tracked is a connection that Close of the streams ends, which raft would leave open.
type tracked struct {
	net.Conn
	streams *streams
}

func (s *streams) track(conn net.Conn) *tracked {
	c := &tracked{conn, s}
	s.mu.Lock()
	s.open[c] = struct{}{}
	s.mu.Unlock()
	if s.ctx.Err() != nil {
		_ = c.Close()
	}
	return c
}

// Write refuses once the streams are cut: a connection is closed a moment later, and in
// that moment raft would still answer what it can no longer store.
func (c *tracked) Write(b []byte) (int, error) {
	if c.streams.ctx.Err() != nil {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Close closes and forgets the connection.
func (c *tracked) Close() error {
	c.streams.mu.Lock()
	delete(c.streams.open, c)
	c.streams.mu.Unlock()
	return c.Conn.Close()
}

// identityAddr is a net.Addr that prints as the identity.
type identityAddr identity

func (identityAddr) Network() string  { return "hamgr-raft" }
func (a identityAddr) String() string { return identity(a).String() }
