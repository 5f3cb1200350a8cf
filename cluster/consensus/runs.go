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

// run is one Start under an identity. The number grows, and is stored with a random name of this
// Start before anything is said in the run. Starts are the names of the last runs, of this one
// the last: a copy of the folder that starts as often as the folder itself reaches the same number,
// but under other names.
type run struct {
	Number uint64   `json:"run"`
	Starts []string `json:"starts,omitempty"`
}

// maxStarts bounds the names that are kept. A copy that starts more often than this while nobody
// hears it is not recognised.
const maxStarts = 64

// begun is what others keep of a run.
type begun struct {
	Number uint64 `json:"number"`
	Start  string `json:"start"`
}

func (r run) begun() (b begun) {
	if n := len(r.Starts); n > 0 {
		b = begun{r.Number, r.Starts[n-1]}
	}
	return b
}

// follows tells whether a run that others heard of is this one, or one before it. If not, this
// one is of an older copy of the folder.
func (r run) follows(heard begun) bool {
	switch back := r.Number - heard.Number; {
	case heard.Number == 0: // nobody heard of any
		return true
	case heard.Number > r.Number:
		return false
	case back >= uint64(len(r.Starts)): // too long ago to tell
		return true
	default:
		return r.Starts[uint64(len(r.Starts))-1-back] == heard.Start
	}
}

// beginRun counts this Start in the identity's record.
func beginRun(s records, id identity) (run, error) {
	var stored struct {
		identity
		run
	}
	if _, err := loadJSON(s, identityRecord, &stored); err != nil {
		return run{}, err
	}
	stored.identity = id
	stored.Number++
	stored.Starts = append(stored.Starts, randomID()[:16])
	stored.Starts = stored.Starts[max(0, len(stored.Starts)-maxStarts):]
	b, err := json.Marshal(stored)
	if err != nil {
		return run{}, err
	}
	return stored.run, s.save(identityRecord, b)
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
	begun
}

func loadHeard(r records) (*heard, error) {
	h := &heard{runs: make(map[string][]heardRun)}
	if _, err := loadJSON(r, heardRecord, &h.runs); err != nil {
		return nil, err
	}
	return h, nil
}

// hearRun notes a run, durably, if it follows what was heard of that identity, and returns what
// was. What contradicts it is not noted, so that it goes on to be contradicted.
func (l *Log) hearRun(of identity, r run) (begun, error) {
	h := l.heard
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.runs[of.Node]
	known := slices.Clone(before)
	at := slices.IndexFunc(known, func(k heardRun) bool { return k.ID == of.ID })
	if at < 0 {
		known = append(known, heardRun{ID: of.ID})
		known = known[max(0, len(known)-maxHeard):]
		at = len(known) - 1
	}
	was := known[at].begun
	if next := r.begun(); next.Start == "" || len(next.Start) > 64 || next.Number == was.Number || !r.follows(was) {
		return was, nil
	}
	known[at].begun = r.begun()
	h.runs[of.Node] = known
	if err := l.saveRecord(heardRecord, h.runs); err != nil {
		h.runs[of.Node] = before
		return was, fmt.Errorf("note a run of %s: %w", of, err)
	}
	return was, nil
}
