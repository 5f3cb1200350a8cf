package consensus

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// LastIndex is that of the last entry that this node's log has, committed or not.
func (l *Log) LastIndex() uint64 { return l.raft.LastIndex() }

// Replay feeds a state machine with all that this node's log has, committed or not: what Alone would begin with. A log that
// starts applies nothing before there is a coordinator, except for its snapshot.
func (l *Log) Replay(fsm FSM) error {
	snapshots, entries := guardedSnapshots{l.guard, l.stores.snapshots}, guardedLog{l.guard, l.stores.log, l.stores.snapshots}
	if err := replay(newMachine(fsm), snapshots, entries); err != nil {
		return fmt.Errorf("replay the log: %w", err)
	}
	return nil
}

func replay(m *machine, snapshots raft.SnapshotStore, entries raft.LogStore) error {
	list, err := snapshots.List()
	if err != nil {
		return err
	}
	var covered uint64
	if len(list) > 0 {
		covered = list[0].Index
		_, r, err := snapshots.Open(list[0].ID)
		if err != nil {
			return err
		}
		err = m.Restore(r)
		r.Close() // in memory
		if err != nil {
			return err
		}
	}
	last, err := entries.LastIndex()
	if err != nil {
		return err
	}
	for i := covered + 1; i <= last; i++ {
		var e raft.Log
		if err := entries.GetLog(i, &e); err != nil {
			return err // perhaps a snapshot took its place meanwhile
		}
		if e.Type == raft.LogCommand {
			m.Apply(&e)
		}
	}
	return nil
}
