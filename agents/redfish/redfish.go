// Package redfish is the fence agent for machines whose BMC speaks Redfish.
//
// It reads the power state of one ComputerSystem, and asks for ForceOff or On. It
// never uses a reset, a power cycle, a power button or a graceful shutdown, and it
// believes nothing but a fresh PowerState: an accepted command, a finished task or
// an error says nothing about the power.
//
// The HTTP client, the sessions and the authentication are gofish's; the few small
// documents that decide about power are decoded here, strictly, because a document
// that is merely close to what Redfish prescribes must end in "unknown".
package redfish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/stmcginnis/gofish"

	"github.com/hamgr/hamgr/agents"
)

// Kind is the registry's entry.
func Kind() agents.Kind {
	return agents.Kind{
		Name:    "redfish",
		Doc:     "BMC with Redfish over HTTPS (iDRAC, iLO, XCC, OpenBMC, MegaRAC and others)",
		Options: func() agents.Options { return &Options{Auth: AuthBasic} },
	}
}

var (
	_ agents.Agent      = (*agent)(nil)
	_ agents.Identifier = (*agent)(nil)
	_ agents.Options    = (*Options)(nil)
)

// agent is a handle on one BMC.
type agent struct {
	base     address
	opts     Options
	log      *slog.Logger
	network  *network
	http     *http.Client
	client   *gofish.APIClient // nil until connected
	login    *login            // session authentication: the login under way or done
	closed   bool
	resolved map[string]string // plug -> URI of its system; never a state
}

// Status reads the power state of the plug's system from its document.
func (a *agent) Status(ctx context.Context, plug string) (agents.Reading, error) {
	s, err := a.system(ctx, plug)
	if err != nil {
		return agents.Reading{}, a.fail(ctx, "reading the power state", err)
	}
	return s.reading(), nil
}

// Off asks for ForceOff. A nil error means that the BMC accepted it, no more.
func (a *agent) Off(ctx context.Context, plug string) error {
	return a.fail(ctx, "ordering off", a.reset(ctx, plug, pickOff))
}

// On asks for On. A nil error means that the BMC accepted it, no more.
func (a *agent) On(ctx context.Context, plug string) error {
	return a.fail(ctx, "ordering on", a.reset(ctx, plug, pickOn))
}

// Identity reads whom the BMC says it powers. Values that firmware uses for "not
// set" are left empty.
func (a *agent) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	s, err := a.system(ctx, plug)
	if err != nil {
		return agents.Identity{}, a.fail(ctx, "reading the identity", err)
	}
	return agents.Identity{UUID: knownUUID(s.uuid), Serial: s.serial}, nil
}

// fail names what was being done and to whom, and lets an ended context win over
// whatever the broken-off request reported.
func (a *agent) fail(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", ended, err)
	}
	return fmt.Errorf("redfish %s: %s: %w", a.base.host, doing, err)
}
