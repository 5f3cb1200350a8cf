// Package snmp is the fence agent for switched PDUs that speak SNMP.
//
// It reads the status column of an outlet, and writes off or on into its control column. Which
// columns those are and what their values mean differs from family to family, and on one
// device the value for off is another one's for on: so the family is what the device says of
// itself (sysObjectID), each reading comes with it in one answer, and nothing is written
// before the outlet was seen.
//
// The protocol is gosnmp's. What it leaves unchecked is checked here: whose answer it is
// (guard.go), and what is in it (answer.go).
package snmp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/hamgr/hamgr/agents"
)

// Kind is the registry's entry.
func Kind() agents.Kind {
	return agents.Kind{
		Name:    "snmp",
		Doc:     "switched PDU with SNMP (APC, Eaton, HPE, Raritan, Server Technology, Vertiv, CyberPower, Tripp Lite and others)",
		Options: func() agents.Options { return &Options{Version: version3} },
		Example: `[[fence_device]]
name = "pdu-a"
agent = "snmp"
address = "10.9.0.50"
version = "3"
username = "fencer"
auth = "SHA256"
auth_password_file = "/etc/hamgr/secrets/pdu-auth"
priv = "AES"
priv_password_file = "/etc/hamgr/secrets/pdu-priv"
plugs = { alpha = ["3=alpha-psu1"], beta = ["4=beta-psu1"] }
`,
	}
}

var (
	_ agents.Agent      = (*agent)(nil)
	_ agents.Identifier = (*agent)(nil)
	_ agents.Checker    = (*agent)(nil)
	_ agents.Options    = (*Options)(nil)
)

// agent is a handle on one PDU.
type agent struct {
	opts   Options
	named  *profile // the family that the file names, if any
	log    *slog.Logger
	s      *session // nil until opened, and after the device restarted
	closed bool
}

// Status reads the outlet's status column.
func (a *agent) Status(ctx context.Context, plug string) (agents.Reading, error) {
	r, err := a.read(ctx, plug, false)
	if err != nil {
		return agents.Reading{}, a.fail(ctx, "reading outlet "+clip(plug), err)
	}
	return r.Reading, nil
}

// Off writes off into the control column, once. A nil error means that the device accepted
// it, an error that it answered one or nothing: neither says what became of the outlet.
func (a *agent) Off(ctx context.Context, plug string) error {
	return a.fail(ctx, "switching off outlet "+clip(plug), a.switchTo(ctx, plug, func(p *profile) command { return p.off }))
}

// On writes on into the control column, once; see Off.
func (a *agent) On(ctx context.Context, plug string) error {
	return a.fail(ctx, "switching on outlet "+clip(plug), a.switchTo(ctx, plug, func(p *profile) command { return p.on }))
}

// Identity gives the outlet's name, if it has one.
func (a *agent) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	r, err := a.read(ctx, plug, true)
	if err != nil && !errors.Is(err, errNameless) {
		return agents.Identity{}, a.fail(ctx, "reading the name of outlet "+clip(plug), err)
	}
	return agents.Identity{Name: r.name}, nil
}

// Close closes the socket. SNMP has no sessions to end.
func (a *agent) Close(context.Context) error {
	a.closed = true
	return a.drop()
}

// open gives the session, and makes one if there is none.
func (a *agent) open(ctx context.Context) (*session, error) {
	if a.closed {
		return nil, errClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if a.s != nil && a.s.dead {
		a.drop()
	}
	if a.s == nil {
		s, err := a.opts.dial(ctx, a.opts.level())
		if err != nil {
			return nil, err
		}
		a.s = s
	}
	return a.s, nil
}

// drop ends the session, and with it all that was learned about the device.
func (a *agent) drop() error {
	if a.s == nil {
		return nil
	}
	err := a.s.close()
	a.s = nil
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("snmp %s: closing: %w", a.opts.Address, err)
	}
	return nil
}

// fail names what was being done and to whom, and lets an ended context win over whatever
// the broken-off request reported.
func (a *agent) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", ended, err)
	}
	return fmt.Errorf("snmp %s: %s: %w", a.opts.Address, doing, err)
}
