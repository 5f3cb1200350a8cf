package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// records keeps small named values, durably when save returns. load returns nil where
// there is none.
type records interface {
	load(name string) ([]byte, error)
	save(name string, value []byte) error
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealRecord puts a checksum in front, as a line that a human can read over.
func sealRecord(value []byte) []byte {
	return append(fmt.Appendf(nil, "hamgr1 %08x\n", crc32.Checksum(value, castagnoli)), value...)
}

func openRecord(b []byte) ([]byte, error) {
	_, value, found := bytes.Cut(b, []byte("\n"))
	if !found || !bytes.Equal(b, sealRecord(value)) {
		return nil, fmt.Errorf("%w: checksum mismatch", ErrDamaged)
	}
	return value, nil
}

// dirRecords keeps each value in a file of its name. The former value stays beside it, as NAME.tmp: the next one is written
// over it, so that on a full disk, too, a value can be replaced by one that is about as long.
type dirRecords string

func (d dirRecords) load(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(string(d), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", name, err)
	}
	value, err := openRecord(b)
	if err != nil {
		return nil, cure(string(d), fmt.Errorf("read the %s, %s: %w", name, filepath.Join(string(d), name), err))
	}
	return value, nil
}

func (d dirRecords) save(name string, value []byte) error {
	if err := exchangeFile(filepath.Join(string(d), name), sealRecord(value)); err != nil {
		return refusal(string(d), fmt.Errorf("write the %s: %w", name, err))
	}
	return nil
}

// exchangeFile does what writeFile does, in the room of the file's former content, and leaves the last one there.
func exchangeFile(path string, content []byte) error {
	tmp := path + ".tmp"
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := writeFile(path, content); err != nil {
			return err
		}
		return writeOver(tmp, content) // the room for the next one
	}
	if err := writeOver(tmp, content); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // this file system cannot
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// writeOver gives a file a content in the blocks that it has.
func writeOver(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Truncate(int64(len(content)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// writeFile replaces a file so that after a power cut either the old or the new content
// is there, and the new one once it returned.
func writeFile(path string, content []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// memoryRecords is the stand-in for tests.
type memoryRecords struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (m *memoryRecords) copyTo(c *memoryRecords) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.values = maps.Clone(m.values)
}

func (m *memoryRecords) load(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.values[name]), nil
}

func (m *memoryRecords) save(name string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[name] = bytes.Clone(value)
	return nil
}
