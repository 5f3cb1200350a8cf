package node

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// TestBlame: a disk that hangs says nothing of the configuration, whatever else is said with it.
func TestBlame(t *testing.T) {
	hung := fmt.Errorf("start the log of alpha: %w", errors.Join(consensus.ErrStoreHung, errors.New("read an entry")))
	if MayBlameText(hung) || MayBlameText(consensus.ErrStoreFull) || !MayBlameText(errors.New("listen: address in use")) {
		t.Error("a disk's failure, or not the port, is blamed on the configuration")
	}
}

// TestRefusedTextIsTriedAgain: what could not be used may be usable later: a file was missing, or a port taken.
func TestRefusedTextIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{Setup: Setup{Self: "alpha", Log: slog.New(slog.DiscardHandler)}, configs: newConfigs()}
		if n.configs.wait("a text") != 0 || n.configs.why("a text") != "" {
			t.Error("refused before it was tried")
		}
		n.Refuse("a text", errors.New("the port is taken"))
		if w := n.configs.wait("a text"); w != startAgain || n.configs.wait("another text") != 0 {
			t.Errorf("it waits for %s", w)
		}
		time.Sleep(startAgain)
		if n.configs.wait("a text") != 0 || n.configs.why("a text") == "" {
			t.Error("not tried again, or no longer said why it is not used")
		}
	})
}
