package redfish

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// The reset actions of DSP0268. resetAction is the property that makes a ComputerSystem a host.
const (
	resetAction        = "#ComputerSystem.Reset"
	chassisResetAction = "#Chassis.Reset"
)

// computerSystem is what is used of a ComputerSystem document, or of a Chassis.
type computerSystem struct {
	uri        string // that was asked for
	self       string // that the document bears
	chassis    bool
	id         string
	uuid       string
	serial     string
	etag       string
	power      json.RawMessage // PowerState as it stands; nil = missing
	target     string          // of the reset action; empty = not a host
	allowed    []string        // ResetType@Redfish.AllowableValues; nil = not given
	actionInfo string          // URI of the action's ActionInfo; empty = none
}

// fields decodes a JSON object one level deep. Unlike a struct it tells apart names
// that differ in case, and it refuses a name that occurs twice: with two
// PowerStates there is none.
func fields(doc []byte) (map[string]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%w: no JSON object", ErrNotRedfish)
	}
	m := map[string]json.RawMessage{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: broken JSON", ErrNotRedfish)
		}
		name, ok := t.(string)
		if _, twice := m[name]; !ok || twice {
			return nil, fmt.Errorf("%w: property %s occurs twice", ErrNotRedfish, word(name))
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("%w: broken JSON", ErrNotRedfish)
		}
		m[name] = v
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%w: broken JSON", ErrNotRedfish)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: more than one JSON value", ErrNotRedfish)
	}
	return m, nil
}

// text gives a string property; anything but a string counts as missing.
func text(m map[string]json.RawMessage, name string) string {
	var s *string
	if json.Unmarshal(m[name], &s) != nil || s == nil {
		return ""
	}
	return *s
}

// link gives the @odata.id of a property.
func link(m map[string]json.RawMessage, name string) string {
	sub, err := fields(m[name])
	if err != nil {
		return ""
	}
	return text(sub, "@odata.id")
}

// words gives a list of strings; nil if the property is not such a list.
func words(raw json.RawMessage) []string {
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// parseSystem reads a ComputerSystem document, or a Chassis document where the URI is one of a
// Chassis (they are prescribed by DSP0266, "Redfish-defined URIs"). In the place of a system it
// refuses a Chassis, and a Manager everywhere: they have a PowerState too, and theirs says nothing about the host.
func parseSystem(uri string, doc []byte) (*computerSystem, error) {
	m, err := fields(doc)
	if err != nil {
		return nil, err
	}
	kind, action := "ComputerSystem", resetAction
	if strings.HasPrefix(uri, chassisURI+"/") {
		kind, action = "Chassis", chassisResetAction
	}
	if t := text(m, "@odata.type"); !strings.HasPrefix(t, "#"+kind+".") {
		return nil, fmt.Errorf("%w: %s is no %s but %s", ErrSystem, uri, kind, word(t))
	}
	s := &computerSystem{
		uri:     uri,
		self:    text(m, "@odata.id"),
		chassis: kind == "Chassis",
		id:      text(m, "Id"),
		uuid:    text(m, "UUID"),
		serial:  strings.TrimSpace(text(m, "SerialNumber")),
		etag:    text(m, "@odata.etag"),
		power:   m["PowerState"],
	}
	if actions, err := fields(m["Actions"]); err == nil {
		if reset, err := fields(actions[action]); err == nil {
			s.target = text(reset, "target")
			s.allowed = words(reset["ResetType@Redfish.AllowableValues"])
			s.actionInfo = text(reset, "@Redfish.ActionInfo")
		}
	}
	return s, nil
}

// reading turns PowerState into one of three values. DSP0268 knows On, Off, Paused,
// PoweringOn and PoweringOff; only the exact word Off is off.
func (s *computerSystem) reading() agents.Reading {
	if s.power == nil {
		return agents.Reading{Detail: "<missing>"}
	}
	var v any
	if err := json.Unmarshal(s.power, &v); err != nil {
		return agents.Reading{Detail: "<broken>"}
	}
	switch v := v.(type) {
	case nil:
		return agents.Reading{Detail: "<null>"}
	case string:
		switch v {
		case "On":
			return agents.Reading{State: agents.On, Detail: v}
		case "Off":
			return agents.Reading{State: agents.Off, Detail: v}
		}
		return agents.Reading{Detail: word(v)}
	default:
		return agents.Reading{Detail: "<not a string>"}
	}
}

// parseActionInfo gives the ResetType values that an ActionInfo document allows; nil
// if it does not say.
func parseActionInfo(doc []byte) ([]string, error) {
	m, err := fields(doc)
	if err != nil {
		return nil, err
	}
	var params []json.RawMessage
	if json.Unmarshal(m["Parameters"], &params) != nil {
		return nil, nil
	}
	for _, raw := range params {
		p, err := fields(raw)
		if err == nil && text(p, "Name") == "ResetType" {
			return words(p["AllowableValues"]), nil
		}
	}
	return nil, nil
}

// parseCollection gives the members of one page, and the URI of the next page.
func parseCollection(doc []byte) (members []string, next string, err error) {
	m, err := fields(doc)
	if err != nil {
		return nil, "", err
	}
	var list []json.RawMessage
	if json.Unmarshal(m["Members"], &list) != nil || m["Members"] == nil {
		return nil, "", fmt.Errorf("%w: a collection without Members", ErrNotRedfish)
	}
	for _, raw := range list {
		p, err := fields(raw)
		if err != nil || text(p, "@odata.id") == "" {
			return nil, "", fmt.Errorf("%w: a member without @odata.id", ErrNotRedfish)
		}
		members = append(members, text(p, "@odata.id"))
	}
	return members, text(m, "Members@odata.nextLink"), nil
}
