package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// noteFile is in a directory of this boot.
const noteFile = "watchdog.json"

// note is what a daemon leaves to the next one of the same boot. Times are those of Now. What it says may be
// older than the truth, never newer: the next daemon then feeds for a shorter time than it might.
type note struct {
	// Armed was written before the device was opened.
	Armed bool          `json:"armed"`
	Path  string        `json:"path"`
	Heard time.Duration `json:"heard_ns"` // when the last question was asked that a coordinator answered
	Fed   time.Duration `json:"fed_ns"`
	// Terms are those by which it is fed.
	Terms *terms `json:"terms,omitempty"`
	// Excuse is why it goes on without a coordinator, if one knows that.
	Excuse string `json:"excuse,omitempty"`
}

func readNote(dir string) (note, error) {
	b, err := os.ReadFile(filepath.Join(dir, noteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return note{}, nil
	}
	if err != nil {
		return note{}, fmt.Errorf("what the last daemon did with the watchdog: %w", err)
	}
	n, err := parseNote(b)
	if err != nil {
		return note{}, fmt.Errorf("what the last daemon did with the watchdog: %s: %w", filepath.Join(dir, noteFile), err)
	}
	return n, nil
}

func parseNote(b []byte) (note, error) {
	var n note
	if err := json.Unmarshal(b, &n); err != nil {
		return note{}, err
	}
	if n.Heard < 0 || n.Fed < 0 {
		return note{}, errors.New("a time before the host's boot")
	}
	if t := n.Terms; t != nil && (t.Timing.Timeout <= 0 || t.Timing.Interval <= 0 || t.Timing.Patience < 0) {
		return note{}, errors.New("it is armed without a time")
	}
	return n, nil
}

// write needs no sync: the note ends with the kernel, and what a crash of the daemon leaves is whole.
func (n note) write(dir string) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, noteFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("record the watchdog: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record the watchdog: %w", err)
	}
	return nil
}
