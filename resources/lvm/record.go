package lvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// record is what the last start has activated. It outlives the daemon; it need not outlive the kernel, and so is not synced.
type record struct {
	UUID    string   `json:"uuid"` // of the group; empty: nothing was started
	Volumes []volume `json:"volumes"`
}

const recordFile = "active.json"

// started is the record of the last start. A damaged one counts as none: then what is active is not known to be all.
func (v *volumeGroup) started() (record, error) {
	if v.rec != nil {
		return *v.rec, nil
	}
	b, err := os.ReadFile(filepath.Join(v.env.Dir, recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read what was activated: %w", err)
	}
	r := parseRecord(b)
	v.rec = &r
	return r, nil
}

func parseRecord(b []byte) record {
	var r record
	if json.Unmarshal(b, &r) != nil || !isUUID(r.UUID) {
		return record{}
	}
	for _, w := range r.Volumes {
		if !isUUID(w.UUID) {
			return record{}
		}
	}
	return r
}

func (v *volumeGroup) note(r record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(v.env.Dir, recordFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("record what is active: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record what is active: %w", err)
	}
	v.rec = &r
	return nil
}

func (v *volumeGroup) forget() error {
	v.rec, v.seen = nil, nil
	if err := os.Remove(filepath.Join(v.env.Dir, recordFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget what was active: %w", err)
	}
	return nil
}
