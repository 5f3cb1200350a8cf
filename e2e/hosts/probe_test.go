//go:build systemdhost

package hosts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// prober asks an address again and again from the client: an ICMP echo each probePause.
type prober struct {
	socket net.PacketConn
	stop   chan struct{}
	done   sync.WaitGroup

	mu      sync.Mutex
	answers []time.Duration // when they came, by the hosts' clock
}

const probePause = 2 * time.Millisecond

func (l *lab) probe(t *testing.T, address string) *prober {
	t.Helper()
	p := &prober{stop: make(chan struct{})}
	err := inSpace(l.space("client"), func() (err error) {
		p.socket, err = net.ListenPacket("ip4:icmp", clientAddr)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p.done.Go(func() { p.ask(address) })
	p.done.Go(func() { p.hear(address) })
	t.Cleanup(p.end)
	until(t, patience, address+" answers", func(ctx context.Context) error {
		if p.last() == 0 {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	return p
}

func (p *prober) end() {
	select {
	case <-p.stop:
	default:
		close(p.stop)
		p.socket.Close()
	}
	p.done.Wait()
}

// Echo request and reply: RFC 792.
const (
	echoReply   = 0
	echoRequest = 8
	echoID      = 0x4841
)

func (p *prober) ask(address string) {
	tick := time.NewTicker(probePause)
	defer tick.Stop()
	for n := uint16(0); ; n++ {
		packet := binary.BigEndian.AppendUint16([]byte{echoRequest, 0, 0, 0}, echoID)
		packet = binary.BigEndian.AppendUint16(packet, n)
		binary.BigEndian.PutUint16(packet[2:], checksum(packet))
		p.socket.WriteTo(packet, &net.IPAddr{IP: net.ParseIP(address)}) // unreachable or not: the answers count
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

// checksum is that of RFC 1071, of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func (p *prober) hear(address string) {
	buffer := make([]byte, 2048)
	for {
		n, from, err := p.socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		if n >= 8 && buffer[0] == echoReply && binary.BigEndian.Uint16(buffer[4:]) == echoID && from.String() == address {
			p.mu.Lock()
			p.answers = append(p.answers, monotonic())
			p.mu.Unlock()
		}
	}
}

func (p *prober) last() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.answers) == 0 {
		return 0
	}
	return p.answers[len(p.answers)-1]
}

// gap is the longest time without an answer since a moment: from the last answer before it to the first after it. It waits
// until there are answers again.
func (p *prober) gap(t *testing.T, since time.Duration) (from, to time.Duration) {
	t.Helper()
	now := monotonic()
	until(t, patience, "answers", func(context.Context) error {
		if p.last() < now {
			return errors.New("there are none")
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.answers); i++ {
		if a, b := p.answers[i-1], p.answers[i]; b > since && b-a > to-from {
			from, to = a, b
		}
	}
	return from, to
}
