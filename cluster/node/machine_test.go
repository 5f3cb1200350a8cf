package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hamgr/hamgr/cluster/state"
)

func TestReadMachine(t *testing.T) {
	for _, tt := range []struct {
		uuid, serial string
		want         state.Machine
	}{
		{"4C4C4544-0051-3510-8052-B4C04F4E3732\n", "QQ5RN72\n", state.Machine{UUID: "4c4c4544-0051-3510-8052-b4c04f4e3732", Serial: "QQ5RN72"}},
		{"00000000-0000-0000-0000-000000000000\n", "To be filled by O.E.M.\n", state.Machine{}},
		{"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "0000000000", state.Machine{}},
		{"03000200-0400-0500-0006-000700080009", "Default string", state.Machine{}},
		{"", "", state.Machine{}},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"product_uuid": tt.uuid, "product_serial": tt.serial} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := readMachine(dir); got != tt.want {
			t.Errorf("%q, %q: %+v", tt.uuid, tt.serial, got)
		}
	}
	if got := readMachine(filepath.Join(t.TempDir(), "none")); got != (state.Machine{}) {
		t.Errorf("without DMI: %+v", got)
	}
}
