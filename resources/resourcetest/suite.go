package resourcetest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hamgr/hamgr/resources"
)

// suite is one check at work on one host.
type suite struct {
	testing.TB
	kind   resources.Kind
	host   *Host
	env    resources.Env
	token  uint64   // the highest so far
	faults []func() // that are to be ended
}

// settle prepares the place of the resource on its host.
func (s *suite) settle() {
	s.token = 7
	s.env = resources.Env{
		Group: "db", Resource: "app", Node: "alpha", Dir: s.TempDir(),
		Boot: fmt.Sprintf("boot-%d", time.Now().UnixNano()), // no process of another test has it
		Log:  slog.New(slog.DiscardHandler),
	}
}

// end leaves the host as it was.
func (s *suite) end() {
	s.Helper()
	s.mend()
	if len(s.host.Active()) == 0 {
		return
	}
	if err := s.open().try("stop", s.ctx()).err; err != nil || len(s.host.Active()) != 0 {
		s.Errorf("clean up: %v; active: %v", err, s.host.Active())
	}
}

// begin lets a fault happen, until mend or the end of the check.
func (s *suite) begin(f Fault) {
	f.Begin()
	if f.End != nil {
		s.faults = append(s.faults, f.End)
	}
}

func (s *suite) mend() {
	for _, end := range s.faults {
		end()
	}
	s.faults = nil
}

// ctx is for calls that are expected to end by themselves.
func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.host.patience())
	s.Cleanup(cancel)
	return ctx
}

// eventually waits for what the host does by itself.
func (s *suite) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(s.host.patience()); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("not within %v: %s", s.host.patience(), what)
		}
	}
}

// kill ends what is active from outside, and waits until it has ended.
func (s *suite) kill() {
	s.Helper()
	s.host.Kill()
	s.eventually("nothing is active after a kill", func() bool { return len(s.host.Active()) == 0 })
}

// picture is what must not change by looks; the same always where the host has none.
func (s *suite) picture() string {
	text := fmt.Sprintf("active %v\n", s.host.Active())
	if s.host.Picture != nil {
		text += s.host.Picture()
	}
	return text
}

// unchanged demands that a host is as it was.
func (s *suite) unchanged(before, by string) {
	s.Helper()
	if after := s.picture(); after != before {
		s.Errorf("%s changed the host: it was\n%s\nand is\n%s", by, before, after)
	}
}

// handle is a resource whose calls are held against the judge.
type handle struct {
	s     *suite
	res   resources.Resource
	token uint64
}

// open makes the resource under the highest token.
func (s *suite) open() *handle {
	s.Helper()
	env := s.env
	env.Token = s.token
	r, err := s.host.New(env)
	if err != nil {
		s.Fatalf("new: %v", err)
	}
	return &handle{s, r, s.token}
}

// grant makes the resource under a higher token.
func (s *suite) grant() *handle {
	s.Helper()
	s.token++
	return s.open()
}

// outcome is how a call ended.
type outcome struct {
	verb   string
	state  resources.State // of probe
	detail string
	err    error
	panics any
}

// try makes one call, and judges nothing.
func (h *handle) try(verb string, ctx context.Context) (o outcome) {
	o.verb = verb
	defer func() { o.panics = recover() }()
	switch verb {
	case "probe":
		o.state, o.detail, o.err = h.res.Probe(ctx)
	case "start":
		o.err = h.res.Start(ctx)
	case "stop":
		o.err = h.res.Stop(ctx)
	case "check":
		o.err = h.res.(resources.Checker).Check(ctx)
	}
	return o
}

// call makes one call, and holds what it says against the judge.
func (h *handle) call(verb string, ctx context.Context) outcome {
	h.s.Helper()
	before := h.s.host.Active()
	o := h.try(verb, ctx)
	h.judge(before, o)
	return o
}

// judge holds what a call said against what was active before it, and is now. It is true of every call, whatever
// fault there is.
func (h *handle) judge(before []string, o outcome) {
	s, after := h.s, h.s.host.Active()
	s.Helper()
	if o.panics != nil {
		s.Fatalf("%s panicked: %v", o.verb, o.panics)
	}
	switch o.verb {
	case "start":
		if o.err == nil && len(after) != 1 {
			s.Errorf("start says that it is active; active: %v", after)
		}
	case "stop":
		if o.err == nil && len(after) != 0 {
			s.Errorf("stop says that it is inactive; active: %v", after)
		}
	case "probe":
		switch {
		case o.err != nil && (o.state == resources.Inactive || o.state == resources.Active):
			s.Errorf("probe says %v beside an error: %v", o.state, o.err)
		case o.state == resources.Inactive && len(before) > 0 && len(after) > 0:
			s.Errorf("probe says inactive; active: %v", after)
		case o.state == resources.Active && len(before) == 0 && len(after) == 0:
			s.Errorf("probe says active (%q), and nothing is", o.detail)
		}
		if strings.ContainsAny(o.detail, "\r\n\x00") {
			s.Errorf("detail is not fit for a log line: %q", o.detail)
		}
	}
}

// verbs are the calls that the resource has.
func (h *handle) verbs() []string {
	verbs := []string{"probe", "start"}
	if _, ok := h.res.(resources.Checker); ok {
		verbs = append(verbs, "check")
	}
	return append(verbs, "stop") // the last: it may go on when its time is over
}

// reads demands that a probe says want.
func (h *handle) reads(want resources.State) {
	h.s.Helper()
	if o := h.call("probe", h.s.ctx()); o.err != nil || o.state != want {
		h.s.Errorf("probe says %v (%q), %v; want %v; active: %v", o.state, o.detail, o.err, want, h.s.host.Active())
	}
}

// readsNot demands that a probe says anything else.
func (h *handle) readsNot(states ...resources.State) {
	h.s.Helper()
	if o := h.call("probe", h.s.ctx()); slices.Contains(states, o.state) {
		h.s.Errorf("probe says %v (%q), %v", o.state, o.detail, o.err)
	}
}

// starts demands that it becomes active, and gives the name of what is.
func (h *handle) starts() string {
	h.s.Helper()
	if err := h.call("start", h.s.ctx()).err; err != nil {
		h.s.Fatalf("start: %v", err)
	}
	active := h.s.host.Active()
	if len(active) != 1 {
		h.s.Fatalf("active: %v", active)
	}
	h.reads(resources.Active)
	return active[0]
}

// stops demands that it becomes inactive.
func (h *handle) stops() {
	h.s.Helper()
	if err := h.call("stop", h.s.ctx()).err; err != nil {
		h.s.Fatalf("stop: %v", err)
	}
	h.reads(resources.Inactive)
}
