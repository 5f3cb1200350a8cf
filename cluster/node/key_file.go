package node

import (
	"errors"
	"io/fs"

	"github.com/hamgr/hamgr/cluster/api"
	"github.com/hamgr/hamgr/cluster/link"
)

// NewKeyFile makes the cluster key, the one secret of a cluster. It never overwrites a file:
// then the error is fs.ErrExist.
func NewKeyFile(path string) error {
	key, err := link.GenerateKey()
	if err != nil {
		return err
	}
	return link.WriteKeyFile(path, key)
}

// KeyFile is the file of a cluster's key on this host, for its operator. Its errors tell in codes of the API whose fault
// they are.
type KeyFile string

// Keys are the fingerprints of the keys in the file; the first is the one that is used.
func (f KeyFile) Keys() ([]string, error) {
	ring, err := link.ReadKeyRing(string(f))
	return ring.Fingerprints(), keyError(err)
}

// Add appends a fresh key, and gives its fingerprint.
func (f KeyFile) Add() (key string, err error) {
	key, err = link.AddKey(string(f))
	return key, keyError(err)
}

// Use makes a key the first.
func (f KeyFile) Use(key string) error { return keyError(link.UseKey(string(f), key)) }

// Drop removes a key that is not the first.
func (f KeyFile) Drop(key string) error { return keyError(link.DropKey(string(f), key)) }

func keyError(err error) error {
	coded := func(code api.Code, hint string) error {
		return &api.Error{Code: code, Message: err.Error(), Hint: hint}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, link.ErrKeyNotFound):
		return coded(api.ErrNotFound, "hamgr key list shows the keys")
	case errors.Is(err, link.ErrKeyInUse):
		return coded(api.ErrUnsafe, "use another one first: hamgr key use")
	case errors.Is(err, link.ErrKeyBusy):
		return coded(api.ErrUnsafe, "wait until the other command is done")
	case errors.Is(err, fs.ErrNotExist):
		return coded(api.ErrNotFound, "hamgr init makes the key of a new cluster; a node that joins gets a copy of the file")
	}
	return coded(api.ErrFailed, "")
}
