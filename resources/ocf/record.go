package ocf

import (
	"context"
	"encoding/json"
	"os"

	"github.com/hamgr/hamgr/resources/internal/notes"
)

// The records in the resource's private directory. One that is damaged is taken for one that says the worst.
const (
	// startedFile is there from before the first start until a stop that was proven.
	startedFile = "started.json"
	// runningFile is there while the agent runs.
	runningFile = "running.json"
)

type record struct {
	Boot  string `json:"boot"`
	Token uint64 `json:"token"`
	Mark  string `json:"mark,omitempty"` // of the run, in running.json
}

// recall reads a record of this boot; nil if there is none.
func (o *ocf) recall(file string) (*record, error) {
	b, err := notes.Read(o.env.Dir, file)
	if err != nil || b == nil {
		return nil, err
	}
	var r record
	if json.Unmarshal(b, &r) != nil || r.Boot == "" {
		return &record{}, nil
	}
	if r.Boot != o.env.Boot {
		return nil, nil
	}
	return &r, nil
}

// begun is the record of what hamgr has begun to start here in this boot, and not certainly stopped since; nil if
// nothing.
func (o *ocf) begun() (*record, error) { return o.recall(startedFile) }

// note writes a record.
func (o *ocf) note(file, mark string) error {
	return notes.Write(o.env.Dir, file, record{Boot: o.env.Boot, Token: o.env.Token, Mark: mark})
}

func (o *ocf) forget(file string) error { return notes.Remove(o.env.Dir, file) }

// lock keeps two actions on the same resource apart. Closing the file unlocks.
func lock(ctx context.Context, dir string) (*os.File, error) { return notes.Lock(ctx, dir) }
