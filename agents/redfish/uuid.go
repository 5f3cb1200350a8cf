package redfish

import (
	"encoding/hex"
	"slices"
	"strings"
)

// parseUUID reads the 16 bytes of a UUID in the usual form.
func parseUUID(s string) ([]byte, bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return nil, false
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	return b, err == nil && len(b) == 16
}

// knownUUID gives the UUID in lower case, or nothing where the text is no UUID or is
// one of the values that firmware ships when nobody set it.
func knownUUID(s string) string {
	b, ok := parseUUID(s)
	if !ok {
		return ""
	}
	s = strings.ToLower(s)
	same := func(v byte) bool { return !slices.ContainsFunc(b, func(x byte) bool { return x != v }) }
	if same(0) || same(0xff) || s == "03000200-0400-0500-0006-000700080009" {
		return ""
	}
	return s
}

// sameUUID compares in both byte orders: SMBIOS stores the first three fields little
// endian, and not every BMC turns them round (SMBIOS 3.x, 7.2.1).
func sameUUID(x, y string) bool {
	x, y = knownUUID(x), knownUUID(y)
	return x != "" && y != "" && (x == y || x == swapped(y))
}

func swapped(uuid string) string {
	b, _ := parseUUID(uuid)
	slices.Reverse(b[0:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	h := hex.EncodeToString(b)
	return h[0:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
