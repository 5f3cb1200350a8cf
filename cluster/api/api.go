// Package api is how a daemon is asked: the wire types, the server and the client,
// HTTP with JSON bodies.
//
// It has two faces. Operators reach the daemon of their own host over a unix socket
// that only root may open; nodes reach each other over connections that carry the
// verified name of the peer. The package decides nothing: a server turns requests into
// calls of a Backend or a NodeBackend, a client does the reverse, and an error keeps its
// meaning on the way (see Code). It is not the protocol of consensus or membership, which
// have connections of their own.
package api

import "context"

// Schema is the version of every JSON object that operators and their tools read.
// Fields may be added under the same version; none is renamed, removed or given
// another meaning.
const Schema = 1

// Backend is what the daemon answers to its operator. Its methods are called
// concurrently and obey their context at once. An error that wraps a Code, or is an
// *Error, keeps its code on the wire; context.DeadlineExceeded becomes ErrTimeout, and any
// other error ErrInternal.
type Backend interface {
	// Status tells what this node knows, on every node and without quorum too; what
	// may be old is said in Status.Note, not by an error.
	Status(ctx context.Context) (Status, error)

	// FenceStatus reads the power of every plug of node afresh from its devices. A
	// device that does not answer is a line of the answer, not an error. ErrNotFound if
	// the configuration knows no such node.
	FenceStatus(ctx context.Context, node string) (FenceStatus, error)

	// Fence has the coordinator, wherever it is, carry out one fencing operation, and
	// returns when its end is known: proven, or ErrFailed. When ctx ends first it returns
	// ErrUnknownOutcome if the operation may have been committed: the operation goes on by
	// itself. ErrUnsafe, ErrNoQuorum, ErrNoCoordinator and ErrNotFound mean that nothing
	// was done. observe is never nil, must not be called after the return, and may be
	// called from any goroutine; it does not block.
	Fence(ctx context.Context, req FenceRequest, observe func(FenceEvent)) (FenceResult, error)

	// FenceTest has every node that may have to use a fence device of node read it, and
	// changes nothing. An empty node means all.
	FenceTest(ctx context.Context, node string) (FenceTest, error)

	// FenceHistory gives the operations against node that are remembered. An empty node means all.
	FenceHistory(ctx context.Context, node string) (FenceHistory, error)

	// Change has the coordinator commit what is to become of a node, a group, or the cluster, and tells what comes
	// of it; a dry run only tells. ErrUnsafe also means that what is wished for cannot be at present; else its
	// errors are those of Fence.
	Change(ctx context.Context, req ChangeRequest) (ChangeResult, error)

	// Configuration gives what the cluster goes by, as this node knows it.
	Configuration(ctx context.Context) (Configuration, error)

	// Apply has the coordinator judge another configuration against what runs, and commit it if nothing speaks
	// against it. What it refuses is in the result, not an error; else its errors are those of Change.
	Apply(ctx context.Context, req ApplyRequest) (ApplyResult, error)

	// ForceQuorum has the answering node go on as the only voter. ErrUnsafe where anything speaks for a majority
	// that still exists.
	ForceQuorum(ctx context.Context, req ForceRequest) (ForceResult, error)

	// Keys tells with which cluster keys every node works.
	Keys(ctx context.Context) (Keys, error)

	// ReloadKeys has the answering node read its key file now, and tells the same. That the file cannot be used is in
	// the answer, not an error.
	ReloadKeys(ctx context.Context) (Keys, error)
}

// NodeBackend is what the daemon answers to the other nodes of the cluster. peer is the
// name that the connection proved, never what a request says of itself.
type NodeBackend interface {
	// Call is one request of the nodes' own protocol: the node package's words, in the
	// node package's encoding. ErrNotFound if it knows no such verb.
	Call(ctx context.Context, peer, verb string, body []byte) ([]byte, error)

	// FenceForwarded is Backend.Fence for a request that peer's operator made and peer
	// sent on. It is never sent on again: a node that does not coordinate answers
	// ErrNoCoordinator.
	FenceForwarded(ctx context.Context, peer string, req FenceRequest, observe func(FenceEvent)) (FenceResult, error)
}
