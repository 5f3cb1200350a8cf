package link

import (
	"net"
	"syscall"
)

// tryWriter is a packet socket that can be asked to send without waiting: EAGAIN where it would
// have to.
type tryWriter interface {
	tryWriteTo(b []byte, to net.Addr) error
}

// udpSocket is a real UDP socket.
type udpSocket struct {
	*net.UDPConn
	raw syscall.RawConn
}

var _ tryWriter = (*udpSocket)(nil)

func newUDPSocket(conn *net.UDPConn) (*udpSocket, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &udpSocket{conn, raw}, nil
}

// tryWriteTo implements tryWriter. The standard library's own WriteTo waits for as long as the
// socket is full.
func (s *udpSocket) tryWriteTo(b []byte, to net.Addr) error {
	address, err := sockaddr(to)
	if err != nil {
		return err
	}
	var sent error
	// Control, not Write: that waits for a WriteTo which waits for a full socket.
	err = s.raw.Control(func(fd uintptr) {
		sent = syscall.Sendto(int(fd), b, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, address)
	})
	if err != nil {
		return err
	}
	return sent
}

// sockaddr gives the kernel's form of a UDP address.
func sockaddr(to net.Addr) (syscall.Sockaddr, error) {
	udp, ok := to.(*net.UDPAddr)
	if !ok {
		return nil, syscall.EAFNOSUPPORT
	}
	a := udp.AddrPort()
	if ip := a.Addr().Unmap(); ip.Is4() {
		return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}, nil
	}
	v6 := &syscall.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" {
		nic, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, err
		}
		v6.ZoneId = uint32(nic.Index)
	}
	return v6, nil
}
