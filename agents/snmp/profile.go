package snmp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// profile is what is known of one family of PDUs. The table is in profiles.go.
type profile struct {
	name   string
	doc    string // the devices
	source string // where the facts are from

	// detect holds the sysObjectIDs of the family, or what they begin with. The longest wins.
	detect []string
	// fits holds further sysObjectIDs with which the family may be named: devices that serve
	// several families' tables.
	fits []string

	status column
	// states has the word for each value of status. Only the words on and off are believed;
	// absent says that there is no such outlet. All others are "unknown" in the MIB's word.
	states map[int]string
	// off and on are what is written. Their values have nothing to do with those of status.
	off, on command

	names column // outlet names, if the family has them
	ids   column // short names printed on the device ("AA1"), if the family has them
	// lone holds the values of leading parts that may be left out: those of a single device.
	lone outlet
	// count is a scalar with the number of outlets, if the family has one.
	count string
	// writeOnly: whether the control object can be read is not known, so a check does not ask.
	writeOnly bool
}

// command is one SET of an INTEGER.
type command struct {
	object column
	value  int
}

// The words of profile.states that mean something here.
const (
	wordOn     = "on"
	wordOff    = "off"
	wordAbsent = "absent"
)

// reading turns a value of the status column into a power state. Exactly off is off; a value
// that the family does not have is unknown, and known is false.
func (p *profile) reading(value int) (r agents.Reading, known bool) {
	word, known := p.states[value]
	if !known {
		word = "undefined"
	}
	r.Detail = fmt.Sprintf("%s (%d)", word, value)
	switch word {
	case wordOn:
		r.State = agents.On
	case wordOff:
		r.State = agents.Off
	}
	return r, known
}

// covers reports whether a device with this sysObjectID may be of the family.
func (p *profile) covers(sysObjectID string) bool {
	return slices.ContainsFunc(slices.Concat(p.detect, p.fits), func(prefix string) bool { return below(sysObjectID, prefix) })
}

// profileNamed finds a family by its name.
func profileNamed(name string) *profile {
	for i := range profiles {
		if profiles[i].name == name {
			return &profiles[i]
		}
	}
	return nil
}

// profileOf detects the family by the longest prefix of sysObjectID.
func profileOf(sysObjectID string) *profile {
	var best *profile
	longest := 0
	for i := range profiles {
		for _, prefix := range profiles[i].detect {
			if below(sysObjectID, prefix) && len(prefix) > longest {
				best, longest = &profiles[i], len(prefix)
			}
		}
	}
	return best
}

// profileNames lists the families in alphabetical order.
func profileNames() string {
	var names []string
	for _, p := range profiles {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// choose decides which family a device is of: the one that the file names, if any, else the
// detected one. The file's word is taken where the table knows nothing of the device, and where
// the file states the sysObjectID as well; against the table alone it is refused, because a
// wrong family reads and writes confidently wrong values.
func choose(named *profile, stated, sysObjectID string) (*profile, error) {
	if stated != "" && sysObjectID != stated {
		return nil, fmt.Errorf("%w: its sysObjectID is %s, and the file states %s", agents.ErrUnfit, sysObjectID, stated)
	}
	detected := profileOf(sysObjectID)
	switch {
	case named == nil && detected == nil:
		return nil, fmt.Errorf("%w: its sysObjectID %s belongs to no known family; name the profile if it is one of %s",
			agents.ErrUnfit, sysObjectID, profileNames())
	case named == nil:
		return detected, nil
	case detected == nil, named.covers(sysObjectID), stated != "":
		return named, nil
	}
	return nil, fmt.Errorf("%w: its sysObjectID %s is that of %s, and the file names profile %s; if the file is right, state sys_object_id as well",
		agents.ErrUnfit, sysObjectID, detected.name, named.name)
}
