package consensus

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Propose commits a command and returns what the FSM made of it, and its index. It must be
// called on the coordinator. ErrNotCoordinator means that nothing happened;
// ErrUnknownOutcome, also wrapped when ctx ends, that the command may still be committed.
func (l *Log) Propose(ctx context.Context, command []byte) (result any, index uint64, err error) {
	return l.apply(ctx, raft.Log{Data: command})
}

// Barrier commits an empty entry. When it returns, this node was the leader after the
// call began, and everything committed before is applied here.
func (l *Log) Barrier(ctx context.Context) (index uint64, err error) {
	_, index, err = l.apply(ctx, raft.Log{Extensions: []byte{internalProbe}})
	return index, err
}

// applied is how a commit ended.
type applied struct {
	result any
	index  uint64
	err    error
}

func (l *Log) apply(ctx context.Context, entry raft.Log) (any, uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := l.failed(); err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotCoordinator, err)
	}
	if l.ctx.Err() != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotCoordinator, ErrStopped)
	}
	if l.raft.State() != raft.Leader {
		return nil, 0, ErrNotCoordinator
	}
	done := make(chan applied, 1) // buffered: nobody may be there any more
	go func() { done <- l.commit(entry) }()
	select {
	case a := <-done:
		return a.result, a.index, a.err
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// commit blocks until raft answers, which it does when the entry is applied, leadership is
// lost, or the library ends. Its timeout bounds the queueing only.
func (l *Log) commit(entry raft.Log) applied {
	l.proposals.Add(1)
	defer l.proposals.Add(-1)
	term := l.raft.CurrentTerm()
	future := l.raft.ApplyLog(entry, l.timing.Patience)
	if err := future.Error(); err != nil {
		return applied{err: outcome(err)}
	}
	l.committed(term, len(entry.Extensions) == 0)
	return applied{result: future.Response(), index: future.Index()}
}

// outcome sorts raft's errors into "nothing happened" and "unknown". What is not known to
// be harmless is unknown: an error of the store may come after the write.
func outcome(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotCoordinator, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}

// WaitApplied returns when this node's FSM has applied the entry at index, which is one
// that Propose or Barrier returned, here or on another node.
func (l *Log) WaitApplied(ctx context.Context, index uint64) error {
	for {
		reached, changed := l.fsm.reached(index)
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for entry %d: %w", index, ctx.Err())
		case <-l.ctx.Done():
			return ErrStopped
		}
	}
}

// Transfer hands leadership to the voter whose log is most complete. On error this node
// may still lead.
func (l *Log) Transfer(ctx context.Context) error {
	if l.raft.State() != raft.Leader {
		return ErrNotCoordinator
	}
	if err := await(ctx, l.raft.LeadershipTransfer()); err != nil {
		return fmt.Errorf("hand over leadership: %w", err)
	}
	return nil
}

// await waits for a future of raft, or for ctx.
func await(ctx context.Context, f raft.Future) error {
	return beside(ctx, f.Error, nil)
}
