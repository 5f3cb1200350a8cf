package lvm

import (
	"os"
	"testing"

	"github.com/hamgr/hamgr/resources/internal/guest"
)

// The tests with LVM run in kernels of their own: see package guest.

const diskMB = 64

func newMachine(t *testing.T, binary string) guest.Machine {
	t.Helper()
	return guest.New(t, binary, diskMB, diskMB)
}

// parts run in a kernel. See guest_test.go.
var parts = map[string]func(*testing.T){}

// TestGuest is what the first process runs.
func TestGuest(t *testing.T) { guest.RunPart(t, parts) }

func TestKernels(t *testing.T) {
	for path, pkg := range map[string]string{"/sbin/lvm": "lvm2", "/sbin/dmsetup": "dmsetup"} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%s is missing: install the Debian package %s", path, pkg)
		}
	}
	binary := guest.Build(t)
	// A node alone: what the kind does with a group, step by step.
	t.Run("OneNode", func(t *testing.T) {
		t.Parallel()
		newMachine(t, binary).Run(t, "OneNode")
	})
	// One kernel with two configurations of LVM: two nodes that compete for one group.
	t.Run("TwoNodes", func(t *testing.T) {
		t.Parallel()
		newMachine(t, binary).Run(t, "TwoNodes")
	})
	// Kernels after one another on the same disks, none of which shuts down.
	t.Run("PowerCuts", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, binary)
		m.Run(t, "AlphaStarts")
		m.Run(t, "BetaTakesOver")
		m.Run(t, "AlphaReturns")
	})
}
