// Package redfish is the fence agent for machines whose BMC speaks Redfish.
//
// It reads the power state of one ComputerSystem, or of a Chassis that is named, and asks for ForceOff or On. It
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
		Example: example,
	}
}

const example = `[[fence_device]]
name = "beta-bmc"
agent = "redfish"
address = "https://10.9.0.12"
username = "fencer"
password_file = "/etc/hamgr/secrets/bmc"
# system = "/redfish/v1/Systems/1"    # where the BMC has several
# One of these, unless the BMC's certificate is from a CA that the host trusts:
# ca_file = "/etc/hamgr/bmc-ca.pem"
# pin_sha256 = "..."    # openssl s_client -connect 10.9.0.12:443 </dev/null | openssl x509 -noout -fingerprint -sha256
`

var (
	_ agents.Agent      = (*agent)(nil)
	_ agents.Identifier = (*agent)(nil)
	_ agents.Checker    = (*agent)(nil)
	_ agents.Options    = (*Options)(nil)
	_ agents.Observer   = (*Options)(nil)
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

// Format keeps the credentials, which lie in fields that fmt would print, out of every text.
func (a *agent) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "redfish %s", a.base.host) }

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
// set" are left empty, and so is all of a chassis: its number is not that of a host in it.
func (a *agent) Identity(ctx context.Context, plug string) (agents.Identity, error) {
	s, err := a.system(ctx, plug)
	if err != nil {
		return agents.Identity{}, a.fail(ctx, "reading the identity", err)
	}
	if s.chassis {
		return agents.Identity{}, nil
	}
	id := agents.Identity{UUID: knownUUID(s.uuid), Serial: s.serial}
	if id.UUID == "" && s.uuid != "" {
		a.log.InfoContext(ctx, "the BMC's UUID is one that nobody set, or none; it identifies no machine", "plug", plug, "uuid", word(s.uuid))
	}
	return id, nil
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
