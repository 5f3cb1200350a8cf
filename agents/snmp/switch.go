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
	if !s.proven[plug] {
		if err := a.prove(ctx, plug); err != nil {
			return fmt.Errorf("nothing was switched: %w", err)
		}
	}
	s = a.s
	return a.set(ctx, s, pick(s.family), s.resolved[plug].outlet)
}

// prove sees the outlet before it may be switched.
func (a *agent) prove(ctx context.Context, plug string) error {
	r, err := a.read(ctx, plug, false)
	if err != nil {
		return err
	}
	if !r.known {
		return fmt.Errorf("%w: the status of outlet %s is %s, which %s does not have", agents.ErrUnfit, r.outlet.number(r.family), r.Detail, r.family.name)
	}
	if err := a.checkCount(ctx, r); err != nil {
		return err
	}
	a.s.proven[plug] = true
	return nil
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
	doing := "checking outlet " + clip(plug)
	if err := a.prove(ctx, plug); err != nil {
		return a.fail(ctx, doing, err)
	}
	f := a.s.family
	if profileOf(a.s.id) == nil {
		a.log.Warn("the PDU's sysObjectID is of no known family: that it is this one is the file's word alone",
			"device", a.opts.Address, "plug", plug, "profile", f.name, "sysObjectID", a.s.id)
	}
	return a.fail(ctx, doing, a.checkControl(ctx, f, a.s.resolved[plug].outlet))
}

// checkControl reads the control objects, with the community that writes.
func (a *agent) checkControl(ctx context.Context, f *profile, o outlet) error {
	objects := []string{f.off.object.at(o)}
	if on := f.on.object.at(o); on != objects[0] {
		objects = append(objects, on)
	}
	if f.writeOnly {
		objects = []string{sysObjectID} // the community at least
	}
	defer a.writing(a.s)()
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
