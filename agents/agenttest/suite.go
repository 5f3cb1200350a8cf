package agenttest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// suite is one check at work on one peer.
type suite struct {
	testing.TB
	peer *Peer
	said transcript
}

// transcript gathers all that an agent says: its log and its errors.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(b)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// secrets looks for the peer's secrets in all that was said, in the forms that a protocol, a
// URL or a quoting gives them.
func (s *suite) secrets() {
	s.Helper()
	said := s.said.String()
	for _, secret := range s.peer.Secrets {
		quoted := strconv.Quote(secret)
		for _, form := range []string{
			secret, quoted[1 : len(quoted)-1], url.QueryEscape(secret), url.PathEscape(secret),
			hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
		} {
			if strings.Contains(said, form) {
				s.Errorf("a secret was said, as %q", form)
				break
			}
		}
	}
}

// ctx is for calls that are expected to end by themselves.
func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.peer.patience())
	s.Cleanup(cancel)
	return ctx
}

// eventually waits for what the peer does by itself.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(s.peer.patience()); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not within %v: %s", s.peer.patience(), what)
		}
	}
}

// handle is an agent whose calls are watched.
type handle struct {
	s      *suite
	agent  agents.Agent
	plug   string
	closed bool
}

// open makes a handle that is closed at the end of the check at the latest.
func (s *suite) open(d Device) *handle {
	s.Helper()
	a, err := d.Open(slog.New(slog.NewTextHandler(&s.said, &slog.HandlerOptions{Level: slog.LevelDebug - 4})))
	if err != nil {
		s.Fatalf("open: %v", err)
	}
	// A log line may be given anything. vet does not like it that %s shows bytes as text, which is the point.
	shown := "%v %+v %#v %s\n"
	fmt.Fprintf(&s.said, shown, a, a, a, a)
	h := &handle{s: s, agent: a, plug: d.Plug}
	s.Cleanup(func() {
		if !h.closed {
			h.close(s.ctx())
		}
	})
	return h
}

// call makes one call, notes what it says, and turns a panic into a failure.
func (h *handle) call(verb string, do func() error) (err error) {
	h.s.Helper()
	defer func() {
		if r := recover(); r != nil {
			h.s.Errorf("%s panicked: %v", verb, r)
			err = fmt.Errorf("panic: %v", r)
		}
		if err != nil {
			fmt.Fprintf(&h.s.said, "%s: %v %#v\n", verb, err, err)
		}
	}()
	return do()
}

func (h *handle) status(ctx context.Context) (r agents.Reading, err error) {
	h.s.Helper()
	err = h.call("status", func() (err error) { r, err = h.agent.Status(ctx, h.plug); return err })
	if err != nil && r.State != agents.Unknown {
		h.s.Errorf("status says %v beside an error: %v", r.State, err)
	}
	if strings.ContainsAny(r.Detail, "\r\n\x00") || len(r.Detail) > 200 {
		h.s.Errorf("detail is not fit for a log line: %q", r.Detail)
	}
	fmt.Fprintf(&h.s.said, "status: %s\n", r.Detail)
	return r, err
}

func (h *handle) off(ctx context.Context) error {
	h.s.Helper()
	return h.call("off", func() error { return h.agent.Off(ctx, h.plug) })
}

func (h *handle) on(ctx context.Context) error {
	h.s.Helper()
	return h.call("on", func() error { return h.agent.On(ctx, h.plug) })
}

func (h *handle) close(ctx context.Context) error {
	h.s.Helper()
	h.closed = true
	return h.call("close", func() error { return h.agent.Close(ctx) })
}

func (h *handle) closeWithin(d time.Duration) {
	h.s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	h.close(ctx)
}

// verbs are the calls that the agent has, besides Close.
func (h *handle) verbs() map[string]func(context.Context) error {
	verbs := map[string]func(context.Context) error{
		"status": func(ctx context.Context) error { _, err := h.status(ctx); return err },
		"off":    h.off,
		"on":     h.on,
	}
	if a, ok := h.agent.(agents.Identifier); ok {
		verbs["identity"] = func(ctx context.Context) error {
			return h.call("identity", func() error { _, err := a.Identity(ctx, h.plug); return err })
		}
	}
	if a, ok := h.agent.(agents.Checker); ok {
		verbs["check"] = func(ctx context.Context) error {
			return h.call("check", func() error { return a.Check(ctx, h.plug) })
		}
	}
	return verbs
}

// reads demands that one fresh status says want.
func (h *handle) reads(want agents.PowerState) {
	h.s.Helper()
	if r, err := h.status(h.s.ctx()); err != nil || r.State != want {
		h.s.Errorf("status says %v (%q), %v; it is %v", r.State, r.Detail, err, want)
	}
}

// becomes waits until the peer is, and the agent says, want. What the agent says on the way
// must never be off while the peer is still on.
func (h *handle) becomes(want agents.PowerState) {
	h.s.Helper()
	h.s.eventually(fmt.Sprintf("read as %v", want), func() bool {
		r, err := h.status(h.s.ctx())
		if truth := h.s.peer.Power(); want == agents.Off && r.State == agents.Off && truth != agents.Off {
			h.s.Fatalf("status says off, and the machine is %v", truth)
		}
		return err == nil && r.State == want && h.s.peer.Power() == want
	})
}

// settled waits for sessions to end at the peer.
func (s *suite) settled() {
	s.Helper()
	if s.peer.Sessions != nil {
		s.eventually("no session left", func() bool { return s.peer.Sessions() == 0 })
	}
}
