package node

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hamgr/hamgr/cluster/consensus"
)

// seenFile, in the run directory of this boot, says how far the log was that a daemon of this boot had: a log that has
// less was replaced by an older copy, and must not vote.
const seenFile = "seen.json"

// noteSeen keeps it up to date until ctx ends.
func (n *Node) noteSeen(ctx context.Context) {
	var last consensus.Had
	for sleep(ctx, n.Config.Cluster.DetectionTime) {
		s := n.replicated.Status()
		now := consensus.Had{ID: s.ID, Applied: s.Applied}
		if now == last || s.Role == consensus.RoleFailed {
			continue
		}
		b, err := json.Marshal(now)
		if err == nil {
			err = noteInBoot(filepath.Join(n.RunDir, seenFile), b)
		}
		if err != nil {
			n.Log.Warn("how far the log is is not noted", "node", n.Self, "err", err)
			continue
		}
		last = now
	}
}

// seen reads it; nothing where this boot had no log yet. What cannot be read says nothing: it is not what a vote hangs on
// alone (see package consensus).
func (n *Node) seen() consensus.Had {
	var had consensus.Had
	b, err := os.ReadFile(filepath.Join(n.RunDir, seenFile))
	if err == nil {
		err = json.Unmarshal(b, &had)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Log.Warn("how far the log was is not known", "node", n.Self, "err", err)
	}
	return had
}
