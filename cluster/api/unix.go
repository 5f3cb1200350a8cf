package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// ErrInUse says that a living daemon already listens on a socket.
var ErrInUse = errors.New("another daemon is listening")

// ListenUnix listens on the operator's socket, which only the daemon's own user may open,
// and creates its folder. A socket that a dead daemon left behind is replaced; anything
// else in that place is an error, ErrInUse if it is a living daemon. Closing the listener
// removes the socket.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	// Linux gives the file the mode of the socket it is bound from, less the umask
	// (unix_bind in net/unix/af_unix.c), so that there is no moment at which others could
	// connect; a chmod afterwards would leave one.
	cfg := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = syscall.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmodErr)
	}}
	l, err := cfg.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("it exists and is no socket: %s", info.Mode())
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return ErrInUse
	case errors.Is(err, syscall.ECONNREFUSED): // nobody has it open any more
		return os.Remove(path)
	case errors.Is(err, syscall.EAGAIN): // its queue is full: somebody has
		return ErrInUse
	default:
		return err
	}
}

// DialUnix gives the dial function for a daemon of this host. Its errors tell the operator
// what to do.
func DialUnix(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		e := &Error{Code: ErrUnreachable, Message: fmt.Sprintf("no daemon answers at %s: %v", path, cause(err)), cause: err}
		switch {
		case errors.Is(err, fs.ErrPermission):
			e.Hint = "run it as root"
		default:
			e.Hint = "start the daemon with `systemctl start hamgr`; if it listens elsewhere, name its socket with --socket"
		}
		return nil, e
	}
}

// cause is the system's own word, without the address that the message names already.
func cause(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}
