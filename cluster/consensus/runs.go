package consensus

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrRolledBack means that the data folder is an older copy of itself: others have heard this
// node's voter speak from a later one. What it promised and acknowledged in between it no
// longer knows, so it must not vote.
var ErrRolledBack = errors.New("the data folder was restored from an older copy; move it away and start again: the node returns under a new identity")

// run is one Start under an identity. The number is stored before anything is said in the
// run, and grows. Two copies of one folder may reach the same number; Start tells them apart.
type run struct {
	Number uint64 `json:"number"`
	Start  string `json:"start"` // random
}

// before tells whether a run that others heard of shows that r comes from an older copy.
func (r run) before(heard run) bool {
	return heard.Number > r.Number || heard.Number == r.Number && heard.Start != "" && heard.Start != r.Start
}

// beginRun counts this Start in the identity's record.
func beginRun(s records, id identity) (run, error) {
	var stored struct {
		identity
		Run uint64 `json:"run"`
	}
	if _, err := loadJSON(s, identityRecord, &stored); err != nil {
		return run{}, err
	}
	stored.identity = id
	stored.Run++
	b, err := json.Marshal(stored)
	if err != nil {
		return run{}, err
	}
	return run{Number: stored.Run, Start: randomID()}, s.save(identityRecord, b)
}

const (
	heardRecord = "heard"
	// maxHeard bounds the identities kept of one node. A new one comes with each wipe.
	maxHeard = 8
)

// heard is what a node keeps of the runs of others: the newest of each identity.
type heard struct {
	mu   sync.Mutex            // held while a run is compared and stored
	runs map[string][]heardRun // by node; the newest identities last
}

type heardRun struct {
	ID string `json:"id"`
	run
}

func loadHeard(r records) (*heard, error) {
	h := &heard{runs: make(map[string][]heardRun)}
	if _, err := loadJSON(r, heardRecord, &h.runs); err != nil {
		return nil, err
	}
	return h, nil
}

// hearRun notes a run, durably, if it is newer than what is known of that identity, and
// returns what is known.
func (l *Log) hearRun(of identity, r run) (run, error) {
	if r.Number == 0 {
		return run{}, nil // a program that does not count
	}
	h := l.heard
	h.mu.Lock()
	defer h.mu.Unlock()
	known := slices.Clone(h.runs[of.Node])
	at := slices.IndexFunc(known, func(k heardRun) bool { return k.ID == of.ID })
	switch {
	case at >= 0 && known[at].Number >= r.Number:
		return known[at].run, nil
	case at >= 0:
		known[at].run = r
	default:
		known = append(known, heardRun{of.ID, r})
		known = known[max(0, len(known)-maxHeard):]
	}
	before := h.runs[of.Node]
	h.runs[of.Node] = known
	if err := l.saveRecord(heardRecord, h.runs); err != nil {
		h.runs[of.Node] = before
		return run{}, fmt.Errorf("note a run of %s: %w", of, err)
	}
	return r, nil
}
