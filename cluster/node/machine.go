package node

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hamgr/hamgr/cluster/state"
)

// dmiFolder is where the kernel shows the SMBIOS tables' strings. Only root may read the UUID and
// the serial number.
const dmiFolder = "/sys/class/dmi/id"

// readMachine gives what the host says of its hardware, so that the others can tell whether a
// fence device powers this machine. What cannot be read, or is a firmware's filler, is not known.
func readMachine(folder string) state.Machine {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || len(b) > 256 {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	m := state.Machine{UUID: strings.ToLower(read("product_uuid")), Serial: read("product_serial")}
	if filler(m.UUID) {
		m.UUID = ""
	}
	if filler(m.Serial) {
		m.Serial = ""
	}
	return m
}

// filler reports whether a value is what boards without one bear.
func filler(s string) bool {
	bare := strings.Trim(strings.ToLower(s), "0f-. x")
	switch bare {
	case "", "none", "not specified", "default string", "to be filled by o.e.m", "system serial number", "123456789", "n/a", "03000200-0400-0500-0006-000700080009", "3000200-0400-0500-0006-000700080009":
		return true
	}
	return false
}
