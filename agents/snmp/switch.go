package snmp

import (
	"context"
	"errors"
	"fmt"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// switchTo writes one command into the outlet's control object, once. In each session the
// outlet is seen first: of the right family, there, with a status that the family has, and
// with the right name.
func (a *agent) switchTo(ctx context.Context, plug string, pick func(*profile) command) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	seen, ok := s.proven[plug]
	if !ok {
		if seen, err = a.prove(ctx, plug); err != nil {
			return fmt.Errorf("nothing was switched: %w", err)
		}
	}
	return a.set(ctx, seen.session, pick(seen.family), seen.outlet)
}

// prove sees the outlet before it may be switched.
func (a *agent) prove(ctx context.Context, plug string) (sighting, error) {
	r, err := a.read(ctx, plug, false)
	if err != nil {
		return r, err
	}
	if !r.known {
		return r, fmt.Errorf("%w: the status of outlet %s is %s, which %s does not have", agents.ErrUnfit, r.outlet.number(r.family), r.Detail, r.family.name)
	}
	if err := a.checkCount(ctx, r); err != nil {
		return r, err
	}
	if err := r.stillIn(a); err != nil {
		return r, err
	}
	r.session.proven[plug] = r
	return r, nil
}

// checkCount holds the outlet's number against the number of outlets, where the device tells.
func (a *agent) checkCount(ctx context.Context, r sighting) error {
	if r.family.count == "" {
		return nil
	}
	v, err := a.get(ctx, r.family.count)
	if errors.Is(err, errNoObject) {
		return nil
	}
	if err != nil {
		return err
	}
	count, err := integer(v[0])
	if err != nil {
		return err
	}
	if n := r.outlet['N']; count > 0 && n > count {
		return fmt.Errorf("%w: outlet %d is beyond the device's %d outlets", agents.ErrPlug, n, count)
	}
	return nil
}

// Check sees the outlet as before a switching, and that its control objects can be read. SNMP
// cannot tell whether they may be written too, except by writing.
func (a *agent) Check(ctx context.Context, plug string) error {
	seen, err := a.prove(ctx, plug)
	if err == nil {
		if id := seen.session.id; profileOf(id) == nil {
			a.log.Warn("the PDU's sysObjectID is of no known family: that it is this one is the file's word alone",
				"device", a.opts.Address, "plug", plug, "profile", seen.family.name, "sysObjectID", id)
		}
		err = a.checkControl(ctx, seen)
	}
	return a.fail(ctx, "checking outlet "+clip(plug), err)
}

// checkControl reads the control objects, with the community that writes.
func (a *agent) checkControl(ctx context.Context, seen sighting) error {
	f, o := seen.family, seen.outlet
	objects := []string{f.off.object.at(o)}
	if on := f.on.object.at(o); on != objects[0] {
		objects = append(objects, on)
	}
	if f.writeOnly {
		objects = []string{sysObjectID} // the community at least
	}
	defer a.writing(seen.session)()
	v, err := a.get(ctx, objects...)
	switch {
	case errors.Is(err, errNoObject):
		return fmt.Errorf("%w: outlet %s cannot be switched, or this account does not see its control object: %w", agents.ErrUnfit, o.number(f), err)
	case errors.Is(err, agents.ErrUnreachable) && !a.opts.WriteCommunity.IsZero():
		return fmt.Errorf("%w: no answer to the write community, although the other one is answered: %w", agents.ErrCredentials, err)
	case err != nil:
		return err
	}
	for _, x := range v {
		if x.Type != gosnmp.Integer && !f.writeOnly {
			return fmt.Errorf("%w: the control object %s is of type %v", agents.ErrUnfit, plain(x.Name), x.Type)
		}
	}
	return nil
}
