package ipmi

import (
	"bytes"
	"encoding/hex"
	"slices"
)

// uuidOf writes a system GUID as a UUID. Three byte orders are in use: that of SMBIOS (the
// first three fields little endian), which most BMCs take; that of RFC 9562, read here with
// those three fields swapped, which whoever compares must try as well; and the one that
// IPMI itself prescribes (2.0, table 20-10), all bytes in reverse. The last is taken where the
// bytes make a UUID with a known version and variant in that order only.
func uuidOf(guid [16]byte) string {
	b := guid[:]
	if !slices.ContainsFunc(b, func(x byte) bool { return x != b[0] }) && (b[0] == 0 || b[0] == 0xff) {
		return "" // nobody set it
	}
	if reversed := backwards(b); !valid(b) && !valid(swapped(b)) && valid(reversed) {
		return format(reversed)
	}
	return format(swapped(b))
}

// valid: version 1 to 8 and the variant of RFC 9562, 4.1 and 4.2.
func valid(b []byte) bool { return b[6]>>4 >= 1 && b[6]>>4 <= 8 && b[8]>>6 == 2 }

func swapped(b []byte) []byte {
	b = bytes.Clone(b)
	slices.Reverse(b[0:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return b
}

func backwards(b []byte) []byte {
	b = bytes.Clone(b)
	slices.Reverse(b)
	return b
}

func format(b []byte) string {
	h := hex.EncodeToString(b)
	return h[0:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
