package snmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// session is one socket with a gosnmp object on it, and what was learned through it about
// the device. gosnmp starts no goroutine for requests, so its decoder runs, and panics, here.
type session struct {
	gosnmp *gosnmp.GoSNMP
	guard  *guard

	id       string              // the device's sysObjectID; empty until it said so
	family   *profile            // and the family that follows from it
	resolved map[string]found    // by plug; never a state
	proven   map[string]sighting // by plug: outlets that were seen, so that they may be switched
	answered bool                // a request was answered, so the secrets are right
	dead     bool                // its socket was closed under a request
}

// found is the outlet that a plug names, and the name that it must bear.
type found struct {
	outlet outlet
	expect string
}

// dial opens a socket at the security level.
func (o *Options) dial(ctx context.Context, level gosnmp.SnmpV3MsgFlags) (*session, error) {
	host, port := o.target()
	g := &gosnmp.GoSNMP{
		Target: host, Port: port, Transport: "udp", Context: ctx, Timeout: longestTry,
		Retries: 0, // gosnmp would repeat a SET, and carry it out twice
		MaxOids: gosnmp.MaxOids, Version: versions[o.Version], Community: o.Community.Reveal(),
		ContextName: o.ContextName,
	}
	if g.Version == gosnmp.Version3 {
		g.SecurityModel, g.MsgFlags, g.SecurityParameters = gosnmp.UserSecurityModel, level, o.usm(level)
	}
	if err := g.Connect(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", agents.ErrUnreachable, err)
	}
	s := &session{gosnmp: g, guard: &guard{Conn: g.Conn, level: byte(level & gosnmp.AuthPriv)},
		resolved: map[string]found{}, proven: map[string]sighting{}}
	g.Conn = s.guard
	return s, nil
}

func (s *session) close() error { return s.guard.Close() }

// known reports whether a v3 device has answered the discovery.
func (s *session) known() bool {
	usm, ok := s.gosnmp.SecurityParameters.(*gosnmp.UsmSecurityParameters)
	return !ok || usm.AuthoritativeEngineID != ""
}

// exchange sends one request and waits for its answer, for a time or until ctx ends. Then
// the socket is closed under gosnmp, which would not notice before its own deadline.
func (s *session) exchange(ctx context.Context, wait time.Duration, request func(*gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error)) (p *gosnmp.SnmpPacket, err error) {
	stop := context.AfterFunc(ctx, func() { s.guard.Close() })
	defer func() {
		if !stop() {
			s.dead = true
		}
		if r := recover(); r != nil {
			p, err = nil, errBroken
		}
	}()
	s.gosnmp.Context, s.gosnmp.Timeout = ctx, wait
	p, err = request(s.gosnmp)
	if report := reportIn(p); report != nil {
		return nil, report
	}
	if err != nil {
		return nil, reason(ctx, err)
	}
	s.answered = true
	return p, nil
}

var errBroken = fmt.Errorf("%w: the decoder gave up on it", agents.ErrProtocol)

// reportIn gives the Report that gosnmp returned instead of an answer, with an error or without.
func reportIn(p *gosnmp.SnmpPacket) error {
	if p == nil || p.PDUType != gosnmp.Report || len(p.Variables) != 1 {
		return nil
	}
	return &reportError{plain(p.Variables[0].Name)}
}

// reason sorts an error of gosnmp's.
func reason(ctx context.Context, err error) error {
	var (
		report  *reportError
		network *net.OpError
	)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &report):
		return report
	case errors.Is(err, gosnmp.ErrNotInTimeWindow):
		return &reportError{notInTimeWindow}
	case errors.Is(err, gosnmp.ErrUnknownEngineID):
		return &reportError{unknownEngine}
	case errors.Is(err, gosnmp.ErrMaxRetriesExceeded), errors.Is(err, context.DeadlineExceeded):
		return errSilent
	case errors.Is(err, errStranger):
		return err
	case errors.As(err, &network) && network.Timeout():
		return errSilent
	case errors.As(err, &network): // nobody there, no route, not allowed to send
		return fmt.Errorf("%w: %w", errRefused, err)
	case strings.HasPrefix(err.Error(), "recover:"): // with the stacks of all goroutines
		return errBroken
	default:
		return fmt.Errorf("%w: %s", agents.ErrProtocol, clip(err.Error()))
	}
}
