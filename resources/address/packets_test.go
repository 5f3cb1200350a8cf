package address

import (
	"bytes"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var (
	ip4  = netip.MustParseAddr("10.0.0.100")
	ip6  = netip.MustParseAddr("fd00::100")
	mac1 = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	mac2 = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// vm runs a filter as the kernel would.
func vm(tb testing.TB, filter []unix.SockFilter) *bpf.VM {
	tb.Helper()
	var program []bpf.Instruction
	for _, f := range filter {
		program = append(program, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		tb.Fatal(err)
	}
	return vm
}

// What the packets are, byte for byte, and what is read from them.
func TestPackets(t *testing.T) {
	from, router := link{mac: mac1}, link{mac: mac1, router: true}
	for name, test := range map[string]struct {
		d    discovery
		ip   netip.Addr
		got  []byte
		want string
		read claim
	}{
		"ARP probe": {arp{}, ip4, arp{}.question(from, ip4),
			"ffffffffffff" + "020000000001" + "0806" + "0001080006040001" + "020000000001" + "00000000" + "000000000000" + "0a000064", claim{mac1, true}},
		"ARP announcement": {arp{}, ip4, arp{}.announcement(from, ip4)[0],
			"ffffffffffff" + "020000000001" + "0806" + "0001080006040001" + "020000000001" + "0a000064" + "000000000000" + "0a000064", claim{mac1, false}},
		"gratuitous reply": {arp{}, ip4, arp{}.announcement(from, ip4)[1],
			"ffffffffffff" + "020000000001" + "0806" + "0001080006040002" + "020000000001" + "0a000064" + "020000000001" + "0a000064", claim{mac1, false}},
		"solicitation": {neighbours{}, ip6, neighbours{}.question(from, ip6),
			"3333ff000100" + "020000000001" + "86dd" + "6000000000183aff" + "00000000000000000000000000000000" + "ff0200000000000000000001ff000100" +
				"87007ba700000000" + "fd000000000000000000000000000100", claim{mac1, true}},
		"advertisement": {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0],
			"333300000001" + "020000000001" + "86dd" + "6000000000203aff" + "fd000000000000000000000000000100" + "ff020000000000000000000000000001" +
				"8800589d20000000" + "fd000000000000000000000000000100" + "0201020000000001", claim{mac1, false}},
		"advertisement of a router": {neighbours{}, ip6, neighbours{}.announcement(router, ip6)[0],
			"333300000001" + "020000000001" + "86dd" + "6000000000203aff" + "fd000000000000000000000000000100" + "ff020000000000000000000000000001" +
				"8800d89ca0000000" + "fd000000000000000000000000000100" + "0201020000000001", claim{mac1, false}},
	} {
		if !bytes.Equal(test.got, unhex(test.want)) {
			t.Errorf("%s:\n got %x\nwant %s", name, test.got, test.want)
		}
		c, ok := test.d.read(test.got, test.ip)
		if !ok || c.asking != test.read.asking || !bytes.Equal(c.mac, test.read.mac) {
			t.Errorf("%s is read as %v %v", name, c, ok)
		}
		if n, err := vm(t, test.d.filter(test.ip)).Run(test.got); err != nil || n == 0 {
			t.Errorf("%s does not pass the filter: %v", name, err)
		}
		other := test.ip.Next()
		if n, err := vm(t, test.d.filter(other)).Run(test.got); err != nil || n != 0 {
			t.Errorf("%s passes the filter of another address", name)
		}
		if c, ok := test.d.read(test.got, other); ok {
			t.Errorf("%s is read as a word on another address: %v", name, c)
		}
	}
}

// What is not valid, or comes from afar, is not believed.
func TestInvalidPackets(t *testing.T) {
	from := link{mac: mac1}
	seal := func(b []byte) []byte { // with the right checksum
		b[headerLength+ipv6Length+2], b[headerLength+ipv6Length+3] = 0, 0
		sum := checksum(b[headerLength:])
		b[headerLength+ipv6Length+2], b[headerLength+ipv6Length+3] = byte(sum>>8), byte(sum)
		return b
	}
	const icmp = headerLength + ipv6Length
	for name, test := range map[string]struct {
		d      discovery
		ip     netip.Addr
		frame  []byte
		change func(b []byte) []byte
	}{
		"not Ethernet":       {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { b[15] = 6; return b }},
		"long MAC":           {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { b[18] = 20; return b }},
		"RARP":               {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { b[21] = 3; return b }},
		"group MAC":          {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { b[22] = 3; return b }},
		"no MAC":             {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { copy(b[22:28], make([]byte, 6)); return b }},
		"short":              {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { return b[:len(b)-1] }},
		"ordinary question":  {arp{}, ip4, arp{}.question(from, ip4), func(b []byte) []byte { copy(b[28:32], []byte{10, 0, 0, 9}); return b }},
		"from afar":          {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[headerLength+ipv6Hops] = 254; return b }},
		"checksum":           {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[icmp+2]++; return b }},
		"code":               {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[icmp+1] = 1; return seal(b) }},
		"solicited to all":   {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[icmp+4] |= ndSolicited; return seal(b) }},
		"empty option":       {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[icmp+ndOptions+1] = 0; return seal(b) }},
		"option too long":    {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[icmp+ndOptions+1] = 2; return seal(b) }},
		"cut":                {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { return b[:len(b)-1] }},
		"another message":    {neighbours{}, ip6, neighbours{}.announcement(from, ip6)[0], func(b []byte) []byte { b[icmp] = 134; return seal(b) }},
		"ordinary asker":     {neighbours{}, ip6, neighbours{}.question(from, ip6), func(b []byte) []byte { b[headerLength+ipv6Source] = 0xfd; return seal(b) }},
		"asks not the group": {neighbours{}, ip6, neighbours{}.question(from, ip6), func(b []byte) []byte { b[headerLength+ipv6Target+15]++; return seal(b) }},
	} {
		if _, ok := test.d.read(test.frame, test.ip); !ok {
			t.Fatalf("%s: not believed even before the change", name)
		}
		if c, ok := test.d.read(test.change(bytes.Clone(test.frame)), test.ip); ok {
			t.Errorf("%s is believed: %v", name, c)
		}
	}
	// Trailing bytes fill short Ethernet frames.
	for _, d := range []struct {
		d  discovery
		ip netip.Addr
	}{{arp{}, ip4}, {neighbours{}, ip6}} {
		if _, ok := d.d.read(append(d.d.announcement(from, d.ip)[0], 0, 0, 7), d.ip); !ok {
			t.Error("a filled frame is not believed")
		}
	}
	// The option names the MAC, whoever the frame comes from (a proxy, a bond).
	b := neighbours{}.announcement(from, ip6)[0]
	copy(b[6:], mac2)
	if c, _ := (neighbours{}).read(b, ip6); !bytes.Equal(c.mac, mac1) {
		t.Errorf("MAC %s", c.mac)
	}
}

// FuzzPackets: nothing panics, and the kernel's filter passes whatever we believe.
func FuzzPackets(f *testing.F) {
	for _, frame := range append(arp{}.announcement(link{mac: mac1}, ip4), neighbours{}.announcement(link{mac: mac1}, ip6)...) {
		f.Add(frame)
	}
	f.Add(arp{}.question(link{mac: mac1}, ip4))
	f.Add(neighbours{}.question(link{mac: mac1}, ip6))
	filter4, filter6 := vm(f, arp{}.filter(ip4)), vm(f, neighbours{}.filter(ip6))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if c, ok := (arp{}).read(frame, ip4); ok {
			if n, err := filter4.Run(frame); err != nil || n == 0 || !isHost(c.mac) {
				t.Errorf("believed %x %v: %d %v", frame, c, n, err)
			}
		}
		if c, ok := (neighbours{}).read(frame, ip6); ok {
			if n, err := filter6.Run(frame); err != nil || n == 0 || !isHost(c.mac) {
				t.Errorf("believed %x %v: %d %v", frame, c, n, err)
			}
		}
	})
}

// FuzzKernelMessages: whatever netlink brings, nothing panics.
func FuzzKernelMessages(f *testing.F) {
	f.Add(unhex("1c00000014000200010000000000000002180000020000000800010001020304"))
	f.Add(unhex("240000001000020001000000000000000000010002000000031000000000000005000300650000000c001a00080002000100000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		concerns(b, ip4, 2)
		_, _ = readAnswers(b, 1, func(data []byte) error {
			if e, ok := parseEntry(data); ok {
				e.prefix()
			}
			parseLink(data)
			parseConnection(data)
			return nil
		})
		forwards6(b)
	})
}

// A list that changed while it was read is no list (B27).
func TestTornAnswers(t *testing.T) {
	done := unhex("1400000003000200" + "01000000" + "00000000" + "00000000")
	torn := unhex("1400000014001200" + "01000000" + "00000000" + "00000000") // NLM_F_DUMP_INTR
	failed := unhex("1400000002000000" + "01000000" + "00000000" + "edffffff")
	other := unhex("1400000002000000" + "02000000" + "00000000" + "edffffff") // an answer to somebody else
	for name, test := range map[string]struct {
		b    []byte
		done bool
		err  error
	}{
		"whole":  {done, true, nil},
		"torn":   {append(bytes.Clone(torn), done...), true, errTorn},
		"failed": {failed, true, unix.ENODEV},
		"other":  {other, false, nil},
		"both":   {append(bytes.Clone(other), done...), true, nil},
	} {
		if end, err := readAnswers(test.b, 1, nil); end != test.done || err != test.err {
			t.Errorf("%s: %v %v", name, end, err)
		}
	}
}

// The first claim is answered at once, the next ones after pauses that grow, none is forgotten.
func TestDefences(t *testing.T) {
	var d defences
	now := time.Now()
	var waits []time.Duration
	for range 10 {
		wait, ok := d.wait(now)
		if _, again := d.wait(now); !ok || again {
			t.Fatal("one claim, one answer")
		}
		waits = append(waits, wait)
		now = now.Add(wait)
		d.done(now)
	}
	want := []time.Duration{0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000}
	for i := range want {
		if waits[i] != want[i]*time.Millisecond {
			t.Fatalf("pauses %v", waits)
		}
	}
	if wait, ok := d.wait(now.Add(2 * conflictShown)); wait != 0 || !ok {
		t.Errorf("after a long peace: %s", wait)
	}
}
