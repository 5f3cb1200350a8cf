package address

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What sock_diag(7) and linux/inet_diag.h say of requests for TCP sockets.
const (
	diagRequestLength = 56
	diagAnswerLength  = 72
	diagID            = 8 // struct inet_diag_sockid in a request
	diagAnswerID      = 4
	diagIDLength      = 48
	diagBytecode      = 1 // INET_DIAG_REQ_BYTECODE
	diagSourceCond    = 7 // INET_DIAG_BC_S_COND
	diagHostCondition = 8 // struct inet_diag_hostcond without its address
	// All TCP states but LISTEN and CLOSE: a listener is no connection, and serves again when the address is back.
	diagStates = 0xfff &^ (1<<7 | 1<<10)
)

// errCannotEnd says that the kernel ends no connections of others.
var errCannotEnd = errors.New("the kernel cannot end them")

// connection is struct inet_diag_sockid with its family; it names one socket.
type connection struct {
	family uint8
	id     [diagIDLength]byte
}

// connections lists the TCP connections from an address of this host. The kernel picks them.
func (k kernel) connections(ip netip.Addr) ([]connection, error) {
	families := []uint8{unix.AF_INET6}
	if ip.Is4() {
		families = []uint8{unix.AF_INET, unix.AF_INET6} // sockets of IPv6 may speak IPv4 too
	}
	var found []connection
	for _, family := range families {
		req := nl.NewNetlinkRequest(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.AddRawData(diagRequest(family, diagStates, [diagIDLength]byte{}))
		req.AddRawData(nl.NewRtAttr(diagBytecode, sourceCondition(ip)).Serialize())
		err := k.request(unix.NETLINK_INET_DIAG, req, func(data []byte) error {
			if c, ok := parseConnection(data); ok {
				found = append(found, c)
			}
			return nil
		})
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil, fmt.Errorf("%w: it does not list them: %w", errCannotEnd, err)
		}
		// A torn list is as good as any: who comes while it is read is found by the next one.
		if err != nil && !errors.Is(err, errTorn) {
			return nil, err
		}
	}
	return found, nil
}

// diagRequest is struct inet_diag_req_v2.
func diagRequest(family uint8, states uint32, id [diagIDLength]byte) []byte {
	b := make([]byte, diagRequestLength)
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], states)
	copy(b[diagID:], id[:])
	return b
}

// sourceCondition is a program of one instruction that accepts sockets whose source is the address, at any port.
func sourceCondition(ip netip.Addr) []byte {
	family, raw := byte(unix.AF_INET6), ip.AsSlice()
	if ip.Is4() {
		family = unix.AF_INET
	}
	size := 4 + diagHostCondition + len(raw)
	b := []byte{diagSourceCond, byte(size)}
	b = binary.NativeEndian.AppendUint16(b, uint16(size+4)) // where no leads: behind the end
	b = append(b, family, byte(ip.BitLen()), 0, 0, 0xff, 0xff, 0xff, 0xff)
	return append(b, raw...)
}

// parseConnection reads struct inet_diag_msg.
func parseConnection(b []byte) (c connection, ok bool) {
	if len(b) < diagAnswerLength {
		return connection{}, false
	}
	c.family = b[0]
	copy(c.id[:], b[diagAnswerID:])
	return c, true
}

// endConnections ends the TCP connections from an address of this host, until none is left.
func (k kernel) endConnections(ctx context.Context, ip netip.Addr) error {
	for range rounds {
		found, err := k.connections(ip)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, c := range found {
			if err := ctx.Err(); err != nil {
				return err
			}
			req := nl.NewNetlinkRequest(unix.SOCK_DESTROY, unix.NLM_F_ACK)
			req.AddRawData(diagRequest(c.family, diagStates, c.id))
			err := k.request(unix.NETLINK_INET_DIAG, req, nil)
			if errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("%w: %w", errCannotEnd, err)
			}
			if err != nil && !errors.Is(err, unix.ENOENT) { // ended by itself
				return err
			}
		}
	}
	return nil
}
