package redfishsim

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// silence is an address where the kernel drops each SYN, because the queue of a listener that
// nobody serves is full (listen(2), backlog). No packet filter and no root is needed.
type silence struct {
	listener net.Listener
	filling  []net.Conn
}

func beSilent(address string) (*silence, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("redfishsim: %w", err)
	}
	s := &silence{listener: l}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), 0) })
		err = errors.Join(err, failed)
	}
	for err == nil {
		c, dialErr := net.DialTimeout("tcp", l.Addr().String(), 50*time.Millisecond)
		if dialErr != nil {
			return s, nil // full
		}
		if s.filling = append(s.filling, c); len(s.filling) > 8 {
			err = errors.New("the queue does not fill")
		}
	}
	s.end()
	return nil, fmt.Errorf("redfishsim: silence: %w", err)
}

func (s *silence) end() {
	if s == nil {
		return
	}
	s.listener.Close()
	for _, c := range s.filling {
		c.Close()
	}
}
