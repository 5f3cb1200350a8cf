package address

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// discovery is how the hosts of one network find out who has an address: ARP, or IPv6's neighbour discovery.
type discovery interface {
	etherType() uint16
	// filter passes the frames that could speak of the address; the kernel runs it, so that no other wakes us.
	filter(ip netip.Addr) []unix.SockFilter
	// question asks whether anybody has the address, without claiming it.
	question(from link, ip netip.Addr) []byte
	// announcement tells all neighbours that the address is at this interface.
	announcement(from link, ip netip.Addr) [][]byte
	// read tells what an Ethernet frame says of the address; false if nothing.
	read(frame []byte, ip netip.Addr) (claim, bool)
}

// claim is what another host said of an address.
type claim struct {
	mac net.HardwareAddr
	// asking: it does not have the address yet, but is about to take it.
	asking bool
}

const (
	headerLength = 14   // destination, source, EtherType
	frameLength  = 2048 // what is longer is of no interest and is cut off
)

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// frame makes an Ethernet frame.
func frame(to, from net.HardwareAddr, etherType uint16, payload []byte) []byte {
	b := make([]byte, 0, headerLength+len(payload))
	b = append(b, to[:6]...)
	b = append(b, from[:6]...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	return append(b, payload...)
}

// unframe gives source and payload of an Ethernet frame of one type.
func unframe(b []byte, etherType uint16) (from net.HardwareAddr, payload []byte, ok bool) {
	if len(b) < headerLength || binary.BigEndian.Uint16(b[12:]) != etherType {
		return nil, nil, false
	}
	return net.HardwareAddr(b[6:12]), b[headerLength:], true
}

// isHost reports whether a MAC can be that of one interface.
func isHost(mac net.HardwareAddr) bool {
	return mac[0]&1 == 0 && !(mac[0] == 0 && mac[1] == 0 && mac[2] == 0 && mac[3] == 0 && mac[4] == 0 && mac[5] == 0)
}

// wire is a packet socket (packet(7)) on one interface, for the frames that speak of one address.
type wire struct {
	file  *os.File
	group int // socket that is a member of the address's solicited-node group; -1 with IPv4
}

func (a *address) openWire(ctx context.Context, l link) (*wire, error) {
	return beside(ctx, func() (*wire, error) { return a.makeWire(l) }, func(w *wire, err error, taken bool) {
		if !taken && err == nil {
			w.Close()
		}
	})
}

func (a *address) makeWire(l link) (*wire, error) {
	fd, err := a.kernel.socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket on %s: %w", l.name, err)
	}
	w := &wire{group: -1}
	// Nothing comes before the socket is bound, so nothing passes by the filter.
	program := a.discovery.filter(a.ip)
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(a.discovery.etherType()), Ifindex: l.index})
	}
	if err == nil && a.ip.Is6() {
		w.group, err = a.joinGroup(l)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket on %s: %w", l.name, err)
	}
	w.file = os.NewFile(uintptr(fd), "packet")
	return w, nil
}

// joinGroup makes the host listen to the solicited-node group of the address, and tells switches so, before it has
// the address (RFC 4862 section 5.4.2).
func (a *address) joinGroup(l link) (int, error) {
	fd, err := a.kernel.socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP,
		&unix.IPv6Mreq{Multiaddr: solicitedNode(a.ip).As16(), Interface: uint32(l.index)})
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listen to the group of %s: %w", a.ip, err)
	}
	return fd, nil
}

// Close closes the wire. To leave a group the kernel takes the lock of its network configuration, and may hang on
// it; nobody waits for that.
func (w *wire) Close() {
	w.file.Close()
	if w.group >= 0 {
		go unix.Close(w.group)
	}
}

func (w *wire) send(frames ...[]byte) error {
	for _, f := range frames {
		if _, err := w.file.Write(f); err != nil {
			return err
		}
	}
	return nil
}

// receive waits for a frame until an instant, the zero time being for ever. No frame is os.ErrDeadlineExceeded; one that
// came in time is found even if this process was held up until after it.
func (w *wire) receive(ctx context.Context, buffer []byte, until time.Time) ([]byte, error) {
	for {
		if err := w.file.SetReadDeadline(until); err != nil {
			return nil, err
		}
		if ctx.Err() != nil { // looked at after the deadline is set: interrupt sets its own after the context has ended
			return nil, ctx.Err()
		}
		n, err := w.file.Read(buffer)
		switch {
		case errors.Is(err, unix.ENETDOWN): // told once when the link goes down; the socket lives on
			continue
		case errors.Is(err, os.ErrDeadlineExceeded):
			n, err = w.waiting(buffer)
		}
		return buffer[:n], err
	}
}

// waiting reads a frame that is there already.
func (w *wire) waiting(buffer []byte) (n int, err error) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if controlErr := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT) }); controlErr != nil {
		return 0, controlErr
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENETDOWN) {
		err = os.ErrDeadlineExceeded
	}
	return max(n, 0), err
}

// interrupt ends the receive that is under way when the context ends. The function it returns calls that off.
func (w *wire) interrupt(ctx context.Context) func() bool {
	return context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
}

func bigEndian(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}

// Shorthands for classic BPF (the kernel's Documentation/networking/filter.rst).
func load(size uint16, offset int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_ABS | size, K: uint32(offset)}
}

func jumpIf(k uint32, then, otherwise int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(then), Jf: uint8(otherwise), K: k}
}

func take(n uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: n} }
