package membership

import (
	"bytes"
	"fmt"
	"io"
	"math"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// A node refutes that it is suspected or dead by an incarnation number that is higher than the accusation's. After the
// highest one memberlist goes on at 0, so that the refutation counts for nothing: one message would evict a node for
// good (hashicorp/memberlist#358). So an accusation with that number is refused, however it comes; no node gets
// there by itself.
const irrefutable = math.MaxUint32

// accusation is what memberlist v0.7.0 decodes suspicions and deaths into (its net.go). What is here has the same fields in
// the same order and is decoded by the same code, so that both see the same number.
type accusation struct {
	Incarnation uint32
	Node        string
	From        string
}

// refutable reads an accusation, without its type.
func refutable(b []byte) bool {
	var a accusation
	err := codec.NewDecoder(bytes.NewReader(b), &codec.MsgpackHandle{}).Decode(&a)
	return err == nil && a.Incarnation != irrefutable
}

// The exchange of everything that two nodes know, as memberlist v0.7.0 decodes it.
type (
	statesHeader struct {
		Nodes        int
		UserStateLen int
		Join         bool
	}
	nodeState struct {
		Name        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Incarnation uint32
		State       memberlist.NodeStateType
		Vsn         []uint8
	}
)

// maxStates is far more nodes than a cluster has: memberlist allocates for as many as it is told will come.
const maxStates = 1024

// checkStates reads an exchange to its end.
func checkStates(r io.Reader) error {
	decoder := codec.NewDecoder(r, &codec.MsgpackHandle{})
	var h statesHeader
	if err := decoder.Decode(&h); err != nil {
		return fmt.Errorf("gossip stream: %w", err)
	}
	if h.Nodes < 0 || h.Nodes > maxStates || h.UserStateLen != 0 {
		return errStream
	}
	for range h.Nodes {
		var s nodeState
		if err := decoder.Decode(&s); err != nil {
			return fmt.Errorf("gossip stream: %w", err)
		}
		if s.State != memberlist.StateAlive && s.Incarnation == irrefutable {
			return errStream
		}
	}
	return nil
}
