package api

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a daemon made of functions. A function that is not set must not be called.
type fake struct {
	status      func(context.Context) (Status, error)
	fenceStatus func(context.Context, string) (FenceStatus, error)
	fence       func(context.Context, FenceRequest, func(FenceEvent)) (FenceResult, error)
	fenceTest   func(context.Context, string) (FenceTest, error)
	history     func(context.Context, string) (FenceHistory, error)
	change      func(context.Context, ChangeRequest) (ChangeResult, error)
	configured  func(context.Context) (Configuration, error)
	apply       func(context.Context, ApplyRequest) (ApplyResult, error)
	force       func(context.Context, ForceRequest) (ForceResult, error)
	keys        func(context.Context) (Keys, error)
	reload      func(context.Context) (Keys, error)
	call        func(ctx context.Context, peer, verb string, body []byte) ([]byte, error)
	forwarded   func(ctx context.Context, peer string, req FenceRequest, observe func(FenceEvent)) (FenceResult, error)
}

var (
	_ Backend     = fake{}
	_ NodeBackend = fake{}
)

func (f fake) Status(ctx context.Context) (Status, error) { return f.status(ctx) }

func (f fake) FenceStatus(ctx context.Context, node string) (FenceStatus, error) {
	return f.fenceStatus(ctx, node)
}

func (f fake) Fence(ctx context.Context, req FenceRequest, observe func(FenceEvent)) (FenceResult, error) {
	return f.fence(ctx, req, observe)
}

func (f fake) FenceTest(ctx context.Context, node string) (FenceTest, error) {
	return f.fenceTest(ctx, node)
}

func (f fake) FenceHistory(ctx context.Context, node string) (FenceHistory, error) {
	return f.history(ctx, node)
}

func (f fake) Change(ctx context.Context, req ChangeRequest) (ChangeResult, error) {
	return f.change(ctx, req)
}

func (f fake) Configuration(ctx context.Context) (Configuration, error) { return f.configured(ctx) }

func (f fake) Apply(ctx context.Context, req ApplyRequest) (ApplyResult, error) {
	return f.apply(ctx, req)
}

func (f fake) ForceQuorum(ctx context.Context, req ForceRequest) (ForceResult, error) {
	return f.force(ctx, req)
}

func (f fake) Keys(ctx context.Context) (Keys, error) { return f.keys(ctx) }

func (f fake) ReloadKeys(ctx context.Context) (Keys, error) { return f.reload(ctx) }

func (f fake) Call(ctx context.Context, peer, verb string, body []byte) ([]byte, error) {
	return f.call(ctx, peer, verb, body)
}

func (f fake) FenceForwarded(ctx context.Context, peer string, req FenceRequest, observe func(FenceEvent)) (FenceResult, error) {
	return f.forwarded(ctx, peer, req, observe)
}

// pipes is a listener whose connections are net.Pipes, so that it works in virtual time.
type pipes struct {
	peer  string
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipes(peer string) *pipes {
	p := &pipes{peer: peer, conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

type peerConn struct {
	net.Conn
	peer string
}

func (c peerConn) Peer() string { return c.peer }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "pipes"} }

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- peerConn{far, p.peer}:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start serves face on l for the time of the test, or until the returned stop.
func start(t *testing.T, l net.Listener, face Face) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, face, slog.New(slog.DiscardHandler)) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// overUnix gives a client of an operator's face on a real unix socket.
func overUnix(t *testing.T, b Backend) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run", "hamgr.sock")
	l, err := ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	start(t, l, Operator(b))
	return client(t, DialUnix(path))
}

// overPipes gives a client of a node's face; the server knows it as peer.
func overPipes(t *testing.T, peer string, b NodeBackend) *Client {
	t.Helper()
	l := newPipes(peer)
	start(t, l, Nodes(b))
	return client(t, l.dial)
}

func client(t *testing.T, dial func(context.Context) (net.Conn, error)) *Client {
	c := NewClient(dial)
	t.Cleanup(c.Close)
	return c
}
