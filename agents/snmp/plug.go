package snmp

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/hamgr/hamgr/agents"
)

// outlet is the number of an outlet by the parts of its family: N, or P and N, or T, I and N.
type outlet map[byte]int

// number writes an outlet as an operator does, the parts in the order of the family.
func (o outlet) number(p *profile) string {
	var fields []string
	for _, letter := range []byte(p.status.parts()) {
		fields = append(fields, strconv.Itoa(o[letter]))
	}
	return strings.Join(fields, ".")
}

// plug is what the file says of an outlet: "3", "1.1.3", "AA1", "db-psu1", "name:3rd floor",
// each but the last with the name that it must bear: "3=db-psu1".
type plug struct {
	number []int  // by number, or
	word   string // by ID or name
	named  bool   // word is a name, never an ID ("name:")
	expect string // the name that the outlet must bear; empty = any
}

const (
	namePrefix  = "name:"
	longestPlug = 255
	// highestPart bounds a part of a number; with it no sum overflows an OID.
	highestPart = 9999
)

func parsePlug(s string) (plug, error) {
	bad := func(format string, args ...any) (plug, error) {
		return plug{}, fmt.Errorf("%w: %s", agents.ErrPlug, fmt.Sprintf(format, args...))
	}
	if len(s) > longestPlug || strings.ContainsFunc(s, unicode.IsControl) {
		return bad("an outlet's number or name is up to %d bytes without control characters", longestPlug)
	}
	if name, ok := strings.CutPrefix(s, namePrefix); ok {
		if name = tidy(name); name == "" {
			return bad("%q has no name", s)
		}
		return plug{word: name, named: true, expect: name}, nil
	}
	which, expect, found := strings.Cut(s, "=")
	which, expect = tidy(which), tidy(expect)
	if which == "" {
		return bad("no outlet is named; write its number or name into plugs")
	}
	if found && expect == "" {
		return bad("%q has no name behind the =", s)
	}
	p := plug{expect: expect}
	if strings.Trim(which, "0123456789.") != "" {
		p.word = which
		return p, nil
	}
	for f := range strings.SplitSeq(which, ".") {
		n, err := strconv.Atoi(f)
		if err != nil || n > highestPart || strconv.Itoa(n) != f {
			return bad("%q is not the number of an outlet", which)
		}
		p.number = append(p.number, n)
	}
	return p, nil
}

// Plug spells "3" and "3=db-psu1" alike: the name is what is expected, not what is switched.
func (o *Options) Plug(s string) (string, error) {
	p, err := parsePlug(s)
	switch {
	case err != nil:
		return "", err
	case p.number != nil:
		return join(p.number), nil
	case p.named:
		return namePrefix + p.word, nil
	}
	return p.word, nil
}

// outlet gives the outlet of a plug by number in a family. Parts that a lone device has but
// once may be left out.
func (p plug) outlet(f *profile) (outlet, error) {
	parts := f.status.parts()
	o := outlet{}
	missing := len(parts) - len(p.number)
	for i := range len(parts) {
		n, known := 0, false
		if i >= missing && missing >= 0 {
			n, known = p.number[i-missing], true
		} else if i < missing {
			n, known = f.lone[parts[i]], hasPart(f.lone, parts[i])
		}
		if !known {
			return nil, fmt.Errorf("%w: %s does not number an outlet of %s, which are numbered %s",
				agents.ErrPlug, join(p.number), f.name, strings.Join(strings.Split(parts, ""), "."))
		}
		o[parts[i]] = n
	}
	// Devices are counted from 0 in some families, outlets never: an index below the first
	// outlet's can mean all of them.
	if o['N'] < 1 {
		return nil, fmt.Errorf("%w: outlets are counted from 1", agents.ErrPlug)
	}
	return o, nil
}

func hasPart(o outlet, letter byte) bool { _, ok := o[letter]; return ok }

func join(numbers []int) string {
	var fields []string
	for _, n := range numbers {
		fields = append(fields, strconv.Itoa(n))
	}
	return strings.Join(fields, ".")
}

// tidy takes off the padding with which some devices fill names.
func tidy(name string) string {
	return strings.TrimFunc(name, func(r rune) bool { return r == 0 || unicode.IsSpace(r) })
}
