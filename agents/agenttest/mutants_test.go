package agenttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// bent is an honest agent with some of its calls replaced.
type bent struct {
	*honest
	status   func(context.Context, string) (agents.Reading, error)
	off, on  func(context.Context, string) error
	check    func(context.Context, string) error
	identity func(context.Context, string) (agents.Identity, error)
	close    func(context.Context) error
}

func (b bent) Status(ctx context.Context, plug string) (agents.Reading, error) {
	if b.status != nil {
		return b.status(ctx, plug)
	}
	return b.honest.Status(ctx, plug)
}

func (b bent) Off(ctx context.Context, plug string) error {
	if b.off != nil {
		return b.off(ctx, plug)
	}
	return b.honest.Off(ctx, plug)
}

func (b bent) On(ctx context.Context, plug string) error {
	if b.on != nil {
		return b.on(ctx, plug)
	}
	return b.honest.On(ctx, plug)
}

func (b bent) Check(ctx context.Context, plug string) error {
	if b.check != nil {
		return b.check(ctx, plug)
	}
	return b.honest.Check(ctx, plug)
}

func (b bent) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	if b.identity != nil {
		return b.identity(ctx, plug)
	}
	return b.honest.Identity(ctx, plug)
}

func (b bent) Close(ctx context.Context) error {
	if b.close != nil {
		return b.close(ctx)
	}
	return b.honest.Close(ctx)
}

// tooLong is what the deaf ones take.
var tooLong = limit + slack() + 40*time.Millisecond

// testsEnd ends what is left behind.
var testsEnd = make(chan struct{})

// mutants are agents that break one rule each, with a check that must notice.
var mutants = map[string]struct {
	bend    func(*honest) agent
	noticed string
}{
	"keeps what it read": {func(h *honest) agent {
		var kept agents.Reading
		return bent{honest: h, status: func(ctx context.Context, plug string) (r agents.Reading, err error) {
			if kept.State == agents.Unknown {
				kept, err = h.Status(ctx, plug)
			}
			return kept, err
		}}
	}, "status is fresh"},
	"believes the answer to its command": {func(h *honest) agent {
		said := false
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			err := h.Off(ctx, plug)
			said = err == nil
			return err
		}, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			if said && err == nil {
				r.State = agents.Off
			}
			return r, err
		}}
	}, "accepted and ignored"},
	"takes unknown for off": {func(h *honest) agent {
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			if err == nil && r.State != agents.On {
				r.State = agents.Off
			}
			return r, err
		}}
	}, "neither on nor off"},
	"takes an error for off": {func(h *honest) agent {
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			if err != nil {
				r.State = agents.Off
			}
			return r, err
		}}
	}, "wrong password"},
	"sends the command twice": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			h.Off(ctx, plug)
			return h.Off(ctx, plug)
		}}
	}, "off and on"},
	"sends it again after an error": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			err := h.Off(ctx, plug)
			if err != nil && ctx.Err() == nil {
				err = h.Off(ctx, plug)
			}
			return err
		}}
	}, "obeyed with an error"},
	"believes its command for a while": {func(h *honest) agent {
		var told time.Time
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			told = time.Now()
			return h.Off(ctx, plug)
		}, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			if err == nil && time.Since(told) < 20*time.Millisecond {
				r.State = agents.Off
			}
			return r, err
		}}
	}, "obeyed late"},
	"says nothing of an error": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error { h.Off(ctx, plug); return ctx.Err() }}
	}, "obeyed with an error"},
	"calls the dead a stranger": {func(h *honest) agent {
		return bent{honest: h, on: func(ctx context.Context, plug string) error {
			if err := h.On(ctx, plug); err != nil {
				return fmt.Errorf("%w: %v", agents.ErrProtocol, err)
			}
			return nil
		}}
	}, "unreachable"},
	"never switches off": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error { return h.Check(ctx, plug) }}
	}, "off and on"},
	"off is a toggle": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			if r, _ := h.Status(ctx, plug); r.State == agents.Off {
				return h.On(ctx, plug)
			}
			return h.Off(ctx, plug)
		}}
	}, "off while off, on while on"},
	"check presses the button": {func(h *honest) agent {
		return bent{honest: h, check: func(ctx context.Context, plug string) error {
			if r, _ := h.Status(ctx, plug); r.State == agents.Off {
				return h.Off(ctx, plug)
			}
			return h.On(ctx, plug)
		}}
	}, "check and identity change nothing"},
	"identity of the day": {func(h *honest) agent {
		n := 0
		return bent{honest: h, identity: func(ctx context.Context, plug string) (agents.Identity, error) {
			n++
			return agents.Identity{Serial: fmt.Sprint(n)}, h.Check(ctx, plug)
		}}
	}, "identity"},
	"does not hear a cancel": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), tooLong)
			defer cancel()
			if err := h.Off(hard, plug); err != nil || ctx.Err() == nil {
				return err
			}
			return ctx.Err()
		}}
	}, "a frozen peer"},
	"does not hear a cancel once it is connected": {func(h *honest) agent {
		connected := false
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			if !connected {
				r, err := h.Status(ctx, plug)
				connected = err == nil
				return r, err
			}
			hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), tooLong)
			defer cancel()
			return h.Status(hard, plug)
		}}
	}, "a peer that freezes within a session"},
	"waits for the silent": {func(h *honest) agent {
		return bent{honest: h, identity: func(ctx context.Context, plug string) (agents.Identity, error) {
			hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), tooLong)
			defer cancel()
			return h.Identity(hard, plug)
		}}
	}, "a peer that never answers"},
	"connects when it is opened": {func(h *honest) agent {
		time.Sleep(tooLong)
		return h
	}, "open touches nothing"},
	"close does not hear a cancel": {func(h *honest) agent {
		return bent{honest: h, close: func(ctx context.Context) error {
			hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), tooLong)
			defer cancel()
			return h.Close(hard)
		}}
	}, "a frozen peer"},
	"blames the password for silence": {func(h *honest) agent {
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", agents.ErrCredentials, err)
			}
			return r, err
		}}
	}, "a frozen peer"},
	"sends after the end": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			if err := h.Off(context.WithoutCancel(ctx), plug); err != nil {
				return err
			}
			return ctx.Err()
		}}
	}, "a context that has ended"},
	"says nothing of a wrong password": {func(h *honest) agent {
		return bent{honest: h, off: func(ctx context.Context, plug string) error {
			if err := h.Off(ctx, plug); err != nil {
				return errors.New("it did not work")
			}
			return nil
		}}
	}, "wrong password"},
	"any plug will do": {func(h *honest) agent {
		return bent{honest: h, on: func(ctx context.Context, _ string) error { return h.On(ctx, "1") }}
	}, "wrong plug"},
	"tells the secret": {func(h *honest) agent {
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			if err != nil {
				err = fmt.Errorf("login with %q: %w", secret, err)
			}
			return r, err
		}}
	}, "wrong password"},
	"logs the secret": {func(h *honest) agent {
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			h.log.Debug("login", "password", secret)
			return h.Status(ctx, plug)
		}}
	}, "status is fresh"},
	"shows the secret when it is printed": {func(h *honest) agent {
		return struct {
			bent
			password []byte
		}{bent{honest: h}, []byte(secret)}
	}, "status is fresh"},
	"works when closed": {func(h *honest) agent {
		return bent{honest: h, close: func(context.Context) error { return nil }}
	}, "use after close"},
	"panics when closed twice": {func(h *honest) agent {
		done := make(chan struct{})
		return bent{honest: h, close: func(ctx context.Context) error { close(done); return h.Close(ctx) }}
	}, "use after close"},
	"keeps its session after an error": {func(h *honest) agent {
		failed := false
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			r, err := h.Status(ctx, plug)
			failed = failed || err != nil
			return r, err
		}, close: func(ctx context.Context) error {
			if failed {
				return nil
			}
			return h.Close(ctx)
		}}
	}, "cancelled at random"},
	"keeps its session": {func(h *honest) agent {
		used := false
		return bent{honest: h, off: func(ctx context.Context, plug string) error { used = true; return h.Off(ctx, plug) },
			close: func(ctx context.Context) error {
				if used {
					return nil
				}
				return h.Close(ctx)
			}}
	}, "sessions end with the handle"},
	"keeps its session when it was cancelled": {func(h *honest) agent {
		cancelled := false
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			cancelled = cancelled || ctx.Err() != nil
			return h.Status(ctx, plug)
		}, close: func(ctx context.Context) error {
			if cancelled {
				return nil
			}
			return h.Close(ctx)
		}}
	}, "close after errors and cancels"},
	"leaves goroutines behind": {func(h *honest) agent {
		return bent{honest: h, status: func(ctx context.Context, plug string) (agents.Reading, error) {
			go func() { <-testsEnd }()
			return h.Status(ctx, plug)
		}}
	}, "cancelled at random"},
}

// TestMutants: each broken agent is found out by the check that is there for it.
func TestMutants(t *testing.T) {
	defer close(testsEnd)
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			if m.noticed != "cancelled at random" { // which counts goroutines
				t.Parallel()
			}
			complaint := verdict(t, m.noticed, peerOf(m.bend))
			if complaint == "" {
				t.Errorf("not noticed by %q", m.noticed)
			}
			t.Log(complaint)
		})
	}
}
