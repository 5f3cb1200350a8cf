package link

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A key file holds one key a line, each as keyPrefix and 32 bytes in base64. Empty lines
// and those that begin with # are comments.

// keyPrefix begins each key; the number tells later formats apart.
const keyPrefix = "hamgr-key-1 "

// maxKeyFile bounds what is read of a file that claims to hold keys.
const maxKeyFile = 16 << 10

// Errors of key files that callers tell apart.
var (
	// ErrKeyFormat: the file does not hold cluster keys alone.
	ErrKeyFormat = errors.New("not a hamgr cluster key")
	// ErrKeyExposed: others than the owner can read the file.
	ErrKeyExposed = errors.New("key file is open to others")
	// ErrKeyNotFound: the file has no key of that fingerprint.
	ErrKeyNotFound = errors.New("no such cluster key")
	// ErrKeyInUse: the key is the first of its file, and so the one that is used.
	ErrKeyInUse = errors.New("cluster key is in use")
	// ErrKeyBusy: another process is changing the file.
	ErrKeyBusy = errors.New("key file is being changed by another process")
)

// ReadKeyRing reads the keys of path. It refuses a file that others than its owner can
// open, and one with any line that is neither a key nor a comment.
func ReadKeyRing(path string) (KeyRing, error) {
	_, ring, _, err := readKeyLines(path)
	if err != nil {
		return nil, fmt.Errorf("read cluster key: %w", err)
	}
	return ring, nil
}

// readKeyLines reads the lines of a key file and the keys among them.
func readKeyLines(path string) (lines [][]byte, ring KeyRing, info fs.FileInfo, err error) {
	// Not to wait for a writer, should it be a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	defer f.Close()
	// The open file is judged, not the path: what is read is what was checked.
	if info, err = f.Stat(); err != nil {
		return nil, nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, nil, fmt.Errorf("%s: %w: it is no regular file", path, ErrKeyFormat)
	}
	owner, _ := ownerOf(info)
	if why, cure := exposed(info.Mode().Perm(), owner, os.Geteuid()); why != "" {
		return nil, nil, nil, fmt.Errorf("%s: %w: %s; cure: %s %s, and make a new key if it may have been read",
			path, ErrKeyExposed, why, cure, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, nil, nil, err
	}
	lines, ring, err = parseKeyFile(data)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w; cure: copy the file unchanged from another node", path, err)
	}
	return lines, ring, info, nil
}

// ownerOf is the user and group of a file.
func ownerOf(info fs.FileInfo) (user, group int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return os.Geteuid(), os.Getegid()
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

// parseKeyFile splits a key file into lines and reads its keys. Its errors never quote
// the content.
func parseKeyFile(data []byte) (lines [][]byte, ring KeyRing, err error) {
	if len(data) > maxKeyFile {
		return nil, nil, fmt.Errorf("%w: longer than %d bytes", ErrKeyFormat, maxKeyFile)
	}
	for line := range bytes.Lines(data) {
		line, _ = bytes.CutSuffix(line, []byte("\n"))
		line, _ = bytes.CutSuffix(line, []byte("\r"))
		lines = append(lines, line)
		if comment(line) {
			continue
		}
		k, err := parseKey(line)
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", len(lines), err)
		}
		ring = append(ring, k)
	}
	if len(ring) == 0 {
		return nil, nil, fmt.Errorf("%w: no line begins with %q", ErrKeyFormat, keyPrefix)
	}
	if err := ring.validate(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKeyFormat, err)
	}
	return lines, ring, nil
}

// comment tells whether a line of a key file holds no key.
func comment(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

// parseKey reads one line of a key file.
func parseKey(line []byte) (Key, error) {
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

// line is the key as it stands in a file.
func (k Key) line() []byte {
	return []byte(keyPrefix + base64.StdEncoding.EncodeToString(k[:]))
}

// WriteKeyFile writes a new key file that only its owner can read. It never
// overwrites: an existing path is an error that matches fs.ErrExist. The path appears
// only when the file is whole and on disk.
func WriteKeyFile(path string, k Key) error {
	if k == (Key{}) {
		return errors.New("write cluster key: the key is empty")
	}
	err := place(path, [][]byte{k.line()}, nil, func(whole string) error {
		// A hard link, unlike a rename, fails when the path exists.
		err := os.Link(whole, path)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists and is kept: another key would split the cluster; %w", path, fs.ErrExist)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write cluster key: %w", err)
	}
	return nil
}

// place writes lines to a file beside path, and lets put give it its name when it is
// whole and on disk. It belongs to whom like belongs to, unless that is nil.
func place(path string, lines [][]byte, like fs.FileInfo, put func(whole string) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".hamgr-key-*") // made with 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if like != nil {
		err = f.Chown(ownerOf(like))
	}
	_, wrote := f.Write(append(bytes.Join(lines, []byte("\n")), '\n'))
	if err := errors.Join(err, wrote, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := put(f.Name()); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// AddKey appends a fresh key to the file, as the last one: it is accepted from then on,
// and not used. The other nodes need the same file. The fingerprint is the new key's.
func AddKey(path string) (fingerprint string, err error) {
	k, err := GenerateKey()
	if err != nil {
		return "", err
	}
	err = editKeys(path, func(lines [][]byte, _ KeyRing) ([][]byte, error) {
		return append(lines, k.line()), nil
	})
	if err != nil {
		return "", fmt.Errorf("add a cluster key: %w", err)
	}
	return k.Fingerprint(), nil
}

// UseKey makes the key of that fingerprint the first, and so the one that is used. Every
// other node must accept it already.
func UseKey(path, fingerprint string) error {
	err := editKeys(path, func(lines [][]byte, ring KeyRing) ([][]byte, error) {
		k, at, err := findKey(lines, ring, fingerprint)
		if err != nil {
			return nil, err
		}
		first := slices.IndexFunc(lines, func(line []byte) bool { return !comment(line) })
		return slices.Insert(slices.Delete(lines, at, at+1), first, k.line()), nil
	})
	if err != nil {
		return fmt.Errorf("use cluster key %s: %w", fingerprint, err)
	}
	return nil
}

// DropKey removes the key of that fingerprint. The first one is in use and is refused, and
// with it the last one left: use another one before.
func DropKey(path, fingerprint string) error {
	err := editKeys(path, func(lines [][]byte, ring KeyRing) ([][]byte, error) {
		k, at, err := findKey(lines, ring, fingerprint)
		switch {
		case err != nil:
			return nil, err
		case k == ring[0]:
			return nil, ErrKeyInUse
		}
		return slices.Delete(lines, at, at+1), nil
	})
	if err != nil {
		return fmt.Errorf("drop cluster key %s: %w", fingerprint, err)
	}
	return nil
}

// findKey finds a key by its fingerprint, and its line.
func findKey(lines [][]byte, ring KeyRing, fingerprint string) (k Key, at int, err error) {
	i := slices.Index(ring.Fingerprints(), fingerprint)
	if i < 0 {
		return Key{}, 0, ErrKeyNotFound
	}
	at = slices.IndexFunc(lines, func(line []byte) bool { return bytes.Equal(line, ring[i].line()) })
	return ring[i], at, nil
}

// editKeys replaces a key file by a changed one, in one step. Who reads meanwhile sees the
// old or the new one; who edits at the same time is refused.
func editKeys(path string, edit func(lines [][]byte, ring KeyRing) ([][]byte, error)) error {
	path, err := filepath.EvalSymlinks(path) // the file is replaced, not the link to it
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // and with it the lock
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrKeyBusy, err)
	}
	lines, ring, info, err := readKeyLines(path)
	if err != nil {
		return err
	}
	if lines, err = edit(lines, ring); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, _, err := parseKeyFile(bytes.Join(lines, []byte("\n"))); err != nil {
		return fmt.Errorf("%s would not be read again: %w", path, err)
	}
	return place(path, lines, info, func(whole string) error { return os.Rename(whole, path) })
}
