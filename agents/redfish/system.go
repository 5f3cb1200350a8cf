package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

const (
	systemsURI = "/redfish/v1/Systems" // where the service root does not name it (DSP0266)
	chassisURI = "/redfish/v1/Chassis"
	rootURI    = "/redfish/v1/"
	maxMembers = 64
	maxPages   = 16
)

// system reads the document of the plug's system, freshly. A plug, or else the key
// system, names it by URI, ID, UUID or serial number; without either, the BMC must
// have just one. A chassis is named by its URI only, as its power is that of all that is in it.
func (a *agent) system(ctx context.Context, plug string) (*computerSystem, error) {
	name := plug
	if name == "" {
		name = a.opts.System
	}
	if strings.HasPrefix(name, "/") {
		uri, err := a.base.reference(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSystem, err)
		}
		return a.host(ctx, uri)
	}
	if uri, ok := a.resolved[plug]; ok {
		s, err := a.host(ctx, uri)
		if err == nil && name != "" && !s.isCalled(name) {
			err = fmt.Errorf("%w: %s is no longer %s", ErrSystem, uri, word(name))
		}
		if errors.Is(err, ErrSystem) {
			delete(a.resolved, plug)
		}
		return s, err
	}
	s, err := a.discover(ctx, name)
	if err != nil {
		return nil, err
	}
	a.resolved[plug] = s.uri
	return s, nil
}

// host reads a system that must be a host. Accelerator trays and the like are
// ComputerSystems too, with a PowerState, but without the reset action.
func (a *agent) host(ctx context.Context, uri string) (*computerSystem, error) {
	s, err := a.read(ctx, uri)
	switch {
	case err != nil || s.target != "":
		return s, err
	case s.chassis:
		return nil, fmt.Errorf("%w: %s has no Chassis.Reset, so it switches nothing", ErrSystem, uri)
	default:
		return nil, fmt.Errorf("%w: %s has no ComputerSystem.Reset, so it is no host", ErrSystem, uri)
	}
}

func (a *agent) read(ctx context.Context, uri string) (*computerSystem, error) {
	doc, etag, err := a.get(ctx, uri)
	if err != nil {
		var status *statusError
		if errors.As(err, &status) && status.status == http.StatusNotFound {
			return nil, fmt.Errorf("%w: the BMC has no %s: %w", ErrSystem, uri, err)
		}
		return nil, err
	}
	s, err := parseSystem(uri, doc)
	if err != nil {
		return nil, err
	}
	if s.self != "" && !a.base.samePath(s.self, uri) {
		return nil, fmt.Errorf("%w: asked for %s, the BMC answers with %s", ErrSystem, uri, agents.Clip(s.self, 120))
	}
	if etag != "" {
		s.etag = etag
	}
	return s, nil
}

// discover finds the one host that is called name, or the only one if name is empty.
// The order of members means nothing: it changes between calls on some BMCs.
func (a *agent) discover(ctx context.Context, name string) (*computerSystem, error) {
	uris, err := a.members(ctx)
	if err != nil {
		return nil, err
	}
	var hosts, found []*computerSystem
	for _, uri := range uris {
		// A member that cannot be read may be the one that is meant, or make it ambiguous.
		s, err := a.read(ctx, uri)
		if err != nil {
			return nil, err
		}
		if s.target == "" || s.chassis {
			continue
		}
		hosts = append(hosts, s)
		if name == "" || s.isCalled(name) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(hosts) == 0:
		return nil, fmt.Errorf("%w: the BMC shows no host", ErrSystem)
	case name == "":
		return nil, fmt.Errorf("%w: the BMC has several, name one with the key system or a plug: %s", ErrSystem, list(hosts))
	case len(found) == 0:
		return nil, fmt.Errorf("%w: none is called %s; there are: %s", ErrSystem, word(name), list(hosts))
	default:
		return nil, fmt.Errorf("%w: several are called %s, name one by its URI: %s", ErrSystem, word(name), list(found))
	}
}

// members gives the URIs of all systems, sorted.
func (a *agent) members(ctx context.Context) ([]string, error) {
	root, err := a.object(ctx, rootURI)
	if err != nil {
		return nil, err
	}
	if l := link(root, "Systems"); l != "" {
		return a.collection(ctx, l)
	}
	return a.collection(ctx, systemsURI)
}

// object reads a document that a link leads to.
func (a *agent) object(ctx context.Context, ref string) (map[string]json.RawMessage, error) {
	uri, err := a.base.reference(ref)
	if err != nil {
		return nil, err
	}
	doc, _, err := a.get(ctx, uri)
	if err != nil {
		return nil, err
	}
	return fields(doc)
}

// collection gives the URIs of the members of a collection, sorted.
func (a *agent) collection(ctx context.Context, next string) ([]string, error) {
	var uris []string
	for range maxPages {
		uri, err := a.base.reference(next)
		if err != nil {
			return nil, err
		}
		doc, _, err := a.get(ctx, uri)
		if err != nil {
			return nil, err
		}
		var page []string
		if page, next, err = parseCollection(doc); err != nil {
			return nil, err
		}
		for _, m := range page {
			uri, err := a.base.reference(m)
			if err != nil {
				return nil, err
			}
			uris = append(uris, uri)
		}
		if next == "" || len(uris) > maxMembers {
			break
		}
	}
	if next != "" || len(uris) > maxMembers {
		return nil, fmt.Errorf("%w: more than %d members, name one by its URI", ErrSystem, maxMembers)
	}
	slices.Sort(uris)
	return slices.Compact(uris), nil
}

// isCalled reports whether name is the system's ID, UUID or serial number.
func (s *computerSystem) isCalled(name string) bool {
	return s.id == name || path.Base(s.uri) == name || s.serial == name || sameUUID(s.uuid, name)
}

func list(systems []*computerSystem) string {
	var b []string
	for _, s := range systems {
		b = append(b, agents.Clip(s.uri, 120))
	}
	return strings.Join(b, ", ")
}
