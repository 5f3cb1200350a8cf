package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	ifaProto = 11 // IFA_PROTO of linux/if_addr.h, since Linux 5.18; older ones ignore it
	// mark is the IFA_PROTO of the addresses that hamgr adds; ip addr shows it as "proto 0x68".
	mark = 0x68
	// lifetimeForever is INFINITY_LIFE_TIME of net/ipv6.h.
	lifetimeForever = 0xffffffff
	filterSkipStats = 1 << 3 // RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h
)

// entry is one address of one interface.
type entry struct {
	index int
	ip    netip.Addr
	bits  int
	flags uint32
	proto uint8
}

func (e entry) prefix() netip.Prefix { return netip.PrefixFrom(e.ip, e.bits).Masked() }

// link is one network interface.
type link struct {
	index     int
	name      string
	flags     uint32
	kind      uint16 // ARPHRD_*
	mac       net.HardwareAddr
	permanent net.HardwareAddr // what the hardware was made with
	changes   uint32           // how often its carrier has come or gone
	router    bool             // forwards IPv6
}

func (l link) up() bool      { return l.flags&unix.IFF_UP != 0 }
func (l link) carrier() bool { return l.flags&unix.IFF_LOWER_UP != 0 }

// silent reports whether nobody can be asked and told on the link, because it has no neighbours to resolve.
func (l link) silent() bool { return l.flags&(unix.IFF_LOOPBACK|unix.IFF_NOARP) != 0 }

var errNoLink = errors.New("there is no such interface")

// tries is how often a list is read anew that changed while it was read.
const tries = 20

// entries lists the addresses of all interfaces that are of one family and wanted.
func (k kernel) entries(family uint8, wanted func(entry) bool) ([]entry, error) {
	for range tries {
		var found []entry
		req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfAddrmsg(int(family)))
		err := k.request(unix.NETLINK_ROUTE, req, func(data []byte) error {
			if e, ok := parseEntry(data); ok && wanted(e) {
				found = append(found, e)
			}
			return nil
		})
		if !errors.Is(err, errTorn) {
			return found, err
		}
	}
	return nil, errTorn
}

// parseEntry reads struct ifaddrmsg and its attributes (rtnetlink(7)).
func parseEntry(b []byte) (e entry, ok bool) {
	if len(b) < unix.SizeofIfAddrmsg {
		return entry{}, false
	}
	e = entry{bits: int(b[1]), flags: uint32(b[2]), index: int(binary.NativeEndian.Uint32(b[4:]))}
	var local bool
	for typ, value := range attributes(b[unix.SizeofIfAddrmsg:]) {
		switch {
		case typ == unix.IFA_LOCAL:
			e.ip, local = netip.AddrFromSlice(value)
		case typ == unix.IFA_ADDRESS && !local: // the address itself with IPv6, the far end of a line with IPv4
			e.ip, _ = netip.AddrFromSlice(value)
		case typ == unix.IFA_FLAGS && len(value) >= 4:
			e.flags = binary.NativeEndian.Uint32(value)
		case typ == ifaProto && len(value) >= 1:
			e.proto = value[0]
		}
	}
	return e, e.ip.IsValid() && e.bits <= e.ip.BitLen()
}

// linkNamed and linkNumbered ask for one interface; errNoLink if it is not there.
func (k kernel) linkNamed(name string) (link, error) {
	return k.link(0, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
}

func (k kernel) linkNumbered(index int) (link, error) { return k.link(index) }

func (k kernel) link(index int, selectors ...nl.NetlinkRequestData) (link, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	for _, s := range selectors {
		req.AddData(s)
	}
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filterSkipStats)))
	var l link
	err := k.request(unix.NETLINK_ROUTE, req, func(data []byte) error {
		var ok bool
		if l, ok = parseLink(data); !ok {
			return errors.New("the kernel's answer about an interface cannot be read")
		}
		return errOnlyAnswer
	})
	switch {
	case err == errOnlyAnswer:
		return l, nil
	case errors.Is(err, unix.ENODEV):
		return link{}, errNoLink
	case err == nil:
		return link{}, errors.New("the kernel gave no answer about an interface")
	}
	return link{}, err
}

// links lists all interfaces.
func (k kernel) links() ([]link, error) {
	for range tries {
		var found []link
		req := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filterSkipStats)))
		err := k.request(unix.NETLINK_ROUTE, req, func(data []byte) error {
			if l, ok := parseLink(data); ok {
				found = append(found, l)
			}
			return nil
		})
		if !errors.Is(err, errTorn) {
			return found, err
		}
	}
	return nil, errTorn
}

// parseLink reads struct ifinfomsg and its attributes (rtnetlink(7)).
func parseLink(b []byte) (l link, ok bool) {
	if len(b) < unix.SizeofIfInfomsg {
		return link{}, false
	}
	l = link{
		kind:  binary.NativeEndian.Uint16(b[2:]),
		index: int(int32(binary.NativeEndian.Uint32(b[4:]))),
		flags: binary.NativeEndian.Uint32(b[8:]),
	}
	for typ, value := range attributes(b[unix.SizeofIfInfomsg:]) {
		switch {
		case typ == unix.IFLA_IFNAME:
			l.name = unix.ByteSliceToString(value)
		case typ == unix.IFLA_ADDRESS:
			l.mac = net.HardwareAddr(append([]byte(nil), value...))
		case typ == unix.IFLA_PERM_ADDRESS:
			l.permanent = net.HardwareAddr(append([]byte(nil), value...))
		case typ == unix.IFLA_CARRIER_CHANGES && len(value) >= 4:
			l.changes = binary.NativeEndian.Uint32(value)
		case typ == unix.IFLA_AF_SPEC:
			l.router = forwards6(value)
		}
	}
	return l, l.index > 0 && l.name != ""
}

// forwards6 finds net.ipv6.conf.*.forwarding: the first number (DEVCONF_FORWARDING) of IFLA_INET6_CONF.
func forwards6(spec []byte) bool {
	const inet6Conf = 2
	for family, value := range attributes(spec) {
		if family != unix.AF_INET6 {
			continue
		}
		for typ, conf := range attributes(value) {
			if typ == inet6Conf && len(conf) >= 4 {
				return binary.NativeEndian.Uint32(conf) != 0
			}
		}
	}
	return false
}

// add puts an address on an interface, with the mark. One of IPv6 comes without the kernel's own duplicate
// detection, which would take one to two seconds: ours came first. It is marked as not preferred (its
// preferred lifetime is over), so that the host does not speak from it of itself; services bound to it do.
func (k kernel) add(index int, ip netip.Addr, bits int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	req.AddData(addrMessage(index, ip, bits))
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, ip.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, ip.AsSlice()))
	req.AddData(nl.NewRtAttr(ifaProto, []byte{mark}))
	if ip.Is6() {
		req.AddData(nl.NewRtAttr(unix.IFA_FLAGS, nl.Uint32Attr(unix.IFA_F_NODAD)))
		life := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Prefered: 0, Valid: lifetimeForever}}
		req.AddData(nl.NewRtAttr(unix.IFA_CACHEINFO, life.Serialize()))
	} else if bits < 31 { // RFC 3021
		req.AddData(nl.NewRtAttr(unix.IFA_BROADCAST, broadcastOf(netip.PrefixFrom(ip, bits)).AsSlice()))
	}
	return k.request(unix.NETLINK_ROUTE, req, nil)
}

// remove takes an address away from an interface. One that is gone already, or whose interface is, is no error.
func (k kernel) remove(e entry) error {
	req := nl.NewNetlinkRequest(unix.RTM_DELADDR, unix.NLM_F_ACK)
	req.AddData(addrMessage(e.index, e.ip, e.bits))
	req.AddData(nl.NewRtAttr(unix.IFA_LOCAL, e.ip.AsSlice()))
	err := k.request(unix.NETLINK_ROUTE, req, nil)
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func addrMessage(index int, ip netip.Addr, bits int) *nl.IfAddrmsg {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	msg := nl.NewIfAddrmsg(family)
	msg.Index, msg.Prefixlen = uint32(index), uint8(bits)
	return msg
}

// keepsMarks reports whether the kernel knows who added an address: it marks ::1 as its own.
func (k kernel) keepsMarks() bool {
	found, err := k.entries(unix.AF_INET6, func(e entry) bool { return e.ip == netip.IPv6Loopback() && e.proto != 0 })
	return err == nil && len(found) > 0
}

// delivers reports whether the kernel takes what is sent to an address at an interface for its own. With IPv6 that
// comes a moment after the address is shown: the kernel adds the route in the background.
func (k kernel) delivers(index int, ip netip.Addr) (bool, error) {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Dst_len: uint8(ip.BitLen())}})
	req.AddData(nl.NewRtAttr(unix.RTA_DST, ip.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	const typeOffset = 7 // rtm_type of struct rtmsg (rtnetlink(7))
	var local bool
	err := k.request(unix.NETLINK_ROUTE, req, func(data []byte) error {
		local = len(data) >= unix.SizeofRtMsg && data[typeOffset] == unix.RTN_LOCAL
		return errOnlyAnswer
	})
	if err == errOnlyAnswer || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		err = nil
	}
	return local, err
}

// promote lets the other IPv4 addresses of a network on an interface survive the removal of the first one
// (net.ipv4.conf.*.promote_secondaries, which systemd sets too; the kernel's default deletes them all).
func (k kernel) promote(index int) error {
	const inetConf, promoteSecondaries = 1, 20 // IFLA_INET_CONF, IPV4_DEVCONF_PROMOTE_SECONDARIES
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil).AddRtAttr(promoteSecondaries, nl.Uint32Attr(1))
	req.AddData(spec)
	return k.request(unix.NETLINK_ROUTE, req, nil)
}

// events gives the socket on which the kernel tells what changes of interfaces and addresses.
func (k kernel) events() (*os.File, error) {
	fd, err := k.socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	groups := uint32(0)
	for _, g := range []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR} {
		groups |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("subscribe to the kernel's changes of addresses: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
