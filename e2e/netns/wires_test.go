package netns

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// links is how many each node has.
const links = 2

// frame is what the switch knows of a frame.
type frame struct {
	link     int // from 0
	from, to string
	size     int // without the Ethernet header: what an MTU limits
}

// between reports a frame of either direction.
func (f frame) between(a, b string) bool { return f.from == a && f.to == b || f.from == b && f.to == a }

// of reports a frame that the node sends or shall get.
func (f frame) of(node string) bool { return f.from == node || f.to == node }

// fate is what becomes of a frame.
type fate struct {
	lost bool
	late time.Duration
}

var passes = fate{}

// wires are the links of a cluster: on each one every node has a port, and the rule decides frame by frame.
type wires struct {
	mu        sync.RWMutex
	rule      func(frame) fate
	unplugged map[string]bool
	ports     [links]map[string]*port

	done sync.WaitGroup
}

// port is where a node's link ends: the other side of its network device.
type port struct {
	link   int
	node   string
	number byte
	end    io.ReadWriteCloser
}

func newWires() *wires {
	w := &wires{unplugged: map[string]bool{}}
	for i := range w.ports {
		w.ports[i] = map[string]*port{}
	}
	return w
}

// set makes the rule for all frames from now on. nil lets all pass.
func (w *wires) set(rule func(frame) fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = rule
}

// plug puts a node's links in or out: one without power, or that stands still, neither sends nor hears.
func (w *wires) plug(node string, in bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unplugged[node] = !in
}

// address is that of a node on a link.
func address(link int, number byte) string { return fmt.Sprintf("10.88.%d.%d", link, number) }

func mac(link int, number byte) string { return fmt.Sprintf("02:88:00:00:%02x:%02x", link, number) }

// attach gives a node's namespace its links.
func (w *wires) attach(s *space, node string, number byte) error {
	for link := range links {
		device := fmt.Sprintf("link%d", link)
		var file *os.File
		err := s.do(func() (err error) {
			file, err = openTap(device)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s of %s: %w", device, node, err)
		}
		w.join(&port{link: link, node: node, number: number, end: file})
		err = s.ip(
			"link set "+device+" address "+mac(link, number)+" addrgenmode none up",
			"addr add "+address(link, number)+"/24 dev "+device,
		)
		if err != nil {
			return err
		}
	}
	return s.ip("link set lo up")
}

// join makes a port of the switch, from now until all are closed.
func (w *wires) join(p *port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports[p.link][p.node] = p
	w.done.Go(func() { w.carry(p) })
}

// openTap makes a network device in the thread's namespace whose frames are read and written as a file
// (Documentation/networking/tuntap.rst).
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

const ethernetHeader = 14

// carry takes what a node sends to where it shall go, until the port is closed.
func (w *wires) carry(p *port) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := p.end.Read(buffer)
		if err != nil {
			return
		}
		if n > ethernetHeader {
			w.forward(p, buffer[:n])
		}
	}
}

func (w *wires) forward(from *port, data []byte) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	group := data[0]&1 == 1 // IEEE 802.3, 3.2.3: broadcast, too
	for _, to := range w.ports[from.link] {
		if to == from || !group && data[5] != to.number || w.unplugged[from.node] || w.unplugged[to.node] {
			continue
		}
		end := passes
		// Who cannot ask for an address cannot send either, after a while: then no cut would stay one-way. So the rules are of
		// what hosts say to each other, not of how they find each other (ARP, EtherType 0x0806 of RFC 826).
		if w.rule != nil && !(data[12] == 0x08 && data[13] == 0x06) {
			end = w.rule(frame{link: from.link, from: from.node, to: to.node, size: len(data) - ethernetHeader})
		}
		switch {
		case end.lost:
		case end.late > 0:
			kept := append([]byte(nil), data...)
			time.AfterFunc(end.late, func() { to.end.Write(kept) })
		default:
			to.end.Write(data) // taken or not, as on a wire
		}
	}
}

// close takes all away.
func (w *wires) close() {
	w.mu.RLock()
	for _, ports := range w.ports {
		for _, p := range ports {
			p.end.Close()
		}
	}
	w.mu.RUnlock()
	w.done.Wait()
}

// newRandom gives numbers from 0 to 1, the same ones every time, to any number of goroutines.
func newRandom() func() float64 {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(21, 30))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}
