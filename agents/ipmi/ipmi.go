// Package ipmi is the fence agent for BMCs that speak IPMI 2.0 over LAN (RMCP+, "lanplus").
//
// It reads the power of one chassis by Get Chassis Status, and switches it by Chassis Control
// power down (hard) or power up. Nothing is believed but a fresh answer that only the BMC
// itself can have written, to the very question that was asked.
//
// The wire formats, key derivations and completion codes are go-ipmi's. Its client is not
// used: it believes datagrams that nobody signed, repeats commands, and cannot be given a
// BMC key. What stands in its place is small and strict: guard.go decides what is an answer.
package ipmi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/command/chassis"

	"github.com/hamgr/hamgr/agents"
)

// Kind is the registry's entry.
func Kind() agents.Kind {
	return agents.Kind{
		Name:    "ipmi",
		Doc:     "BMC with IPMI 2.0 over LAN (lanplus: iDRAC, iLO, XCC, Supermicro, OpenBMC and others)",
		Options: func() agents.Options { return &Options{Port: defaultPort, Privilege: operator} },
		Example: `[[fence_device]]
name = "alpha-bmc"
agent = "ipmi"
address = "10.9.0.11"
username = "fencer"
password_file = "/etc/hamgr/secrets/bmc"
`,
	}
}

var (
	_ agents.Agent      = (*agent)(nil)
	_ agents.Identifier = (*agent)(nil)
	_ agents.Checker    = (*agent)(nil)
	_ agents.Options    = (*Options)(nil)
	_ agents.Observer   = (*Options)(nil)
)

// agent is a handle on one BMC: one session at most, made at first use.
type agent struct {
	target  target
	log     *slog.Logger
	suites  []suite       // to be tried in this order; those refused are dropped
	wait    time.Duration // of the first try of a question, see shortestWait
	login   *login        // under way, see connect
	session *session
	closed  bool
}

// Format keeps the password and the keys, which lie in fields that fmt would print, out of every text.
func (a *agent) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "ipmi %s", a.target.address) }

// ErrClosed: the handle was closed before.
var ErrClosed = errors.New("closed")

// errAlone says that a BMC powers one machine, which needs no plug.
var errAlone = fmt.Errorf("%w: a BMC powers one machine, so remove plugs", agents.ErrPlug)

// Status reads the power of the chassis.
func (a *agent) Status(ctx context.Context, plug string) (agents.Reading, error) {
	var status chassis.GetChassisStatusResponse
	err := a.do(ctx, plug, func(ctx context.Context, s *session) error {
		return s.read(ctx, &chassis.GetChassisStatusRequest{}, &status)
	})
	if err != nil {
		return agents.Reading{}, a.fail(ctx, "reading the power state", err)
	}
	return reading(&status), nil
}

// reading takes the state from bit 0 of the current power state, and nothing else
// (IPMI 2.0, 28.2). What else is said about the power is for the log.
func reading(s *chassis.GetChassisStatusResponse) agents.Reading {
	r := agents.Reading{State: agents.Off, Detail: "chassis power is off"}
	if s.PowerIsOn {
		r = agents.Reading{State: agents.On, Detail: "chassis power is on"}
	}
	var odd []string
	for _, flag := range []struct {
		set  bool
		word string
	}{
		{s.PowerControlFault, "the last power command failed"},
		{s.PowerFault, "power fault"},
		{s.PowerOverload, "power overload"},
		{s.InterLock, "interlock open"},
	} {
		if flag.set {
			odd = append(odd, flag.word)
		}
	}
	if len(odd) > 0 {
		r.Detail += " (" + strings.Join(odd, ", ") + ")"
	}
	return r
}

// Off sends Chassis Control power down, which asks no operating system (IPMI 2.0, table 28-4).
// It is sent once: an answer that is lost is an error, and the power must be read anyway.
func (a *agent) Off(ctx context.Context, plug string) error {
	return a.fail(ctx, "ordering off", a.control(ctx, plug, chassis.ChassisControlPowerDown))
}

// On sends Chassis Control power up, once.
func (a *agent) On(ctx context.Context, plug string) error {
	return a.fail(ctx, "ordering on", a.control(ctx, plug, chassis.ChassisControlPowerUp))
}

func (a *agent) control(ctx context.Context, plug string, to chassis.ChassisControl) error {
	return a.do(ctx, plug, func(ctx context.Context, s *session) error {
		raised := s.raise(ctx)
		if errors.As(raised, new(*silence)) {
			return raised
		}
		// A BMC that refuses to raise the level may still obey.
		order := func() error {
			return s.once(ctx, &chassis.ChassisControlRequest{ChassisControl: to}, &chassis.ChassisControlResponse{})
		}
		err := order()
		if raised == nil && errors.Is(err, agents.ErrPrivilege) {
			// What is refused was not done. A BMC that gets a message of the handshake again, late, may put the session
			// back to the level with which it began.
			s.isRaised = false
			if raised = s.raise(ctx); raised == nil {
				err = order()
			}
		}
		if err != nil && raised != nil {
			err = fmt.Errorf("%w; before that, %w", err, raised)
		}
		return final(err)
	})
}

// Identity reads the system GUID, where the BMC has one. The serial number is not read: it
// takes a dozen requests to a slow store.
func (a *agent) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	var guid app.GetSystemGUIDResponse
	err := a.do(ctx, plug, func(ctx context.Context, s *session) error {
		return s.read(ctx, &app.GetSystemGUIDRequest{}, &guid)
	})
	if refused := (*completionError)(nil); errors.As(err, &refused) && refused.lacking() {
		return agents.Identity{}, nil
	}
	if err != nil {
		return agents.Identity{}, a.fail(ctx, "reading the system GUID", err)
	}
	return agents.Identity{UUID: uuidOf(guid.GUID)}, nil
}

// Check opens a session at the configured privilege level, which is the BMC's own word on
// whether the account may switch the power, and reads the chassis status.
func (a *agent) Check(ctx context.Context, plug string) error {
	err := a.do(ctx, plug, func(ctx context.Context, s *session) error {
		if err := s.raise(ctx); err != nil {
			return err
		}
		return s.read(ctx, &chassis.GetChassisStatusRequest{}, &chassis.GetChassisStatusResponse{})
	})
	return a.fail(ctx, "checking the account", err)
}

// fail names what was being done and to whom, and lets an ended context show.
func (a *agent) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return fmt.Errorf("ipmi %s: %s: %w", a.target.address, doing, err)
}
