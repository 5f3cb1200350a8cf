package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	headerTimeout = 5 * time.Second // for a request's header, and again for its body
	writeTimeout  = 5 * time.Second // for an answer, or for one line of a stream
	idleTimeout   = 2 * time.Minute // longer than the client's, so that the client hangs up first
	stopGrace     = 500 * time.Millisecond
	maxHeader     = 16 << 10
)

// timeoutHeader carries the milliseconds that the asker is willing to wait, so that the
// one who is asked gives up in time to say so.
const timeoutHeader = "Hamgr-Timeout-Ms"

// Face is what one kind of listener serves. Operator and Nodes make the two there are.
type Face struct{ routes []route }

// route is one kind of request.
type route struct {
	method, path string
	limit        int64         // of the request's body, bytes
	longest      time.Duration // that a request may run, whatever its asker would wait
	// serve either answers through w itself and returns nil, or writes nothing and
	// returns an error.
	serve func(ctx context.Context, w http.ResponseWriter, r *http.Request) error
}

// Serve answers the connections of l until ctx ends, and closes l. Requests that run then
// see their context end, and are waited for. On a listener of the Nodes face each
// connection must have a method Peer() string that gives the verified name of the far
// end. The error is nil unless accepting failed before ctx ended.
func Serve(ctx context.Context, l net.Listener, face Face, log *slog.Logger) error {
	running := new(requests)
	server := &http.Server{
		Handler:           face.handler(running),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()

	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serve the API on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	// Shutdown lets answers that are being written reach their reader; what is left after
	// that is a connection that never sent a request, or a reader that does not read.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if shutErr := server.Shutdown(grace); shutErr != nil {
		server.Close()
	}
	if err == nil {
		<-failed
	}
	running.end()
	return err
}

// requests are those that run.
type requests struct {
	mu    sync.Mutex
	ended bool
	sync.WaitGroup
}

// begin admits one more, which is done with Done, unless the end has come.
func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.Add(1)
	}
	return !r.ended
}

// end keeps late ones out, and waits for those that run.
func (r *requests) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.Wait()
}

func (f Face) handler(running *requests) http.Handler {
	mux := http.NewServeMux()
	for _, rt := range f.routes {
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			if running.begin() {
				defer running.Done()
				rt.answer(w, r)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &Error{
			Code:    ErrInvalid,
			Message: fmt.Sprintf("unknown request %s %q", r.Method, r.URL.Path),
			Hint:    "the two sides may be of different versions: compare `hamgr version` with `hamgr status`",
		})
	})
	return mux
}

// answer bounds one request in size and time, and serves it.
func (rt route) answer(w http.ResponseWriter, r *http.Request) {
	// The deadline is for the body alone: left in place it would end the request's context,
	// because net/http goes on reading to learn whether the asker is still there.
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(headerTimeout))
	body, err := readAll(http.MaxBytesReader(w, r.Body, rt.limit))
	if err != nil {
		writeError(w, err)
		return
	}
	control.SetReadDeadline(time.Time{})
	r.Body = body

	wait := rt.longest
	if text := r.Header.Get(timeoutHeader); text != "" {
		ms, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			writeError(w, fmt.Errorf("%w: header %s: %q is no number of milliseconds", ErrInvalid, timeoutHeader, text))
			return
		}
		wait = min(wait, time.Duration(ms)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	if err := rt.serve(ctx, w, r); err != nil {
		writeError(w, err)
	}
}

type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	if p, ok := c.(interface{ Peer() string }); ok {
		return context.WithValue(ctx, peerKey{}, p.Peer())
	}
	return ctx
}

var errNoPeer = errors.New("the connection does not say which node it comes from")

// peerOf gives the verified name of the node at the far end.
func peerOf(ctx context.Context) (string, error) {
	if name, _ := ctx.Value(peerKey{}).(string); name != "" {
		return name, nil
	}
	return "", errNoPeer
}
