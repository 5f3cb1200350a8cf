package link

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestKeyFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.key")
	want, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteKeyFile(path, want); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	got, err := firstKey(path)
	if err != nil || got != want {
		t.Errorf("another key came back: %v", err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

func TestKeyFileIsNeverOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.key")
	if err := WriteKeyFile(path, testKey(1)); err != nil {
		t.Fatal(err)
	}
	if err := WriteKeyFile(path, testKey(2)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("overwriting: %v", err)
	}
	if got, err := firstKey(path); err != nil || got != testKey(1) {
		t.Errorf("the first key is gone: %v", err)
	}
	if err := WriteKeyFile(path+"2", Key{}); err == nil {
		t.Error("an empty key was written")
	}
}

func TestReadKeyFileRefuses(t *testing.T) {
	secret := testKey(1)
	text := base64.StdEncoding.EncodeToString(secret[:])
	line := keyPrefix + text + "\n"
	for name, c := range map[string]struct {
		content string
		mode    fs.FileMode
		want    error
		says    string
	}{
		"group can read":     {line, 0o640, ErrKeyExposed, "chmod 600"},
		"all can read":       {line, 0o604, ErrKeyExposed, "chmod 600"},
		"all can write":      {line, 0o602, ErrKeyExposed, "chmod 600"},
		"empty":              {"", 0o600, ErrKeyFormat, "begin"},
		"no prefix":          {text + "\n", 0o600, ErrKeyFormat, "begin"},
		"later version":      {"hamgr-key-2 " + text + "\n", 0o600, ErrKeyFormat, "begin"},
		"too short":          {keyPrefix + text[:40] + "\n", 0o600, ErrKeyFormat, "length"},
		"too long":           {keyPrefix + text + "AAAA\n", 0o600, ErrKeyFormat, "length"},
		"one key twice":      {line + "# again\n" + line, 0o600, ErrKeyFormat, "twice"},
		"not base64":         {keyPrefix + strings.Repeat("?", 44) + "\n", 0o600, ErrKeyFormat, "base64"},
		"spare bits set":     {keyPrefix + text[:42] + "J=\n", 0o600, ErrKeyFormat, "base64"},
		"33 bytes":           {keyPrefix + text[:43] + "A\n", 0o600, ErrKeyFormat, "base64"},
		"inner line feed":    {keyPrefix + text[:20] + "\n" + text[21:] + "\n", 0o600, ErrKeyFormat, "length"},
		"lost its line feed": {keyPrefix + text + line, 0o600, ErrKeyFormat, "length"},
		"comments alone":     {"# nothing\n\n", 0o600, ErrKeyFormat, "begin"},
		"too many":           {manyKeys(maxKeys + 1), 0o600, ErrKeyFormat, "at most 8"},
		"too big":            {line + strings.Repeat("#", maxKeyFile), 0o600, ErrKeyFormat, "longer"},
		"all zero":           {keyPrefix + base64.StdEncoding.EncodeToString(make([]byte, 32)), 0o600, ErrKeyFormat, "zero"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := firstKey(path)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v; want %v with %q and the path", err, c.want, c.says)
			}
			if err != nil && strings.Contains(err.Error(), text[4:12]) {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s\n", testKey(byte(i+1)).line())
	}
	return b.String()
}

func TestReadKeyFileOddFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := firstKey(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := firstKey(dir); !errors.Is(err, ErrKeyFormat) {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := firstKey(pipe); !errors.Is(err, ErrKeyFormat) { // and does not hang
		t.Errorf("a pipe: %v", err)
	}
}

func TestExposed(t *testing.T) {
	for _, c := range []struct {
		mode        fs.FileMode
		owner, self int
		cure        string
	}{
		{0o600, 0, 0, ""},
		{0o400, 0, 0, ""},
		{0o600, 1000, 1000, ""},
		{0o600, 0, 1000, ""}, // root's: root can read everything anyway
		{0o600, 1000, 0, "chown 0"},
		{0o600, 1000, 1001, "chown 1001"},
		{0o640, 0, 0, "chmod 600"},
		{0o601, 0, 0, "chmod 600"},
	} {
		if why, cure := exposed(c.mode, c.owner, c.self); cure != c.cure || (why == "") != (cure == "") {
			t.Errorf("mode %04o of user %d for user %d: %q, cure %q; want cure %q", c.mode, c.owner, c.self, why, cure, c.cure)
		}
	}
}

// TestKeyDoesNotPrint looks for the bytes of the key in every form they could take.
func TestKeyDoesNotPrint(t *testing.T) {
	k := testKey(0x41) // "ABC..."
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U"} {
		fmt.Fprintf(&out, verb+" "+verb+" "+verb+" "+verb+"\n", k, &k, Config{Keys: KeyRing{k}}, KeyRing{k})
	}
	if err := json.NewEncoder(&out).Encode(map[string]any{"key": k, "config": struct{ K *Key }{&k}}); err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", k)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", k)
	for _, form := range []string{"65 66 67", "65,66,67", "ABC", "414243", "101 102 103", "0x41", "1000001", "U+0041", "QUJD"} {
		if bytes.Contains(out.Bytes(), []byte(form)) {
			t.Errorf("the key shows as %q in:\n%s", form, out.String())
		}
	}
}
