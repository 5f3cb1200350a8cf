package command

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/hamgr/hamgr/resources/internal/notes"
	"github.com/hamgr/hamgr/resources/internal/process"
)

// record is what outlives the daemon. It is written before anything is started, and once more when that is done; it is removed
// when all is certainly gone.
type record struct {
	Boot  string `json:"boot"`
	Token uint64 `json:"token"`
	Unit  string `json:"unit,omitempty"` // of systemd, if it runs there
	// Done: the start has come to its end.
	Done bool `json:"done,omitempty"`
	// Ending: a stop has begun. What still runs may have been told to end, and is no success of a later start.
	Ending bool `json:"ending,omitempty"`
	// PID and Start name a process as process.Process does: of run, or of the command that starts.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Left names one that the command has left behind, if any.
	Left      int    `json:"left,omitempty"`
	LeftStart uint64 `json:"left_start,omitempty"`
}

const recordFile = "process.json"

// errNoRecord says that nothing was started since all was last seen gone.
var errNoRecord = errors.New("nothing was started")

func (r record) process() process.Process {
	return process.Process{PID: r.PID, Start: r.Start}
}

func (r record) left() process.Process {
	return process.Process{PID: r.Left, Start: r.LeftStart}
}

// halfway says which action has begun and was not finished; empty if none.
func (r record) halfway() string {
	switch {
	case r.Ending:
		return "its stop was not finished"
	case !r.Done:
		return "its start was not finished"
	}
	return ""
}

// readRecord gives an empty record where the file is damaged (which only a crash of
// the kernel can do): something was started, and only its marks can tell what.
func readRecord(dir string) (record, error) {
	b, err := notes.Read(dir, recordFile)
	if err != nil {
		return record{}, err
	}
	if b == nil {
		return record{}, errNoRecord
	}
	return parseRecord(b), nil
}

func parseRecord(b []byte) record {
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if d.Decode(&r) != nil || wrongPID(r.PID) || wrongPID(r.Left) {
		return record{}
	}
	return r
}

func wrongPID(pid int) bool { return pid < 0 || pid == 1 || pid > 1<<22 }

func writeRecord(dir string, r record) error { return notes.Write(dir, recordFile, r) }

func removeRecord(dir string) error { return notes.Remove(dir, recordFile) }
