package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// kernel asks and changes the network configuration of the kernel, by netlink. Its sockets say which
// network namespace is meant: the one in which they were made.
type kernel struct {
	socket func(domain, typ, proto int) (int, error)
}

const (
	netlinkTimeout = 5 // seconds; the kernel answers at once, or not before the request was sent
	netlinkBuffer  = 64 << 10
)

// errOnlyAnswer ends a request that has one answer: no other message says that it has ended.
var errOnlyAnswer = errors.New("the only answer")

var buffers = sync.Pool{New: func() any { b := make([]byte, netlinkBuffer); return &b }}

// request sends one message and gives each answer to a function, which must not keep it.
func (k kernel) request(protocol int, req *nl.NetlinkRequest, each func(data []byte) error) error {
	fd, err := k.socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: netlinkTimeout}); err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	if err := unix.Sendto(fd, req.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("netlink request: %w", err)
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	for {
		n, from, err := unix.Recvfrom(fd, *buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink answer: %w", err)
		}
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue // not from the kernel
		}
		done, err := readAnswers((*buffer)[:n], req.Seq, each)
		if done || err != nil {
			return err
		}
	}
}

// errTorn says that a list changed while the kernel was telling it.
var errTorn = errors.New("the list changed while it was read")

// readAnswers goes through one datagram of answers, and tells whether they are complete.
func readAnswers(b []byte, seq uint32, each func(data []byte) error) (done bool, err error) {
	torn := false
	for m := range messages(b) {
		if m.seq != seq {
			continue
		}
		torn = torn || m.flags&unix.NLM_F_DUMP_INTR != 0
		switch m.typ {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			if len(m.data) >= 4 {
				if errno := int32(binary.NativeEndian.Uint32(m.data)); errno != 0 {
					return true, unix.Errno(-errno)
				}
			}
			if torn {
				return true, errTorn
			}
			return true, nil
		}
		if each != nil {
			if err := each(m.data); err != nil {
				return true, err
			}
		}
	}
	if torn {
		return true, errTorn
	}
	return false, nil
}

type message struct {
	typ   uint16
	flags uint16
	seq   uint32
	data  []byte
}

// messages gives the netlink messages of a datagram, up to the first that is damaged.
func messages(b []byte) func(yield func(message) bool) {
	return func(yield func(message) bool) {
		for len(b) >= unix.SizeofNlMsghdr {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.SizeofNlMsghdr || size > len(b) {
				return
			}
			m := message{
				typ:   binary.NativeEndian.Uint16(b[4:]),
				flags: binary.NativeEndian.Uint16(b[6:]),
				seq:   binary.NativeEndian.Uint32(b[8:]),
				data:  b[unix.SizeofNlMsghdr:size],
			}
			if !yield(m) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

// attributes gives type and value of each attribute, up to the first that is damaged.
func attributes(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofRtAttr || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED, b[unix.SizeofRtAttr:size]) {
				return
			}
			b = b[min(align(size), len(b)):]
		}
	}
}

func align(n int) int { return (n + 3) &^ 3 }
