package ipmipeer

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// Faults are what a Proxy does to datagrams, in both directions: chances from 0 to 1.
type Faults struct {
	Lose, Repeat, Damage float64
	// Reorder holds a datagram back for a while, so that later ones overtake it.
	Reorder float64
	Hold    time.Duration // how long at most; default 20 ms
}

// Proxy stands between an agent and a BMC. What it does is drawn from a seed.
type Proxy struct {
	front net.PacketConn
	bmc   string
	end   chan struct{}
	wg    sync.WaitGroup

	mu      sync.Mutex
	random  *rand.Rand
	faults  Faults
	forge   func(answer []byte) [][]byte
	cut     bool
	links   map[string]*link
	answers int
}

// link is one agent's socket, and the socket that stands for it at the BMC.
type link struct {
	agent net.Addr
	back  net.Conn
}

// StartProxy runs a proxy in front of a BMC until the end of the test.
func StartProxy(tb testing.TB, bmc string, seed uint64, f Faults) *Proxy {
	tb.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if f.Hold == 0 {
		f.Hold = 20 * time.Millisecond
	}
	p := &Proxy{front: front, bmc: bmc, faults: f, random: rand.New(rand.NewPCG(seed, 0)), links: map[string]*link{}, end: make(chan struct{})}
	p.wg.Go(p.fromAgents)
	tb.Cleanup(p.stop)
	return p
}

// Addr is host:port.
func (p *Proxy) Addr() string { return p.front.LocalAddr().String() }

// SetFaults changes what is done to datagrams.
func (p *Proxy) SetFaults(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Hold == 0 {
		f.Hold = 20 * time.Millisecond
	}
	p.faults = f
}

// Cut drops everything, or no longer.
func (p *Proxy) Cut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

// Forge has each answer of the BMC replaced by the datagrams that forge gives for it, which
// may be the answer itself, none, or any others. nil ends that.
func (p *Proxy) Forge(forge func(answer []byte) [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forge = forge
}

// Inject sends a datagram in the BMC's name to all agents.
func (p *Proxy) Inject(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		p.front.WriteTo(b, l.agent)
	}
}

// Answers is how many datagrams the BMC sent.
func (p *Proxy) Answers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers
}

func (p *Proxy) stop() {
	close(p.end)
	p.front.Close()
	p.mu.Lock()
	for _, l := range p.links {
		l.back.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) fromAgents() {
	b := make([]byte, 4096)
	for {
		n, from, err := p.front.ReadFrom(b)
		if err != nil {
			select {
			case <-p.end:
				return
			default:
				continue // an agent's socket that is closed
			}
		}
		if l := p.link(from); l != nil {
			p.pass(b[:n], func(d []byte) { l.back.Write(d) })
		}
	}
}

func (p *Proxy) link(from net.Addr) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.links[from.String()]; l != nil {
		return l
	}
	select {
	case <-p.end:
		return nil
	default:
	}
	back, err := net.Dial("udp", p.bmc)
	if err != nil {
		return nil
	}
	l := &link{from, back}
	p.links[from.String()] = l
	p.wg.Go(func() { p.fromBMC(l) })
	return l
}

func (p *Proxy) fromBMC(l *link) {
	b := make([]byte, 4096)
	for {
		n, err := l.back.Read(b)
		if err != nil {
			select {
			case <-p.end:
				return
			case <-time.After(time.Millisecond):
				continue // the BMC does not listen just now
			}
		}
		p.mu.Lock()
		p.answers++
		out := [][]byte{b[:n]}
		if p.forge != nil {
			out = p.forge(bytes.Clone(b[:n]))
		}
		p.mu.Unlock()
		for _, d := range out {
			p.pass(d, func(d []byte) { p.front.WriteTo(d, l.agent) })
		}
	}
}

// pass sends a datagram on, as the faults want it.
func (p *Proxy) pass(b []byte, send func([]byte)) {
	p.mu.Lock()
	f, cut := p.faults, p.cut
	lose, repeat, damage, late := p.chance(f.Lose), p.chance(f.Repeat), p.chance(f.Damage), p.chance(f.Reorder)
	hold := time.Duration(p.random.Int64N(int64(f.Hold)))
	b = bytes.Clone(b)
	if damage && len(b) > 0 {
		b[p.random.IntN(len(b))] ^= byte(1 + p.random.IntN(255))
	}
	p.mu.Unlock()
	if cut || lose {
		return
	}
	if repeat {
		send(b)
	}
	if !late {
		send(b)
		return
	}
	p.wg.Go(func() {
		select {
		case <-time.After(hold):
			send(b)
		case <-p.end:
		}
	})
}

func (p *Proxy) chance(of float64) bool { return of > 0 && p.random.Float64() < of }
