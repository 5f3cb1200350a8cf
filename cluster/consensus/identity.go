package consensus

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// identity is a voter: a node's name and a random ID that lives and dies with its log. A
// node whose data is gone is another voter: had it kept the name alone, it could vote
// twice in one term, or be counted for entries that it no longer has.
type identity struct {
	Node string `json:"node"`
	ID   string `json:"id"`
}

// absent is the ID of a configured voter that took no part in forming the cluster. It
// counts for the quorum and can never vote: no node has it.
const absent = "absent"

// String is raft's server ID, and its server address too: it is unique, so that a
// connection is always for one identity and not merely for one name.
func (i identity) String() string { return i.Node + "/" + i.ID }

func parseIdentity(s string) identity {
	node, id, _ := strings.Cut(s, "/")
	return identity{Node: node, ID: id}
}

func validName(s string) bool { return s != "" && len(s) <= 128 && !strings.ContainsAny(s, "/ \t\n") }

func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

const (
	identityRecord = "identity"
	promiseRecord  = "promise"
)

// loadIdentity returns the identity beside the log, or makes one where there is neither
// log nor identity. One without the other is damage: a log that lost its identity, or an
// identity that lost its log, must not vote.
func loadIdentity(s *Stores, self string) (identity, error) {
	var id identity
	b, err := s.records.load(identityRecord)
	if err != nil {
		return id, err
	}
	used, err := s.used()
	if err != nil {
		return id, err
	}
	if b == nil {
		if used {
			return id, cure(s.dir, fmt.Errorf("%w: there is a log, but no identity beside it", ErrDamaged))
		}
		id = identity{Node: self, ID: randomID()}
		b, _ = json.Marshal(id) // two strings
		if err := s.records.save(identityRecord, b); err != nil {
			return id, err
		}
		return id, nil
	}
	if err := json.Unmarshal(b, &id); err != nil || id.ID == "" {
		return id, cure(s.dir, fmt.Errorf("%w: the identity cannot be read", ErrDamaged))
	}
	if id.Node != self {
		return id, fmt.Errorf("%w: the data folder belongs to node %q, this is %q", ErrConfig, id.Node, self)
	}
	return id, nil
}

// promise is a vote for one identity to form the cluster. It is stored before it is given,
// and never given to another.
type promise struct {
	To identity `json:"to"`
}

func loadPromise(r records) (*promise, error) {
	b, err := r.load(promiseRecord)
	if err != nil || b == nil {
		return nil, err
	}
	var p promise
	if err := json.Unmarshal(b, &p); err != nil || p.To.Node == "" || p.To.ID == "" {
		return nil, fmt.Errorf("%w: the promise cannot be read", ErrDamaged)
	}
	return &p, nil
}
