package address

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hamgr/hamgr/resources"
)

// view is what the kernel says of the address and of the interface that should have it.
type view struct {
	found []entry // where the address is, with whatever prefix length
	// link is where it should be, or where it is if that cannot be told; err is why there is none.
	link link
	err  error
}

// look reads the view. It may hang with the kernel.
func (a *address) look() (view, error) {
	all, err := a.kernel.entries(a.family(), func(e entry) bool { return e.ip == a.ip || a.opts.Interface == "" && a.around(e) })
	if err != nil {
		return view{}, fmt.Errorf("addresses of this host: %w", err)
	}
	var v view
	var around []entry
	for _, e := range all {
		if e.ip == a.ip {
			v.found = append(v.found, e)
		} else {
			around = append(around, e)
		}
	}
	v.link, v.err = a.place(around, v.found)
	if v.err != nil && !errors.Is(v.err, resources.ErrNode) && !errors.Is(v.err, resources.ErrSetup) {
		return view{}, v.err
	}
	return v, nil
}

// around reports whether an address makes its interface fit: it has a network that holds ours, and stays. Those with
// hamgr's mark move.
func (a *address) around(e entry) bool {
	return e.ip != a.ip && e.proto != mark && e.prefix().Contains(a.ip)
}

// place finds the interface that should have the address.
func (a *address) place(around, found []entry) (link, error) {
	if a.opts.Interface != "" {
		l, err := a.kernel.linkNamed(a.opts.Interface)
		if errors.Is(err, errNoLink) {
			err = fmt.Errorf("interface %s: %w: %w", a.opts.Interface, resources.ErrNode, err)
		}
		return l, err
	}
	var fit []link
	for _, e := range around {
		if slices.ContainsFunc(fit, func(l link) bool { return l.index == e.index }) {
			continue
		}
		l, err := a.kernel.linkNumbered(e.index)
		if errors.Is(err, errNoLink) {
			continue // it has just gone
		}
		if err != nil {
			return link{}, err
		}
		fit = append(fit, l)
	}
	switch {
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) > 1:
		var names []string
		for _, l := range fit {
			names = append(names, l.name)
		}
		return link{}, fmt.Errorf("%w: %s have addresses in networks around %s; name one with interface = \"%s\"",
			resources.ErrSetup, strings.Join(names, " and "), a.ip, names[0])
	case len(found) == 1:
		l, err := a.kernel.linkNumbered(found[0].index)
		if err == nil || !errors.Is(err, errNoLink) {
			return l, err
		}
	}
	return link{}, fmt.Errorf("%w: no interface has an address in a network around %s; if that is meant, name the interface with the key interface",
		resources.ErrNode, a.ip)
}

// Probe implements resources.Resource.
func (a *address) Probe(ctx context.Context) (resources.State, string, error) {
	v, err := bounded(ctx, a.look)
	if err != nil {
		return resources.Unknown, "", fmt.Errorf("address %s: %w", a, err)
	}
	state, detail := a.judge(v)
	if c := a.conflict.Load(); state == resources.Active && c != nil && time.Since(c.last) < conflictShown {
		detail += "; " + c.Error()
	}
	return state, detail, nil
}

// judge says what a view means.
func (a *address) judge(v view) (resources.State, string) {
	if len(v.found) == 0 {
		return resources.Inactive, ""
	}
	if err := a.misplaced(v); err != nil {
		return resources.Failed, err.Error()
	}
	e := v.found[0]
	switch {
	case e.flags&unix.IFA_F_DADFAILED != 0:
		return resources.Failed, fmt.Sprintf("another host on the network of %s has it (duplicate address detection)", v.link.name)
	case e.flags&unix.IFA_F_TENTATIVE != 0:
		return resources.Failed, fmt.Sprintf("not usable yet on %s: duplicate address detection is under way", v.link.name)
	}
	if fault := a.linkFault(v.link); fault != "" {
		return resources.Failed, fault
	}
	if e.proto != mark {
		return resources.Active, fmt.Sprintf("on %s, not put there by hamgr", v.link.name)
	}
	return resources.Active, "on " + v.link.name
}

// misplaced says what is wrong with where the address is, and with its prefix length.
func (a *address) misplaced(v view) error {
	for _, e := range v.found {
		switch {
		case v.err == nil && e.index != v.link.index:
			return fmt.Errorf("%w: it is on %s of this host, not on %s", errHere, a.nameOf(e.index), v.link.name)
		case v.err != nil:
			return fmt.Errorf("%w: it is on %s of this host: %w", errHere, a.nameOf(e.index), v.err)
		case e.bits != a.bits:
			return fmt.Errorf("%w: it is on %s with the prefix length %d, not %d", errHere, v.link.name, e.bits, a.bits)
		}
	}
	return nil
}

// errHere says that this host has the address already, but not as configured.
var errHere = errors.New("wrong place")

func (a *address) nameOf(index int) string {
	if l, err := a.kernel.linkNumbered(index); err == nil {
		return l.name
	}
	return fmt.Sprintf("interface number %d", index)
}

// linkFault says why nobody can reach the address at the link; empty if it can be reached.
func (a *address) linkFault(l link) string {
	switch {
	case !l.up():
		return l.name + " is down"
	case !l.carrier() && a.opts.OnLinkDown == linkDownFails:
		return l.name + " has no carrier (cable, switch port)"
	}
	return ""
}

// mayHold says why the address cannot be on the link.
func (a *address) mayHold(l link) error {
	if fault := a.linkFault(l); fault != "" {
		return fmt.Errorf("%w: %s", resources.ErrNode, fault)
	}
	if !l.silent() && (l.kind != unix.ARPHRD_ETHER || len(l.mac) != 6) {
		return fmt.Errorf("%w: %s is not Ethernet, and on other networks a second owner of the address could not be found", resources.ErrSetup, l.name)
	}
	return nil
}

// Check implements resources.Checker.
func (a *address) Check(ctx context.Context) error {
	v, err := bounded(ctx, a.look)
	if err == nil {
		err = a.check(v)
	}
	if err != nil {
		return fmt.Errorf("address %s: %w", a, err)
	}
	return nil
}

func (a *address) check(v view) error {
	if v.err != nil {
		return v.err
	}
	if err := a.misplaced(v); err != nil {
		return fmt.Errorf("%w: %w", resources.ErrSetup, err)
	}
	if len(v.found) > 0 && v.found[0].proto != mark && a.kernel.keepsMarks() {
		return fmt.Errorf("%w: hamgr did not put it on %s; take it out of the host's own network configuration, and remove it with: ip addr del %s dev %s",
			resources.ErrSetup, v.link.name, a, v.link.name)
	}
	return a.mayHold(v.link)
}
