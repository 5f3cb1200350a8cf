package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// keep stores a small record in the data directory, durably.
func (n *Node) keep(name string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = replaceFile(filepath.Join(n.DataDir, name), string(b), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", name, err)
	}
	return nil
}

// kept reads one back.
func (n *Node) kept(name string, v any) (found bool, err error) {
	path := filepath.Join(n.DataDir, name)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w: move it away if its content is not needed", path, err)
	}
	return true, nil
}

// forget removes it.
func (n *Node) forget(name string) error {
	err := os.Remove(filepath.Join(n.DataDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
