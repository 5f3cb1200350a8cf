package membership

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// gossipPort completes the synthetic addresses. Nobody listens on it.
const gossipPort = 7846

// addressBook maps the configured nodes to the addresses that they advertise, and back.
//
// The addresses are synthetic: a fixed unique local IPv6 address made from the name.
// memberlist refuses the new address of a node that it still believes alive ("conflicting
// address"), so a node must advertise the same one for ever, whatever links it has.
// Nothing is ever sent to these addresses; link is given the name.
type addressBook struct {
	ips   map[string]net.IP
	names map[string]string // "[ip]:port" -> node
}

func newAddressBook(nodes []string) (addressBook, error) {
	b := addressBook{ips: make(map[string]net.IP), names: make(map[string]string)}
	for _, node := range nodes {
		if node == "" || strings.ContainsAny(node, "/ ") {
			return addressBook{}, fmt.Errorf("%w: %q is not a node name", ErrConfig, node)
		}
		ip := syntheticIP(node)
		address := b.join(ip)
		if other, taken := b.names[address]; taken {
			return addressBook{}, fmt.Errorf("%w: nodes %q and %q have the same address", ErrConfig, other, node)
		}
		b.ips[node], b.names[address] = ip, node
	}
	return b, nil
}

// syntheticIP is fd followed by 120 bits of the name's digest (RFC 4193, section 3.1).
func syntheticIP(node string) net.IP {
	digest := sha256.Sum256([]byte("hamgr gossip address " + node))
	return append(net.IP{0xfd}, digest[:net.IPv6len-1]...)
}

func (b addressBook) join(ip net.IP) string {
	return net.JoinHostPort(ip.String(), strconv.Itoa(gossipPort))
}

// address returns the "[ip]:port" of a node.
func (b addressBook) address(node string) string { return b.join(b.ips[node]) }

// resolve finds the node that memberlist means: it gives the name, except where it
// answers to the source of a packet.
func (b addressBook) resolve(name, address string) (string, error) {
	if name == "" {
		name = b.names[address]
	}
	if _, known := b.ips[name]; !known {
		return "", fmt.Errorf("no configured node %q at %s", name, address)
	}
	return name, nil
}

// nodeAddr is the net.Addr of a packet: the sender's synthetic address.
type nodeAddr string

func (nodeAddr) Network() string  { return "hamgr-gossip" }
func (a nodeAddr) String() string { return string(a) }
