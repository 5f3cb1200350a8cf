package link

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// maxKeys bounds a ring: a rotation needs two keys, one that went wrong a few more.
const maxKeys = 8

// KeyRing is the cluster keys that a node accepts. The first is the active one, with
// which it dials and seals. A key is replaced without a pause in three steps, each
// on all nodes before the next: add the new key, make it the first, drop the old one.
type KeyRing []Key

// Fingerprints are the public names of the keys, in their order.
func (r KeyRing) Fingerprints() []string {
	names := make([]string, 0, len(r))
	for _, k := range r {
		names = append(names, k.Fingerprint())
	}
	return names
}

// validate finds what would make a ring unusable.
func (r KeyRing) validate() error {
	switch {
	case len(r) == 0:
		return errors.New("there is no cluster key; make one with GenerateKey")
	case len(r) > maxKeys:
		return fmt.Errorf("there are %d cluster keys; keep at most %d", len(r), maxKeys)
	}
	for i, k := range r {
		if k == (Key{}) {
			return errors.New("the cluster key is empty; make one with GenerateKey")
		}
		// Equal fingerprints of different keys are beyond chance.
		if slices.ContainsFunc(r[:i], func(other Key) bool { return other.id() == k.id() }) {
			return fmt.Errorf("cluster key %s is there twice", k.Fingerprint())
		}
	}
	return nil
}

// keyID names a key in public.
type keyID [8]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

// Fingerprint is a public name of the key: it tells keys apart and nothing about them.
func (k Key) Fingerprint() string { return k.id().String() }

// id has a derivation of its own, so that it says nothing about what else is derived.
func (k Key) id() (id keyID) {
	sum, err := hkdf.Key(sha256.New, k[:], []byte("hamgr/1 key"), "public fingerprint", len(id))
	if err != nil {
		panic("link: derive a fingerprint: " + err.Error()) // only for lengths beyond 8160 bytes
	}
	copy(id[:], sum)
	return id
}

// parseKeyID reads what String wrote, and nothing else.
func parseKeyID(text string) (id keyID, ok bool) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(id) {
		return keyID{}, false
	}
	copy(id[:], raw)
	return id, id.String() == text // lower case alone
}
