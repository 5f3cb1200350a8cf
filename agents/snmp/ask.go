package snmp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

const (
	// firstTry is the wait for the first answer; each further one is half as long again, because
	// a device that encrypts on a slow processor must be given its time in the end.
	firstTry   = 250 * time.Millisecond
	longestTry = 2 * time.Second
	// setWait is how long the answer to a SET is waited for. It only hints; the engine reads what
	// became of the SET, which is never sent again from here.
	setWait = time.Second
	// patience ends the asking when the context does not.
	patience = 6 * time.Second
	// broken is how often an answer may be unreadable.
	broken = 3
)

// request is one call of gosnmp's.
type request func(*gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error)

// get reads objects, all in one request, so that all are of one moment. A lost request or
// answer is asked for again while ctx allows.
func (a *agent) get(ctx context.Context, objects ...string) ([]gosnmp.SnmpPDU, error) {
	p, err := a.ask(ctx, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) { return g.Get(objects) })
	if err != nil {
		return nil, err
	}
	return checkAnswer(p, false, objects...)
}

// set writes one INTEGER, once, in the session in which the outlet was seen.
func (a *agent) set(ctx context.Context, s *session, c command, o outlet) error {
	object := c.object.at(o)
	defer a.writing(s)()
	p, err := s.exchange(ctx, setWait, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) {
		return g.Set([]gosnmp.SnmpPDU{{Name: object, Type: gosnmp.Integer, Value: c.value}})
	})
	switch {
	case isRestart(err):
		a.drop()
		return err
	case errors.Is(err, errSilent):
		return fmt.Errorf("%w: no answer to the SET, which may have been carried out", agents.ErrUnreachable)
	case errors.Is(err, errRefused):
		return fmt.Errorf("%w: %w", agents.ErrUnreachable, err)
	case err != nil:
		return err
	}
	v, err := checkAnswer(p, true, object)
	if err != nil {
		return err
	}
	_, err = integer(v[0])
	return err
}

// writing makes a session speak with the community that writes, until the returned function
// is called.
func (a *agent) writing(s *session) func() {
	if !a.opts.WriteCommunity.IsZero() {
		s.gosnmp.Community = a.opts.WriteCommunity.Reveal()
	}
	return func() { s.gosnmp.Community = a.opts.Community.Reveal() }
}

// ask sends a reading request until it is answered.
func (a *agent) ask(ctx context.Context, what request) (*gosnmp.SnmpPacket, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSilent)
	defer cancel()
	var t tries
	for wait := firstTry; ; wait = min(wait+wait/2, longestTry) {
		s, err := a.open(ctx)
		if err != nil {
			return nil, t.verdict(ctx, a, err)
		}
		p, err := s.exchange(ctx, wait, what)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, errSilent) {
			t.probe(ctx, a, s, wait)
		}
		t.strays, t.lower = t.strays+s.guard.stray, t.lower+s.guard.lower
		s.guard.stray, s.guard.lower = 0, 0
		if isRestart(err) {
			a.drop() // gosnmp does not recover; and it may be another device
		}
		if !t.another(err) || ctx.Err() != nil {
			return nil, t.verdict(ctx, a, err)
		}
	}
}

// isRestart: the device has another engine ID than before, or its clock began anew. A new
// session may do better.
func isRestart(err error) bool { return isReport(err, unknownEngine) || isReport(err, notInTimeWindow) }

// tries is what became of the tries so far.
type tries struct {
	silent, broken int
	strays, lower  int // datagrams that were no answers
	probed         int // v3: answered without encryption
}

// another counts a try that failed, and says whether the next one may do better.
func (t *tries) another(err error) bool {
	switch {
	case errors.Is(err, errSilent):
		t.silent++
		return true
	case errors.As(err, new(*reportError)):
		return false
	case errors.Is(err, agents.ErrProtocol):
		t.broken++
		return t.broken < broken
	}
	return false
}

// probe asks once more without encryption, when a device that answers the discovery is
// silent to all else: one that answers this has another privacy key. Nothing secret is in it.
// A lost datagram looks the same, so the answer only chooses the words of the error.
func (t *tries) probe(ctx context.Context, a *agent, s *session, wait time.Duration) {
	if s.guard.level != flagLevel || !s.known() || s.answered || t.silent == 0 {
		return
	}
	clear, err := a.opts.dial(ctx, gosnmp.AuthNoPriv)
	if err != nil {
		return
	}
	defer clear.close()
	p, err := clear.exchange(ctx, wait, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) { return g.Get([]string{sysObjectID}) })
	if err == nil && p.PDUType == gosnmp.GetResponse {
		t.probed++
	}
}

// verdict says why nothing was answered.
func (t *tries) verdict(ctx context.Context, a *agent, err error) error {
	switch {
	case ctx.Err() == nil && errors.Is(err, errRefused):
		return fmt.Errorf("%w: %w", agents.ErrUnreachable, err)
	case ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), errSilent): // our own patience
		return t.why(a)
	case *t == tries{} && errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err() // called off before anything could be said
	}
	return fmt.Errorf("%w (%w)", t.why(a), ctx.Err())
}

// why says in words what silence can mean.
func (t *tries) why(a *agent) error {
	strays := ""
	if t.strays > 0 {
		strays = fmt.Sprintf("; %d datagrams came that answer nothing asked", t.strays)
	}
	say := func(trouble error, words string) error { return fmt.Errorf("%w: %s%s", trouble, words, strays) }
	switch {
	case t.lower > 0:
		return say(agents.ErrUntrusted, fmt.Sprintf("%d answers came below the configured security level", t.lower))
	case t.probed > 1:
		return say(agents.ErrCredentials, "the privacy password or protocol is wrong: what is only signed is answered, what is encrypted is not")
	case a.opts.Version != version3:
		return say(agents.ErrUnreachable, "no answer; a wrong community, a wrong version or a client that the device does not allow looks the same")
	case a.s != nil && a.s.known():
		return say(agents.ErrUnreachable, "no answer, although the device answered the engine discovery; a wrong privacy password, privacy protocol or context looks the same")
	}
	return say(agents.ErrUnreachable, "no answer to the engine discovery; a device without SNMP version 3, or one that does not allow this client, looks the same")
}
