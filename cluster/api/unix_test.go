package api

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestListenUnix(t *testing.T) {
	old := syscall.Umask(0) // the mode must not depend on it
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "a", "b", "hamgr.sock")
	l, err := ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info.Mode(), err)
	}
	if _, err := ListenUnix(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("a second daemon: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the closed socket is still there: %v", err)
	}
}

func TestListenUnixReplacesOnlyAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hamgr.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	l.Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(t.Context(), path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("over a file: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "precious" {
		t.Errorf("the file is now %q", data)
	}
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(t.Context(), link); err == nil {
		t.Error("over a symbolic link: no error")
	}
}

func TestDialUnixTellsWhatToDo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hamgr.sock")
	_, err := client(t, DialUnix(path)).Status(t.Context())
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	e := AsError(err)
	if want := "no daemon answers at " + path + ": no such file or directory"; e.Message != want {
		t.Errorf("message %q, want %q", e.Message, want)
	}
	if !strings.Contains(e.Hint, "systemctl start hamgr") {
		t.Errorf("hint %q", e.Hint)
	}
}
