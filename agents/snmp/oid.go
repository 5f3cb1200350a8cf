package snmp

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// column is the OID of an object of each outlet. Its capital letters stand for the parts of
// an outlet's number: "1.3.6.1.4.1.534.6.6.7.6.6.1.2.S.N" is outlet N of strip S. A part may be
// followed by +1 or -1, where a table counts differently from the print on the device.
type column string

// parts gives the letters, in their order.
func (c column) parts() string {
	var letters []byte
	for _, f := range strings.Split(string(c), ".") {
		if letter, _, ok := variable(f); ok {
			letters = append(letters, letter)
		}
	}
	return string(letters)
}

// at gives the object of one outlet. A letter without a value makes it no OID, so that
// nobody is asked about, or told to switch, number 0.
func (c column) at(o outlet) string {
	fields := strings.Split(string(c), ".")
	for i, f := range fields {
		if letter, offset, ok := variable(f); ok && hasPart(o, letter) {
			fields[i] = strconv.Itoa(o[letter] + offset)
		}
	}
	return strings.Join(fields, ".")
}

// root is the OID below which the objects of all outlets lie.
func (c column) root() string {
	fields := strings.Split(string(c), ".")
	n := slices.IndexFunc(fields, func(f string) bool { _, _, ok := variable(f); return ok })
	if n < 0 {
		n = len(fields)
	}
	return strings.Join(fields[:n], ".")
}

// match is the reverse of at.
func (c column) match(oid string) (outlet, bool) {
	fields, got := strings.Split(string(c), "."), strings.Split(oid, ".")
	if len(fields) != len(got) {
		return nil, false
	}
	o := outlet{}
	for i, f := range fields {
		letter, offset, ok := variable(f)
		if !ok {
			if f != got[i] {
				return nil, false
			}
			continue
		}
		n, err := strconv.ParseUint(got[i], 10, 16)
		if err != nil {
			return nil, false
		}
		o[letter] = int(n) - offset
	}
	return o, true
}

// variable takes "N", "N+1" or "N-1" apart.
func variable(field string) (letter byte, offset int, ok bool) {
	if field == "" || field[0] < 'A' || field[0] > 'Z' {
		return 0, 0, false
	}
	switch field[1:] {
	case "":
		return field[0], 0, true
	case "+1":
		return field[0], 1, true
	case "-1":
		return field[0], -1, true
	}
	return 0, 0, false
}

// below reports whether oid is prefix or lies under it.
func below(oid, prefix string) bool {
	return oid == prefix || strings.HasPrefix(oid, prefix+".")
}

// plain takes off the dot with which some write an OID.
func plain(oid string) string { return strings.TrimPrefix(oid, ".") }

// isOID reports whether s is an OID in digits, without the leading dot.
func isOID(s string) bool {
	fields := strings.Split(s, ".")
	for _, f := range fields {
		if _, err := strconv.ParseUint(f, 10, 32); err != nil || f[0] == '+' {
			return false
		}
	}
	return len(fields) >= 2 && len(fields) <= 128
}

// compareOID orders two OIDs as GETNEXT does.
func compareOID(a, b string) int {
	number := func(s string) uint64 { n, _ := strconv.ParseUint(s, 10, 64); return n }
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		return cmp.Compare(number(x), number(y))
	})
}
