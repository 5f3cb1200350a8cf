package address

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// neighbours is the neighbour discovery of IPv6 (RFC 4861), used as RFC 4862 section 5.4 says.
type neighbours struct{}

const (
	ipv6Length = 40
	// Where the fields are, from the start of the IPv6 header (RFC 8200) and of the ICMPv6 message.
	ipv6Next    = 6
	ipv6Hops    = 7
	ipv6Source  = 8
	ipv6Target  = 24
	ndTarget    = 8
	ndOptions   = 24
	ndOverride  = 0x20
	ndRouter    = 0x80
	ndSolicited = 0x40
	// Options that name a link-layer address (RFC 4861 section 4.6.1).
	ndSourceMAC = 1
	ndTargetMAC = 2
	// Nobody outside the link can have sent what arrives with it (RFC 4861 section 7.1).
	ndHops = 255

	icmpSolicitation  = 135
	icmpAdvertisement = 136
)

var allNodes = netip.MustParseAddr("ff02::1")

func (neighbours) etherType() uint16 { return unix.ETH_P_IPV6 }

// solicitedNode gives the group to which questions about an address go (RFC 4291 section 2.7.1).
func solicitedNode(ip netip.Addr) netip.Addr {
	b, of := netip.MustParseAddr("ff02::1:ff00:0").As16(), ip.As16()
	copy(b[13:], of[13:])
	return netip.AddrFrom16(b)
}

// groupMAC gives the Ethernet address of a group (RFC 2464 section 7).
func groupMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

// filter passes solicitations and advertisements whose target, or whose source, is the address.
func (neighbours) filter(ip netip.Addr) []unix.SockFilter {
	const ip6, icmp = headerLength, headerLength + ipv6Length
	b := ip.As16()
	word := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	program := []unix.SockFilter{
		load(unix.BPF_B, ip6+ipv6Next),
		jumpIf(unix.IPPROTO_ICMPV6, 0, 20),
		load(unix.BPF_B, icmp),
		jumpIf(icmpSolicitation, 1, 0),
		jumpIf(icmpAdvertisement, 0, 17),
	}
	for i := range 4 { // 5 to 12; on to the source if the target differs
		program = append(program, load(unix.BPF_W, icmp+ndTarget+4*i), jumpIf(word(i), 0, 6-2*i))
	}
	program[len(program)-1] = jumpIf(word(3), 8, 0)
	for i := range 4 { // 13 to 20
		program = append(program, load(unix.BPF_W, ip6+ipv6Source+4*i), jumpIf(word(i), 0, 7-2*i))
	}
	return append(program, take(frameLength), take(0))
}

// packet makes an ICMPv6 message about the address, in IPv6.
func (neighbours) packet(source, target netip.Addr, typ, flags byte, about netip.Addr, option []byte) []byte {
	size := ndOptions + len(option)
	b := make([]byte, 0, ipv6Length+size)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(b, unix.IPPROTO_ICMPV6, ndHops)
	b = append(b, source.AsSlice()...)
	b = append(b, target.AsSlice()...)
	b = append(b, typ, 0, 0, 0, flags, 0, 0, 0)
	b = append(b, about.AsSlice()...)
	b = append(b, option...)
	binary.BigEndian.PutUint16(b[ipv6Length+2:], checksum(b))
	return b
}

// checksum computes that of the ICMPv6 message in an IPv6 packet, over the pseudo-header of RFC 8200 section
// 8.1; it is 0 if the message carries the right one.
func checksum(b []byte) uint16 {
	message := b[ipv6Length:]
	sum := uint32(len(message)) + unix.IPPROTO_ICMPV6
	add := func(b []byte) {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	add(b[ipv6Source:ipv6Length])
	add(message)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// question is the solicitation of duplicate address detection: its source is ::, so that it changes no table.
func (p neighbours) question(from link, ip netip.Addr) []byte {
	group := solicitedNode(ip)
	return frame(groupMAC(group), from.mac, unix.ETH_P_IPV6,
		p.packet(netip.IPv6Unspecified(), group, icmpSolicitation, 0, ip, nil))
}

// announcement is the unsolicited advertisement of RFC 4861 section 7.2.6, which overrides what is known.
func (p neighbours) announcement(from link, ip netip.Addr) [][]byte {
	flags := byte(ndOverride)
	if from.router { // whoever hears that it is none drops the routes through it
		flags |= ndRouter
	}
	option := append([]byte{ndTargetMAC, 1}, from.mac[:6]...)
	return [][]byte{frame(groupMAC(allNodes), from.mac, unix.ETH_P_IPV6,
		p.packet(ip, allNodes, icmpAdvertisement, flags, ip, option))}
}

// read believes only what RFC 4861 sections 7.1.1 and 7.1.2 call valid.
func (neighbours) read(b []byte, ip netip.Addr) (claim, bool) {
	mac, b, ok := unframe(b, unix.ETH_P_IPV6)
	if !ok || len(b) < ipv6Length+ndOptions || b[0]>>4 != 6 || b[ipv6Next] != unix.IPPROTO_ICMPV6 || b[ipv6Hops] != ndHops {
		return claim{}, false
	}
	size := int(binary.BigEndian.Uint16(b[4:]))
	if size < ndOptions || size > len(b)-ipv6Length {
		return claim{}, false
	}
	b = b[:ipv6Length+size] // what follows fills the frame
	source, _ := netip.AddrFromSlice(b[ipv6Source:ipv6Target])
	target, _ := netip.AddrFromSlice(b[ipv6Target:ipv6Length])
	message := b[ipv6Length:]
	about, _ := netip.AddrFromSlice(message[ndTarget:ndOptions])
	if message[1] != 0 || checksum(b) != 0 || about.IsMulticast() {
		return claim{}, false
	}
	var asking bool
	wanted := byte(ndTargetMAC)
	switch {
	case message[0] == icmpAdvertisement && about == ip:
		if target.IsMulticast() && message[4]&ndSolicited != 0 {
			return claim{}, false
		}
	case message[0] == icmpSolicitation && source == ip:
		wanted = ndSourceMAC
	case message[0] == icmpSolicitation && source.IsUnspecified() && about == ip && target == solicitedNode(ip):
		asking = true
	default:
		return claim{}, false
	}
	named, ok := macOption(message[ndOptions:], wanted)
	if !ok || asking && named != nil {
		return claim{}, false
	}
	if named != nil {
		mac = named
	}
	if !isHost(mac) {
		return claim{}, false
	}
	return claim{mac: append(net.HardwareAddr(nil), mac...), asking: asking}, true
}

// macOption finds an Ethernet address among options; false if they are damaged.
func macOption(b []byte, wanted byte) (mac net.HardwareAddr, ok bool) {
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || int(b[1])*8 > len(b) {
			return nil, false
		}
		if b[0] == wanted && b[1] == 1 {
			mac = net.HardwareAddr(b[2:8])
		}
		b = b[int(b[1])*8:]
	}
	return mac, true
}
