package stonith

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hamgr/hamgr/agents"
)

// Machine is what a node says of itself, as its firmware tells it (DMI). Empty fields are
// not known.
type Machine struct {
	UUID   string `json:"uuid,omitempty"`   // SMBIOS system UUID
	Serial string `json:"serial,omitempty"` // system serial number
}

// SameMachine compares what a node announced with what a device says of the machine that it
// powers. It is known only where both have a UUID, or else both have a serial number.
func SameMachine(m Machine, id agents.Identity) (same, known bool) {
	if a, b := uuid(m.UUID), uuid(id.UUID); a != nil && b != nil {
		return slices.Equal(a, b) || slices.Equal(a, swapped(b)), true
	}
	if a, b := serial(m.Serial), serial(id.Serial); a != "" && b != "" {
		return strings.EqualFold(a, b), true
	}
	return false, false
}

func (m Machine) known() bool { return m != Machine{} }

// mismatch is the error that refuses a device.
func mismatch(m Machine, id agents.Identity) error {
	return fmt.Errorf("%w: the device names UUID %q, serial %q; the node announced UUID %q, serial %q",
		agents.ErrIdentity, id.UUID, id.Serial, m.UUID, m.Serial)
}

// identityShare is the time that a device has to say whom it powers, before the shot goes on without.
func identityShare(d Device) time.Duration { return min(d.Timeout/4, identityTime) }

const identityTime = 2 * time.Second

// uuid gives the 16 bytes of a UUID; nil if the text is none, or one of those that boards
// bear whose maker set nothing.
func uuid(text string) []byte {
	text = strings.ToLower(strings.TrimSpace(text))
	text = strings.Trim(strings.TrimPrefix(text, "urn:uuid:"), "{}")
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(b) != 16 {
		return nil
	}
	unset := !slices.ContainsFunc(b, func(c byte) bool { return c != b[0] }) && (b[0] == 0 || b[0] == 0xff) // SMBIOS 3.x, 7.2.1
	if unset || slices.Equal(b, placeholder) || slices.Equal(b, swapped(placeholder)) {
		return nil
	}
	return b
}

// placeholder is the UUID of many boards whose maker left the firmware's sample in place.
var placeholder = []byte{0x03, 0, 2, 0, 4, 0, 5, 0, 0, 6, 0, 7, 0, 8, 0, 9}

// swapped turns round the first three fields: SMBIOS stores them little endian since
// version 2.6, and neither all firmware nor all BMCs agree (SMBIOS 3.x, 7.2.1).
func swapped(uuid []byte) []byte {
	b := slices.Clone(uuid)
	slices.Reverse(b[0:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return b
}

// serial gives a serial number; nothing if the text is what firmware says when there is none.
func serial(text string) string {
	text = strings.TrimSpace(text)
	if slices.Contains(noSerial, strings.ToLower(text)) || strings.Trim(text, "0 .-") == "" {
		return ""
	}
	return text
}

var noSerial = []string{
	"none", "n/a", "na", "unknown", "not specified", "not available", "not applicable", "default string", "default",
	"system serial number", "chassis serial number", "to be filled by o.e.m.", "to be filled by o.e.m", "0123456789", "123456789",
	"empty", "null", "invalid", "oem",
}
