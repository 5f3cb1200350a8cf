package guard

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// maxToken is the highest that is a byte offset with one behind it (see locks).
const maxToken = 1<<63 - 2

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// formatRecord is the whole content of a record's file: readable, and checked.
func formatRecord(name string, token uint64) []byte {
	body := fmt.Sprintf("hamgr-token/1 %q %d", name, token)
	return fmt.Appendf(nil, "%s %08x\n", body, crc32.Checksum([]byte(body), castagnoli))
}

// parseRecord accepts exactly what formatRecord writes.
func parseRecord(b []byte) (name string, token uint64, err error) {
	var sum uint32
	n, _ := fmt.Sscanf(string(b), "hamgr-token/1 %q %d %08x\n", &name, &token, &sum)
	if n != 3 || token == 0 || token > maxToken || string(formatRecord(name, token)) != string(b) {
		return "", 0, ErrDamaged
	}
	return name, token, nil
}

// readRecord returns 0 where no token was ever recorded.
func readRecord(path, name string) (uint64, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read token record of %q: %w", name, err)
	}
	found, token, err := parseRecord(b)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if found != name {
		return 0, fmt.Errorf("%s: %w: it belongs to %q, not to %q", path, ErrDamaged, found, name)
	}
	return token, nil
}

// writeRecord replaces the record; when it returns nil the new one is on disk. Killed
// at any point it leaves the old or the new one. The caller holds the record's lock.
func writeRecord(path, name string, token uint64) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666) // the umask decides who may write
	if err != nil {
		return err
	}
	_, err = f.Write(formatRecord(name, token))
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

// syncRecord makes sure that the record that can be read is on disk, content and name.
func syncRecord(path string) error {
	if err := syncPath(path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
