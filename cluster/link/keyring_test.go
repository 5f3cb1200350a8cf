package link

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// keyFile writes a key file with the given lines.
func keyFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.key")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func wantRing(t *testing.T, path string, want ...Key) {
	t.Helper()
	ring, err := ReadKeyRing(path)
	if err != nil || !slices.Equal(ring, want) {
		t.Fatalf("the file holds %v, %v; want %v", ring.Fingerprints(), err, KeyRing(want).Fingerprints())
	}
	if first, err := firstKey(path); err != nil || first != want[0] {
		t.Fatalf("the active key is %s, %v; want %s", first.Fingerprint(), err, want[0].Fingerprint())
	}
}

// firstKey reads the active key of path.
func firstKey(path string) (Key, error) {
	ring, err := ReadKeyRing(path)
	if err != nil {
		return Key{}, err
	}
	return ring[0], nil
}

// TestKeyFileRotation goes through a rotation in the file: no step loses a comment, or
// leaves anything but a file that only its owner can read.
func TestKeyFileRotation(t *testing.T) {
	old := testKey(1)
	comments := []string{"# cluster web", "", "  # made in spring"}
	path := keyFile(t, comments[0], string(old.line()), comments[1], comments[2])
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	check := func(keys ...Key) {
		t.Helper()
		wantRing(t, path, keys...)
		lines := readLines(t, path)
		for _, c := range comments {
			if !slices.Contains(lines, c) {
				t.Fatalf("comment %q is gone: %q", c, lines)
			}
		}
		if len(lines) != len(comments)+len(keys) || lines[0] != comments[0] {
			t.Fatalf("lines: %q", lines)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Fatalf("the link became %v, %v", info.Mode(), err)
		}
		if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
			t.Fatalf("files were left behind: %v", left)
		}
	}
	name, err := AddKey(link)
	if err != nil {
		t.Fatal(err)
	}
	ring, _ := ReadKeyRing(path)
	fresh := ring[1]
	if fresh.Fingerprint() != name {
		t.Fatalf("the new key is called %s, and is %s", name, fresh.Fingerprint())
	}
	check(old, fresh)
	for range 2 { // the second time changes nothing
		if err := UseKey(link, name); err != nil {
			t.Fatal(err)
		}
		check(fresh, old)
	}
	if err := DropKey(path, name); !errors.Is(err, ErrKeyInUse) {
		t.Errorf("dropped the key in use: %v", err)
	}
	if err := DropKey(link, old.Fingerprint()); err != nil {
		t.Fatal(err)
	}
	check(fresh)
	if err := DropKey(path, name); !errors.Is(err, ErrKeyInUse) {
		t.Errorf("dropped the last key: %v", err)
	}
	for _, err := range []error{UseKey(path, old.Fingerprint()), DropKey(path, old.Fingerprint()), UseKey(path, "")} {
		if !errors.Is(err, ErrKeyNotFound) {
			t.Errorf("a key that is not there: %v", err)
		}
	}
	check(fresh)
}

// TestKeyFileEditsRefused: what cannot be done leaves the file as it was.
func TestKeyFileEditsRefused(t *testing.T) {
	full := keyFile(t, strings.Split(strings.TrimSuffix(manyKeys(maxKeys), "\n"), "\n")...)
	bad := keyFile(t, string(testKey(1).line()), "nonsense")
	open := keyFile(t, string(testKey(1).line()))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	long := keyFile(t, string(testKey(1).line()), "#"+strings.Repeat("x", maxKeyFile-100))
	for path, want := range map[string]error{full: ErrKeyFormat, bad: ErrKeyFormat, open: ErrKeyExposed, long: ErrKeyFormat, open + "x": os.ErrNotExist} {
		before, _ := os.ReadFile(path)
		if _, err := AddKey(path); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%v: the file changed", want)
		}
	}
	dir, err := os.Open(filepath.Dir(full))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := UseKey(full, testKey(2).Fingerprint()); !errors.Is(err, ErrKeyBusy) {
		t.Errorf("edited while another does: %v", err)
	}
}

// TestFingerprints: a fingerprint is the same everywhere, and no part of the key or of
// what is derived from it for other purposes.
func TestFingerprints(t *testing.T) {
	k := testKey(1)
	id := k.id()
	if k.id() != id || testKey(2).id() == id || len(k.Fingerprint()) != 16 {
		t.Errorf("fingerprint %s", k.Fingerprint())
	}
	secrets := [][]byte{k[:]}
	for _, purpose := range []string{"tls ca", "packets", "public fingerprint"} {
		s, err := k.derive("test", purpose)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, s)
	}
	if prk, err := hkdf.Extract(sha256.New, k[:], []byte("hamgr/1 key")); err == nil {
		secrets = append(secrets, prk)
	}
	for _, s := range secrets {
		for i := range len(s) - 4 {
			if bytes.Contains(id[:], s[i:i+4]) {
				t.Errorf("the fingerprint shows a part of a secret")
			}
		}
	}
}

func FuzzParseKeyFile(f *testing.F) {
	line := string(testKey(1).line())
	for _, seed := range []string{"", line, line + "\n", line + "\r\n", line + "\n\n# x\n", "#\n" + line + "\n" + string(testKey(2).line()), keyPrefix, line[:30], line + "\n" + line} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, ring, err := parseKeyFile(b)
		if err != nil {
			if ring != nil || !errors.Is(err, ErrKeyFormat) {
				t.Fatalf("%v came with keys or without ErrKeyFormat", err)
			}
			return
		}
		if ring.validate() != nil {
			t.Fatalf("a bad ring was read: %v", ring.Fingerprints())
		}
		// Every line is a comment or exactly the next key, and the edited file is read again.
		left := ring
		for _, l := range lines {
			if comment(l) {
				continue
			}
			if len(left) == 0 || string(l) != string(left[0].line()) {
				t.Fatalf("%q was read as a key", l)
			}
			left = left[1:]
		}
		_, again, err := parseKeyFile(append(bytes.Join(lines, []byte("\n")), '\n'))
		if len(left) != 0 || (err == nil) != (len(b) < maxKeyFile) && err != nil || err == nil && !slices.Equal(again, ring) {
			t.Fatalf("written again: %v", err)
		}
	})
}

// FuzzOfferedKey: what a stranger offers in its ClientHello names a key only in the one form.
func FuzzOfferedKey(f *testing.F) {
	name := keyProtocol + testKey(1).Fingerprint()
	for _, seed := range [][2]string{{"", ""}, {string(Raft), name}, {name, name}, {strings.ToUpper(name), keyProtocol}, {name + "00", name[:len(name)-1]}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		id, ok := offeredKey([]string{a, b})
		if ok != (a == keyProtocol+id.String() || !strings.HasPrefix(a, keyProtocol) && b == keyProtocol+id.String()) {
			t.Fatalf("%q, %q name key %s: %v", a, b, id, ok)
		}
	})
}
