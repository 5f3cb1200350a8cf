package address

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// arp is the address resolution of IPv4 on Ethernet (RFC 826), used as RFC 5227 says.
type arp struct{}

const (
	arpLength  = 28
	arpRequest = 1
	arpReply   = 2
	// Where the fields are, from the start of the packet.
	arpSenderMAC = 8
	arpSenderIP  = 14
	arpTargetIP  = 24
)

func (arp) etherType() uint16 { return unix.ETH_P_ARP }

// filter passes what names the address as sender, and the probes for it (sender 0).
func (arp) filter(ip netip.Addr) []unix.SockFilter {
	b := ip.As4()
	word := binary.BigEndian.Uint32(b[:])
	return []unix.SockFilter{
		load(unix.BPF_W, headerLength+arpSenderIP),
		jumpIf(word, 3, 0),
		jumpIf(0, 0, 3),
		load(unix.BPF_W, headerLength+arpTargetIP),
		jumpIf(word, 0, 1),
		take(frameLength),
		take(0),
	}
}

// packet makes an ARP packet as of RFC 826.
func (arp) packet(operation uint16, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	b := make([]byte, 0, arpLength)
	b = binary.BigEndian.AppendUint16(b, 1) // Ethernet
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP)
	b = append(b, 6, 4)
	b = binary.BigEndian.AppendUint16(b, operation)
	b = append(b, senderMAC[:6]...)
	b = append(b, sender.AsSlice()...)
	b = append(b, targetMAC[:6]...)
	return append(b, target.AsSlice()...)
}

// question is the ARP Probe of RFC 5227 section 2.1.1: its sender address is 0, so that it changes no table.
func (p arp) question(from link, ip netip.Addr) []byte {
	none := make(net.HardwareAddr, 6)
	return frame(broadcast, from.mac, unix.ETH_P_ARP, p.packet(arpRequest, from.mac, netip.IPv4Unspecified(), none, ip))
}

// announcement is the ARP Announcement of RFC 5227 section 2.3, a request, and the gratuitous reply of RFC 5944
// section 4.6: there are hosts that learn from the one only, or from the other.
func (p arp) announcement(from link, ip netip.Addr) [][]byte {
	none := make(net.HardwareAddr, 6)
	return [][]byte{
		frame(broadcast, from.mac, unix.ETH_P_ARP, p.packet(arpRequest, from.mac, ip, none, ip)),
		frame(broadcast, from.mac, unix.ETH_P_ARP, p.packet(arpReply, from.mac, ip, from.mac, ip)),
	}
}

func (arp) read(b []byte, ip netip.Addr) (claim, bool) {
	_, b, ok := unframe(b, unix.ETH_P_ARP)
	if !ok || len(b) < arpLength ||
		binary.BigEndian.Uint16(b) != 1 || binary.BigEndian.Uint16(b[2:]) != unix.ETH_P_IP || b[4] != 6 || b[5] != 4 {
		return claim{}, false
	}
	operation := binary.BigEndian.Uint16(b[6:])
	if operation != arpRequest && operation != arpReply {
		return claim{}, false
	}
	mac := net.HardwareAddr(b[arpSenderMAC:arpSenderIP])
	sender, _ := netip.AddrFromSlice(b[arpSenderIP : arpSenderIP+4])
	target, _ := netip.AddrFromSlice(b[arpTargetIP : arpTargetIP+4])
	asking := operation == arpRequest && sender.IsUnspecified() && target == ip
	if !isHost(mac) || sender != ip && !asking {
		return claim{}, false
	}
	return claim{mac: append(net.HardwareAddr(nil), mac...), asking: asking}, true
}
