package link

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// keyPrefix begins the one line of a key file; the number tells later formats apart.
const keyPrefix = "hamgr-key-1 "

// maxKeyFile bounds what is read of a file that claims to hold a key.
const maxKeyFile = 4096

// Errors of key files that callers tell apart.
var (
	// ErrKeyFormat: the file does not hold one cluster key.
	ErrKeyFormat = errors.New("not a hamgr cluster key")
	// ErrKeyExposed: others than the owner can read the file.
	ErrKeyExposed = errors.New("key file is open to others")
)

// Key is the cluster key, the only secret between nodes. It prints as a placeholder
// in every way, so that it does not get into logs and error texts.
type Key [32]byte

const hiddenKey = "(cluster key)"

// Format keeps the key out of every verb of package fmt.
func (Key) Format(f fmt.State, _ rune) { io.WriteString(f, hiddenKey) }

// MarshalText keeps the key out of JSON and structured logs.
func (Key) MarshalText() ([]byte, error) { return []byte(hiddenKey), nil }

// GenerateKey makes a new random key.
func GenerateKey() (Key, error) {
	var k Key
	if _, err := rand.Read(k[:]); err != nil {
		return Key{}, fmt.Errorf("generate cluster key: %w", err)
	}
	return k, nil
}

// ReadKeyFile reads the key from path. It refuses a file that others than its owner
// can open, and every content but the one line that WriteKeyFile wrote.
func ReadKeyFile(path string) (Key, error) {
	// Not to wait for a writer, should it be a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Key{}, fmt.Errorf("read cluster key: %w", err)
	}
	defer f.Close()
	// The open file is judged, not the path: what is read is what was checked.
	info, err := f.Stat()
	if err != nil {
		return Key{}, fmt.Errorf("read cluster key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return Key{}, fmt.Errorf("read cluster key: %s: %w: it is no regular file", path, ErrKeyFormat)
	}
	owner := os.Geteuid()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(st.Uid)
	}
	if why, cure := exposed(info.Mode().Perm(), owner, os.Geteuid()); why != "" {
		return Key{}, fmt.Errorf("read cluster key: %s: %w: %s; cure: %s %s, and make a new key if it may have been read",
			path, ErrKeyExposed, why, cure, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return Key{}, fmt.Errorf("read cluster key: %w", err)
	}
	k, err := parseKey(data)
	if err != nil {
		return Key{}, fmt.Errorf("read cluster key: %s: %w; cure: copy the file unchanged from another node", path, err)
	}
	return k, nil
}

// exposed tells why others than root and this process's user can open a file, and the
// command that mends it; both are empty if nobody else can.
func exposed(mode fs.FileMode, owner, self int) (why, cure string) {
	switch {
	case mode&0o077 != 0:
		return fmt.Sprintf("its mode is %04o", mode), "chmod 600"
	case owner != 0 && owner != self:
		return fmt.Sprintf("it belongs to user %d", owner), fmt.Sprintf("chown %d", self)
	}
	return "", ""
}

// WriteKeyFile writes a new key file that only its owner can read. It never
// overwrites: an existing path is an error that matches fs.ErrExist. The path appears
// only when the file is whole and on disk.
func WriteKeyFile(path string, k Key) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write cluster key: %w", err)
		}
	}()
	if k == (Key{}) {
		return errors.New("the key is empty")
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".hamgr-key-*") // made with 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(keyPrefix + base64.StdEncoding.EncodeToString(k[:]) + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	// A hard link, unlike a rename, fails when the path exists.
	if err := os.Link(f.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists and is kept: another key would split the cluster; %w", path, fs.ErrExist)
		}
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// parseKey reads the one line of a key file. Its errors never quote the content.
func parseKey(data []byte) (Key, error) {
	line, _ := bytes.CutSuffix(data, []byte("\n"))
	line, _ = bytes.CutSuffix(line, []byte("\r"))
	text, ok := bytes.CutPrefix(line, []byte(keyPrefix))
	if !ok {
		return Key{}, fmt.Errorf("%w: it does not begin with %q", ErrKeyFormat, keyPrefix)
	}
	var k Key
	if len(text) != base64.StdEncoding.EncodedLen(len(k)) {
		return Key{}, fmt.Errorf("%w: wrong length", ErrKeyFormat)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(raw) != len(k) {
		return Key{}, fmt.Errorf("%w: not 32 bytes in base64", ErrKeyFormat)
	}
	copy(k[:], raw)
	if k == (Key{}) {
		return Key{}, fmt.Errorf("%w: all zero", ErrKeyFormat)
	}
	return k, nil
}

// derive makes a 32-byte secret for one purpose. The cluster's name is in the
// salt, so that two clusters that share a key by mistake do not understand each other.
func (k Key) derive(cluster, purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k[:], []byte("hamgr/1 cluster "+cluster), purpose, 32)
}

// packetCipher makes the AEAD for packets of one session in one direction. A key
// of its own for each (session, sender, receiver) lets the sequence number be the
// nonce, and makes a packet worthless to anyone but its receiver.
func packetCipher(k Key, cluster string, s sessionID, from, to string) (cipher.AEAD, error) {
	root, err := k.derive(cluster, "packets")
	if err != nil {
		return nil, fmt.Errorf("derive packet key: %w", err)
	}
	// Names hold no zero byte (checkName), so that the pair is unambiguous.
	key, err := hkdf.Key(sha256.New, root, s[:], from+"\x00"+to, 32)
	if err != nil {
		return nil, fmt.Errorf("derive packet key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive packet key: %w", err)
	}
	return cipher.NewGCM(block)
}
