package snmp

import (
	"context"
	"errors"
	"fmt"

	"github.com/gosnmp/gosnmp"

	"github.com/hamgr/hamgr/agents"
)

// sysObjectID says what a device is (SNMPv2-MIB).
const sysObjectID = "1.3.6.1.2.1.1.2.0"

// sighting is one answer of the device about an outlet.
type sighting struct {
	agents.Reading
	session *session // through which it was seen
	family  *profile
	outlet  outlet
	name    string
	known   bool // the status is one of the family's
}

// read reads the status of a plug's outlet, in one answer with the sysObjectID and, if the
// file gives one or it is wanted, the name. If any of these is not as it must be, it is no
// reading. A device that restarted is asked once more, from the beginning.
func (a *agent) read(ctx context.Context, plug string, wantName bool) (sighting, error) {
	r, err := a.readOnce(ctx, plug, wantName)
	if isRestart(err) {
		r, err = a.readOnce(ctx, plug, wantName)
	}
	return r, err
}

func (a *agent) readOnce(ctx context.Context, plug string, wantName bool) (sighting, error) {
	f, to, err := a.find(ctx, plug)
	if err != nil {
		return sighting{}, err
	}
	r := sighting{session: a.s, family: f, outlet: to.outlet}
	objects := []string{sysObjectID, f.status.at(to.outlet)}
	if f.names != "" && (wantName || to.expect != "") {
		objects = append(objects, f.names.at(to.outlet))
	}
	v, err := a.get(ctx, objects...)
	if err != nil {
		return r, r.explain(err, objects)
	}
	if err := r.stillIn(a); err != nil {
		return r, err
	}
	if err := a.recognise(v[0]); err != nil {
		return r, err
	}
	value, err := integer(v[1])
	if err != nil {
		return r, err
	}
	if r.Reading, r.known = f.reading(value); f.states[value] == wordAbsent {
		return r, fmt.Errorf("%w: the device has no outlet %s", agents.ErrPlug, to.outlet.number(f))
	}
	if len(objects) > 2 {
		if r.name, err = text(v[2]); err != nil {
			return r, err
		}
		if to.expect != "" && r.name != to.expect {
			return r, fmt.Errorf("%w: outlet %s bears the name %q, and the file gives %q",
				agents.ErrPlug, to.outlet.number(f), clip(r.name), to.expect)
		}
	}
	return r, nil
}

// stillIn holds that the session has not been renewed meanwhile: what was found out in an
// earlier one says nothing about this one's device.
func (r sighting) stillIn(a *agent) error {
	if a.s != r.session {
		return fmt.Errorf("%w: the connection was renewed in the middle", agents.ErrBusy)
	}
	return nil
}

// explain says what it means that one of the objects of a reading is not there.
func (r sighting) explain(err error, objects []string) error {
	var absent *absentError
	var status *statusError
	object := ""
	switch {
	case errors.As(err, &absent):
		object = absent.object
	case errors.As(err, &status) && status.status == gosnmp.NoSuchName:
		object = status.object
	default:
		return err
	}
	number := r.outlet.number(r.family)
	switch {
	case object == sysObjectID:
		return fmt.Errorf("%w: its sysObjectID cannot be read: %w", agents.ErrUnfit, err)
	case len(objects) > 2 && object == objects[2]:
		return fmt.Errorf("%w: outlet %s has no name: %w", errNameless, number, err)
	}
	return fmt.Errorf("%w: the device has no outlet %s in the table of %s: %w", agents.ErrPlug, number, r.family.name, err)
}

// errNameless: the outlet is there, and its name is not.
var errNameless = fmt.Errorf("%w", agents.ErrPlug)

// recognise holds the device's sysObjectID against the family, which it fixes for the
// session at the first time.
func (a *agent) recognise(v gosnmp.SnmpPDU) error {
	id, err := identifier(v)
	if err != nil {
		return err
	}
	if a.s.id == id {
		return nil
	}
	if was := a.s.id; was != "" {
		a.drop()
		return fmt.Errorf("%w: the device's sysObjectID was %s and now is %s", agents.ErrProtocol, was, id)
	}
	f, err := choose(a.named, a.opts.SysObjectID, id)
	if err != nil {
		return err
	}
	a.s.id, a.s.family = id, f
	return nil
}

// find gives the family and the outlet of a plug. In each session the device is asked once
// what it is, and what its outlets are called if the file gives a name.
func (a *agent) find(ctx context.Context, text string) (*profile, found, error) {
	p, err := parsePlug(text)
	if err != nil {
		return nil, found{}, err
	}
	s, err := a.open(ctx)
	if err != nil {
		return nil, found{}, err
	}
	if s.family == nil {
		v, err := a.get(ctx, sysObjectID)
		if err != nil {
			return nil, found{}, err
		}
		if err := a.recognise(v[0]); err != nil {
			return nil, found{}, err
		}
	}
	f := a.s.family
	if p.expect != "" && f.names == "" {
		return f, found{}, fmt.Errorf("%w: outlets of %s have no names", agents.ErrPlug, f.name)
	}
	to, ok := a.s.resolved[text]
	if ok {
		return f, to, nil
	}
	to = found{expect: p.expect}
	if p.number != nil {
		to.outlet, err = p.outlet(f)
	} else {
		to, err = a.lookUp(ctx, f, p)
	}
	if err == nil {
		a.s.resolved[text] = to
	}
	return f, to, err
}

// lookUp finds an outlet by its ID or name, of which there must be one and only one.
func (a *agent) lookUp(ctx context.Context, f *profile, p plug) (found, error) {
	matches := map[string]found{}
	search := func(c column, expect string) error {
		if c == "" {
			return nil
		}
		return a.walk(ctx, c, func(o outlet, v gosnmp.SnmpPDU) error {
			s, err := text(v)
			if err != nil || s != p.word {
				return err
			}
			if o['N'] < 1 {
				return fmt.Errorf("%w: an outlet is numbered %s", agents.ErrProtocol, o.number(f))
			}
			if _, ok := matches[o.number(f)]; !ok {
				matches[o.number(f)] = found{outlet: o, expect: expect}
			}
			return nil
		})
	}
	// By name: the name is then read with each reading. By ID: only if the file gives a name.
	expect := p.expect
	if expect == "" {
		expect = p.word
	}
	if err := search(f.names, expect); err != nil {
		return found{}, err
	}
	if !p.named {
		if err := search(f.ids, p.expect); err != nil {
			return found{}, err
		}
	}
	switch len(matches) {
	case 1:
		for _, m := range matches {
			return m, nil
		}
	case 0:
		if f.names == "" && f.ids == "" {
			return found{}, fmt.Errorf("%w: outlets of %s have no names, only numbers", agents.ErrPlug, f.name)
		}
		return found{}, fmt.Errorf("%w: no outlet is called %q", agents.ErrPlug, clip(p.word))
	}
	return found{}, fmt.Errorf("%w: %d outlets are called %q; give the number", agents.ErrPlug, len(matches), clip(p.word))
}
